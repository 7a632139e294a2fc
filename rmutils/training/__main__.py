"""One of the processes that share a training: `python -m rmutils.training TASK`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

from rmutils.training.recipes import TrainRecipe
from rmutils.training.running import train


def main(task: Path) -> None:
    """Train as the task of `rmutils.training.launching.launch` says."""
    told = json.loads(task.read_text(encoding="utf-8"))
    train(told["model"], pd.read_parquet(told["pairs"]), TrainRecipe(**told["recipe"]),
          Path(told["folder"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
