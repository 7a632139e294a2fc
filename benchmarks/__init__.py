"""What things cost here, beside other ways to the same end: `python -m benchmarks --help`."""
