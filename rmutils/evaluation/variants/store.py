"""Measurements under variants as stored results, one by one and side by side."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.errors import NotStored
from rmutils.evaluation.variants.kinds import Variant
from rmutils.evaluation.variants.measure import Tables, VariantConfig, measure
from rmutils.heads.detection import DetectConfig
from rmutils.heads.store import inputs_of
from rmutils.models import LanguageModel
from rmutils.models.loading import corpus_of
from rmutils.training.by_name import base_of, identity_of, is_training, load_by_name

VARIANT = Stage("variant", version=2)
JOURNAL = ".journal.jsonl"


def measure_stored(
    model: LanguageModel | str, config: VariantConfig = VariantConfig(), *,
    base: str | None = None, compute: Compute = "auto",
) -> tuple[Tables, Artifact]:
    """`measure`, but a result that is stored already is read instead; a stopped run goes on.

    Parameters
    ----------
    model : LanguageModel or str
        A name is enough: the model is loaded only if the result has to be computed. It may also be
        that of a stored training (`train-...`).
    config : VariantConfig
    base : str, optional
        The model that such a training began with. Default: the one that it tells itself, which it
        can only where its weights are.
    compute : {"auto", "always", "never"}
    """
    named = isinstance(model, str)
    name = model if named else model.name

    def make(folder: Path) -> dict:
        lm = load_by_name(model, base) if named else model
        tables = measure(lm, config, journal=folder / JOURNAL)
        for table, frame in tables.items():
            frame.to_parquet(folder / f"{table}.parquet", index=False)
        return {table: len(frame) for table, frame in tables.items()}

    inputs = inputs_of(identity_of(model) if named else model.identity,
                       config.needles or DetectConfig(),
                       _corpus(model, base) if named else model.corpus)
    artifact = VARIANT.obtain(config, inputs, make, compute=compute,
                              command=command_of(name, config))
    return {path.stem: pd.read_parquet(path)
            for path in sorted(artifact.folder.glob("*.parquet"))}, artifact


def _corpus(name: str, base: str | None) -> str:
    return corpus_of(base or (base_of(name) if is_training(name) else name))


def command_of(name: str, config: VariantConfig) -> str:
    """The command line that makes this result."""
    changed = config.model_dump(mode="json", exclude_defaults=True)
    if "variant" in changed:
        changed["variant"]["kind"] = config.variant.kind
    return shlex.join(["rmutils", "variants", "answers", name, json.dumps(changed)])


@dataclass(frozen=True)
class Compared:
    """Several variants of one model, measured alike.

    Attributes
    ----------
    tables : dict of str to DataFrame
        As from `measure`, with a column `variant`: its name in the comparison.
    artifacts : tuple of Artifact
    missing : tuple of str
        A command line for each variant that is not stored. They are left out of the tables.
    """

    tables: Tables
    artifacts: tuple[Artifact, ...]
    missing: tuple[str, ...]


def compare_stored(
    model: LanguageModel | str, variants: Mapping[str, Variant],
    config: VariantConfig = VariantConfig(), *, compute: Compute = "auto",
) -> Compared:
    """`measure_stored` for several variants by name; what is missing does not stop the others."""
    parts: dict[str, list[pd.DataFrame]] = {}
    artifacts, missing = [], []
    for name, variant in variants.items():
        one = config.model_copy(update={"variant": variant})
        try:
            tables, artifact = measure_stored(model, one, compute=compute)
        except NotStored:
            missing.append(command_of(model if isinstance(model, str) else model.name, one))
            continue
        artifacts.append(artifact)
        for table, frame in tables.items():
            parts.setdefault(table, []).append(frame.assign(variant=name))
    return Compared({table: pd.concat(frames, ignore_index=True)
                     for table, frames in parts.items()}, tuple(artifacts), tuple(missing))
