"""These measurements as stored results: one way to look up, make and name each of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config
from rmutils.errors import NotStored
from rmutils.evaluation.savings.costs import CostsConfig, costs
from rmutils.evaluation.savings.layers import LayersConfig, layers
from rmutils.evaluation.savings.likeness import LikenessConfig, likeness
from rmutils.evaluation.savings.recall import RecallConfig, recall
from rmutils.heads.detection import DetectConfig
from rmutils.heads.store import inputs_of
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of

JOURNAL = ".journal.jsonl"
Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Measurement:
    """A measurement, with where it is kept and how it is configured."""

    stage: Stage
    config: type[Config]
    make: Callable[[LanguageModel, Config, Path | None], Tables]


MEASUREMENTS = {one.stage.name: one for one in (
    Measurement(Stage("costs", 1), CostsConfig, costs),
    Measurement(Stage("layers", 1), LayersConfig, layers),
    Measurement(Stage("likeness", 1), LikenessConfig, likeness),
    Measurement(Stage("recall", 1), RecallConfig, recall),
)}
"""By the name of the stage."""


def saved(
    model: LanguageModel | str, config: Config, *, compute: Compute = "auto"
) -> tuple[Tables, Artifact]:
    """Take a measurement, or read it if it is stored; a stopped one goes on.

    Parameters
    ----------
    model : LanguageModel or str
        A name is enough: the model is loaded only if the result has to be computed.
    config : CostsConfig, LayersConfig, LikenessConfig or RecallConfig
        Says which measurement it is.
    compute : {"auto", "always", "never"}

    Raises
    ------
    NotStored
        Nothing is stored and `compute="never"`.
    """
    one = _measurement(config)
    name, identity, corpus = ((model, identify(model), corpus_of(model)) if isinstance(model, str)
                              else (model.name, model.identity, model.corpus))

    def make(folder: Path) -> dict:
        lm = load_model(model) if isinstance(model, str) else model
        tables = one.make(lm, config, folder / JOURNAL)
        for table, frame in tables.items():
            frame.to_parquet(folder / f"{table}.parquet", index=False)
        return {table: len(frame) for table, frame in tables.items()}

    asked = getattr(config, "needles", None) or DetectConfig()
    artifact = one.stage.obtain(config, inputs_of(identity, asked, corpus), make, compute=compute,
                                command=command_of(name, config))
    return {path.stem: pd.read_parquet(path)
            for path in sorted(artifact.folder.glob("*.parquet"))}, artifact


def look_up(
    model: LanguageModel | str, config: Config, *, compute: Compute = "auto"
) -> tuple[Tables, tuple[Artifact, ...], tuple[str, ...]]:
    """`saved`, where what is not stored is no error.

    Returns
    -------
    dict, tuple of Artifact, tuple of str
        Tables and artifact; or nothing, nothing and the command line that makes it.
    """
    try:
        tables, artifact = saved(model, config, compute=compute)
    except NotStored:
        return {}, (), (command_of(model if isinstance(model, str) else model.name, config),)
    return tables, (artifact,), ()


def command_of(name: str, config: Config) -> str:
    """The command line that makes this result."""
    return shlex.join(["rmutils", "variants", _measurement(config).stage.name, name,
                       config.model_dump_json()])


def _measurement(config: Config) -> Measurement:
    return next(one for one in MEASUREMENTS.values() if type(config) is one.config)
