"""Preference training: seconds per 1,000 pairs, against a plain script of TRL.

The script is what TRL's documentation begins with: the trainer, its configuration, text in, and
nothing set but one epoch and that nobody is told. Both read the same pairs once.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks.measuring import PYTHON, lines_of, stay_within_memory, watched
from benchmarks.records import Results
from rmutils import load_model
from rmutils.book.chapters.speed import FOLDER
from rmutils.book.experiments.planned_runs import planned_runs, stored_runs
from rmutils.core.config import Config
from rmutils.models.loading import trained_folder
from rmutils.training.recipes import RECIPES
from rmutils.training.running import train


class Settings(Config):
    """The first pairs of the first stored run of RetMask."""

    model: str = "tiny-llama"
    pairs: int = 96
    rounds: int = 3


QUICK = {"pairs": 16, "rounds": 1}


def ours(model: str, pairs: pd.DataFrame, folder: str) -> None:
    """The project's recipe for small models, once through the pairs."""
    recipe = RECIPES["embedded"].changed({"epochs": 1})
    train(load_model(model), pairs, recipe, Path(folder, "ours"))


def plain(model: str, pairs: pd.DataFrame, folder: str, **settings) -> None:
    """TRL's trainer with TRL's defaults."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    def turn(role: str, text: str) -> list[dict]:
        return [{"role": role, "content": text}]

    source = trained_folder(model)
    data = Dataset.from_list([
        {"prompt": turn("user", row.prompt), "chosen": turn("assistant", row.chosen),
         "rejected": turn("assistant", row.rejected)} for row in pairs.itertuples()])
    DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(source), train_dataset=data,
        args=DPOConfig(output_dir=folder, num_train_epochs=1, report_to="none",
                       use_cpu=not torch.cuda.is_available(), **settings),
        processing_class=AutoTokenizer.from_pretrained(source)).train()


def float32(model: str, pairs: pd.DataFrame, folder: str) -> None:
    """The same in float32: TRL's bfloat16 is made for GPUs."""
    plain(model, pairs, folder, bf16=False)


WAYS = {"rmutils": ours, "plain TRL": plain, "plain TRL, float32": float32}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet."""
    results = Results("training", settings, folder)
    for way in WAYS:
        if not list(results.find(way=way)):
            for row in lines_of(PYTHON, "benchmarks.training", way, settings.model_dump_json()):
                results.add(row)
    return True


def main(way: str, asked: Annotated[str, typer.Argument(help="JSON")]) -> None:
    """Print a row: seconds of each round for all pairs."""
    settings = Settings.model_validate_json(asked)
    config = next(c for c in planned_runs(settings.model) if c.strategy == "retmask")
    (run,), _ = stored_runs(settings.model, [config])
    pairs, seconds = run.pairs[: settings.pairs], []
    stay_within_memory()
    with watched() as found:
        for _ in range(settings.rounds):
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                WAYS[way](settings.model, pairs, folder)
                seconds.append(round(time.perf_counter() - started, 3))
    print(json.dumps({"way": way, "pairs": len(pairs), "seconds": seconds, **found}), flush=True)


if __name__ == "__main__":
    typer.run(main)
