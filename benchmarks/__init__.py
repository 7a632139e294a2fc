"""Costs here, beside other ways to the same end: `python -m benchmarks --help`."""
