"""The same exchanges in four real models: only sets of heads, from the stored detection."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.chapters.is_it_causal import experiment
from rmutils.book.experiments.real_models import LITERAL, detection, real_models
from rmutils.core.config import Config, digest
from rmutils.core.experiment import Experiment, Plan, Run
from rmutils.core.journal import Journal
from rmutils.core.paths import CORPORA
from rmutils.core.results import JOURNAL, Artifact, write_tables
from rmutils.corpora.niah import load_needles
from rmutils.heads import DetectConfig, HeadScores
from rmutils.heads.detection import depends_on, detect_stored, inputs_of
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef


class RealExchangeConfig(Config):
    """The cases, and the heads that are exchanged."""

    detect: DetectConfig
    """The detection whose highest heads they are."""
    cases: DetectConfig
    """Cases whose answers are exchanged."""
    shares: tuple[float, ...]
    """How many of all heads are exchanged together; the smallest is the primary share."""
    draws: int
    """Random choices of the same number of others of the same layers, for each share."""
    seed: int
    """Seed of the first of them."""


def exchanged_sets(lm: LanguageModel, scores: HeadScores, config: RealExchangeConfig, *,
                   journal: Path | None = None) -> pd.DataFrame:
    """Exchange sets of heads in every answer that has its needle: as `IsItCausal.sets`."""
    ranking = scores.ranking()
    kept = Journal(journal, [*depends_on(lm, config, config.cases), ranking])
    counts = [round(share * len(ranking)) for share in config.shares]
    rows, sets = experiment.choices(lm.shape, {experiment.COPY: ranking}, counts, config.draws,
                                    config.seed)
    for case, answer in experiment.found_answers(lm, config.cases, kept):
        runs = experiment.TwoRuns(lm, case, answer) if answer else None
        kept[case.id] = {"sets": pd.concat([
            runs.sets(way, rows, sets[:, None]) for way
            in (experiment.RESTORE, experiment.REMOVE, experiment.ZERO)
        ]).to_dict("list")} if runs else {}
    return experiment.joined(experiment.answers(lm, config.cases, kept), "sets")


def planned(plan: Plan) -> Iterator[Run]:
    """Yield the run of each model."""
    cases, heads = plan.content["cases"], plan.content["heads"]
    needles = real_models().content["needles"]
    asked = load_needles(CORPORA["book"] / LITERAL)[needles["choosing"]:][:needles["asked"]]
    for model in plan.content["models"]:
        yield Run(model, RealExchangeConfig(
            detect=detection(),
            cases=DetectConfig(
                lengths=tuple(cases["lengths"]), depths=tuple(cases["depths"]),
                needles=tuple(asked), max_new_tokens=cases["max_new_tokens"]),
            shares=tuple(heads["counts"]), draws=heads["draws"], seed=heads["seed"]))


def _inputs(run: Run) -> dict[str, str]:
    ref = ModelRef(run.model)
    return inputs_of(ref.identity, run.config.detect, ref.corpus) | {
        "cases": digest(inputs_of(ref.identity, run.config.cases, ref.corpus))}


def _make(run: Run, folder: Path) -> dict[str, Any]:
    lm = ModelRef(run.model).load()
    scores, _ = detect_stored(lm, run.config.detect, compute="never")
    found = exchanged_sets(lm, scores, run.config, journal=folder / JOURNAL)
    write_tables({"sets": found}, folder)
    return {"needles": int(found["needle"].nunique())}


REAL_EXCHANGES = Experiment[Run, Artifact](
    name="real-exchanges", config=RealExchangeConfig, plan="is_it_causal_real", planned=planned,
    keys=("model",), make=_make, inputs=_inputs, notebook="is_it_causal",
    parameter="compute_real")
