"""What things cost here, as measured by `python -m benchmarks`, beside other ways to do them."""

from rmutils.evaluation.speed.results import (
    FOLDER,
    REFERENCE,
    Benchmark,
    load,
    middle,
    ratio,
    seconds_of,
)

__all__ = ["FOLDER", "REFERENCE", "Benchmark", "load", "middle", "ratio", "seconds_of"]
