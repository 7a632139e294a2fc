"""All methods of `rmutils.longcontext.extension` side by side, as a stored result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.journal import Journal
from rmutils.longcontext.extension import (
    ExtensionConfig,
    extended,
    fine_tune,
    instances,
    trained_window,
)
from rmutils.longcontext.reach import reach
from rmutils.longcontext.texts import Document
from rmutils.models import identify, load_model
from rmutils.models.teaching import RECIPES
from rmutils.progress import progress_bar
from rmutils.threads import one_thread

EXTENSION = Stage("extension", version=1)
TABLES = ("found", "losses", "training")


@dataclass(frozen=True)
class Extension:
    """Three tables.

    Attributes
    ----------
    found : DataFrame
        A row for each question: `method`, `tokens` (of the fine-tune so far), `length`, `text`,
        `depth`, `found`.
    losses : DataFrame
        `method`, `tokens`, `text`, `position`, `loss` (nats per token of the longest texts).
    training : DataFrame
        `method`, `step` (from 0), `loss` (on answers, nats per token).
    """

    found: pd.DataFrame
    losses: pd.DataFrame
    training: pd.DataFrame


def extension(
    name: str, config: ExtensionConfig = ExtensionConfig(), *, journal: Path | None = None
) -> Extension:
    """Extend, fine-tune and ask, method by method.

    Parameters
    ----------
    name : str
        A teaching model, a key of `rmutils.models.teaching.RECIPES`.
    journal : Path, optional
        A file that takes each method when it is done. What is there already is not done again.
    """
    kept = Journal(journal)
    lm = load_model(name, dtype=torch.float32)
    packed = instances(lm, RECIPES[name], config)
    texts = len(config.reach.lengths) * config.reach.texts
    parts = {method: config.steps + texts * len(config.asked_after(method))
             for method in config.methods}
    done = sum(parts[method] for method in parts if method in kept)
    with one_thread(), progress_bar(  # so that the weights do not depend on the number of cores
            f"extensions of {name}", sum(parts.values()), unit="steps and texts",
            done=done) as advance:
        for method in config.methods:
            if method not in kept:
                kept[method] = _run(name, method, config, packed, advance)
    return Extension(*(pd.concat([pd.DataFrame(kept[method][table]).assign(method=method)
                                  for method in config.methods], ignore_index=True)
                       for table in TABLES))


def extension_stored(
    name: str = "tiny-olmo3", config: ExtensionConfig = ExtensionConfig(), *,
    compute: Compute = "auto",
) -> tuple[Extension, Artifact]:
    """`extension`, but a stored result is read instead; a stopped run goes on with the next method.

    Raises
    ------
    NotStored
        Nothing stored and `compute="never"`.
    """

    def make(folder: Path) -> dict:
        result = extension(name, config, journal=folder / ".journal.jsonl")
        for table in TABLES:
            getattr(result, table).to_parquet(folder / f"{table}.parquet", index=False)
        return {"methods": len(config.methods), "steps": config.steps}

    inputs = {"model": identify(name, torch.float32), "recipe": RECIPES[name].digest()}
    artifact = EXTENSION.obtain(config, inputs, make, compute=compute,
                                command="rmutils run 14_olmo3_recipe -p compute_extension auto")
    return Extension(*(pd.read_parquet(artifact.path(f"{table}.parquet"))
                       for table in TABLES)), artifact


def _run(
    name: str, method: str, config: ExtensionConfig, packed: list[list[Document]],
    advance: Callable[[float], None],
) -> dict[str, list[dict]]:
    """One method, from the model as it was trained: the rows of `TABLES`."""
    lm = extended(load_model(name, dtype=torch.float32), method, config.factor, RECIPES[name])
    capacity = round(trained_window(RECIPES[name]) * config.factor)
    rows: dict[str, list[dict]] = {table: [] for table in TABLES}
    asked = config.asked_after(method)

    def ask(steps: int) -> None:
        for table, part in zip(TABLES, reach(lm, config.reach, advance), strict=False):
            rows[table] += [{"tokens": steps * capacity} | row for row in part]

    ask(0)
    for step, loss in enumerate(fine_tune(lm, packed, capacity, config.rate)):
        rows["training"].append({"step": step, "loss": loss})
        advance(1)
        if step + 1 in asked:
            ask(step + 1)
    return rows
