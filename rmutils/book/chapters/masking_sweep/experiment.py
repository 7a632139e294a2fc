"""Which heads are masked along a sweep: ever more of the highest, and as many random others."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from rmutils.book.experiments import sweep_questions as about
from rmutils.book.experiments.planned_runs import layer_matched
from rmutils.core.config import Config, added, digest, run_notebook
from rmutils.core.errors import NotStored, UserError
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.corpora.world.knowledge import instructions
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.tasks import TASKS
from rmutils.evaluation.answers import speak
from rmutils.evaluation.teaching_card import DETECTION
from rmutils.heads.detection import DetectConfig, depends_on, detect_stored, even_depths, inputs_of
from rmutils.heads.masking import MATCHED, draw_layer_matched, mask_heads
from rmutils.heads.scores import DECIMALS, Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef, corpus_of

SweepPolicy = Literal["whole", "retrieval", "non-retrieval", "layer-matched-non-retrieval"]
PAPER: tuple[SweepPolicy, ...] = ("whole", "retrieval", "non-retrieval")
"""Policies of the sweeps that were stored before there were layer-matched draws."""


@dataclass(frozen=True)
class Masking:
    """Heads that are masked together."""

    # None, the highest ones, or random others, from anywhere or from the same layers.
    policy: SweepPolicy
    draw: int  # which of the random choices; 0 for the other policies
    heads: tuple[Head, ...]

    @property
    def key(self) -> dict[str, str | int]:
        """`policy`, `draw` and `count`, which tell it from all others of a plan."""
        return {"policy": self.policy, "draw": self.draw, "count": len(self.heads)}


def count_at(scores: HeadScores, tau: float) -> int:
    """Number of heads with a mean score of at least `tau`."""
    return int((scores.mean.round(DECIMALS) >= tau).sum())


def masking_plan(scores: HeadScores, counts: Collection[int], *, taus: Collection[float],
                 draws: int, seed: int, policies: Collection[SweepPolicy] = PAPER) -> list[Masking]:
    """The whole model, then for each count the highest heads and random others."""
    ranking = scores.ranking()
    reached = [count_at(scores, tau) for tau in taus]
    plan = [Masking("whole", 0, ())]
    for count in sorted({*counts, *reached} - {0}):
        if count > len(ranking):
            raise UserError(f"{count} heads are to be masked, but {scores.model} has "
                            f"{len(ranking)}. Choose counts up to that.")
        plan.append(Masking("retrieval", 0, tuple(ranking[:count])))
        spared = ranking[:max(count, *reached)]
        if len(ranking) - len(spared) > count:
            for draw in range(draws):
                plan.append(Masking("non-retrieval", draw, tuple(scores.select_random(
                    count, exclude=spared, seed=seed + draw))))
                plan.append(Masking(MATCHED, draw, tuple(draw_layer_matched(
                    scores.shape, ranking[:count], exclude=spared, seed=seed + draw))))
    return [masking for masking in plan if masking.policy in policies]


CHAPTER = "02_masking_sweep"
TABLES = ("screening", "answers", "speech")
SEED = "masking sweep"
"""Seed of the invented worlds that are asked about. Those of the screening are others."""
GRIDS = {"world": DETECTION,
         "book": DetectConfig(lengths=(256, 512, 768, 1024, 1536, 2048, 3072, 4096),
                              depths=even_depths(10))}
"""Corpus -> grid of the detection that says which heads are the highest. The grid of the book takes
an hour on two cores, and ships for `smollm2-135m`: see `scored`."""


class SweepConfig(Config):
    """The numbers of heads to mask, and the questions to ask."""

    counts: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (4, 8, 16, 64)
    """How many heads are masked; the whole model and the counts of `taus` are added."""
    taus: Annotated[tuple[float, ...], Field(min_length=1)] = (0.05, 0.1)
    """Appendix A: "We tune the threshold tau from {0.05, 0.10} for each model"."""
    draws: Annotated[int, Field(ge=1)] = 3
    """Random choices of other heads for each count."""
    seed: int = 42
    """Seed of the first of them; 42 in the authors' `mask_retrieval_head.py`."""
    length: Annotated[int, Field(ge=1)] = 256
    """Most tokens of long prompts."""
    depths: Annotated[tuple[float, ...], Field(min_length=1)] = (0.5,)
    """Depths of needles in a haystack, from 0 (start of the context) to 1 (its end)."""
    needles: Annotated[int, Field(ge=1)] = 12
    """How many needles of the corpus, from its start."""
    samples: Annotated[int, Field(ge=1)] = 5
    """Questions of each task over a long text; as many others decide whether it is in reach."""
    short: Annotated[int, Field(ge=1)] = 15
    """Short questions about things known by heart, and short passages of plain text."""
    speeches: Annotated[int, Field(ge=1)] = 8
    """Short instructions whose answers are looked at as text."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 48
    """Longest answer."""
    temperature: Annotated[float, Field(ge=0)] = 0.6
    """Temperature of these answers: 0.6 in the authors' scripts that sample responses. All other
    answers are greedy."""
    policies: tuple[SweepPolicy, ...] = added(PAPER)
    """Which heads are masked. `layer-matched-non-retrieval` are as many random others as the
    highest heads in the same layers, which the paper does not mask."""

    @property
    def grid(self) -> DetectConfig:
        """The needles in a haystack."""
        return DetectConfig(lengths=(self.length,), depths=self.depths, needles=self.needles,
                            max_new_tokens=self.max_new_tokens)


@dataclass(frozen=True)
class Sweep:
    """The measurements. `policy`, `draw` and `count` are those of `Masking.key`."""

    # What the whole model can do: see `rmutils.book.experiments.sweep_questions.screen`.
    screening: pd.DataFrame
    # `policy`, `draw`, `count`, then the columns of `experiments.sweep_questions.ask`.
    answers: pd.DataFrame
    # `policy`, `draw`, `count`, then the columns of `rmutils.evaluation.answers.speak`.
    speech: pd.DataFrame

    def beside(self, other: Sweep) -> Sweep:
        """This sweep with the maskings of another one that asked the same questions."""
        tables = {}
        for name in TABLES[1:]:
            own, more = getattr(self, name), getattr(other, name)
            more = more[more["policy"] != "whole"]
            asked = [set(table[["task", "sample"]].itertuples(index=False, name=None))
                     for table in (own, more)]
            if asked[0] != asked[1]:
                raise UserError("the two sweeps asked different questions.")
            tables[name] = pd.concat([own, more], ignore_index=True)
        return Sweep(self.screening, **tables)


SWEEP = Stage.of_tables("masking-sweep", 1, Sweep, lambda result: {
    "answers": len(result.answers), "speech": len(result.speech)})


def sweep(lm: LanguageModel, scores: HeadScores, config: SweepConfig = SweepConfig(), *,
          journal: Path | None = None) -> Sweep:
    """Ask the same questions of a model under every masking."""
    plan = {json.dumps(masking.key): masking for masking in masking_plan(
        scores, config.counts, taus=config.taus, draws=config.draws, seed=config.seed,
        policies=config.policies)}
    kept = Journal(journal, [*depends_on(lm, config, config.grid), scores.mean.tolist()])
    if "screening" not in kept:
        kept["screening"] = _rows(about.screen(lm, _samples(lm, config, f"{SEED}, screening"),
                                               config.max_new_tokens))
    screening = pd.DataFrame(kept["screening"])
    within_reach = set(screening.loc[screening["within_reach"], "task"])
    questions = about.needle_questions(lm, config.grid)
    for name, samples in _samples(lm, config, SEED, within_reach).items():
        questions += about.sample_questions(lm, name, samples)
    talk = instructions(config.speeches, SEED, "held_out")
    todo = [name for name in plan if name not in kept]
    with progress_bar(f"masking sweep of {lm.name}", len(plan), unit="maskings",
                      done=len(plan) - len(todo)) as advance:
        for name in todo:
            heads = plan[name].heads
            with mask_heads(lm, heads):
                answers = pd.concat([about.ask(lm, questions, config.max_new_tokens),
                                     about.read_on(lm, config.short)])
            speech = speak(lm, heads, talk, max_new_tokens=config.max_new_tokens,
                           temperature=config.temperature, seed=config.seed)
            kept[name] = {"answers": _rows(answers), "speech": _rows(speech)}
            advance(1)
    return Sweep(screening, *(
        pd.DataFrame([masking.key | row for name, masking in plan.items()
                      for row in kept[name][table]]) for table in TABLES[1:]))


def _samples(lm: LanguageModel, config: SweepConfig, seed: str,
             kinds: Collection[str] = (*TASKS, about.BY_HEART)) -> dict[str, list[Sample]]:
    tasks = {kind: about.task_samples(lm, kind, config.samples, config.length, seed)
             for kind in TASKS if kind in kinds}
    by_heart = {about.BY_HEART: about.by_heart_samples(config.short, seed)}
    return tasks | (by_heart if about.BY_HEART in kinds else {})


def _rows(table: pd.DataFrame) -> list[dict]:
    return table.to_dict("records")


def scored(model: str, *, compute: Compute = "auto") -> tuple[HeadScores, Artifact]:
    """The scores of a model's heads by which this book sweeps it."""
    corpus = corpus_of(model)
    if compute == "auto" and corpus == "book":
        with suppress(NotStored):
            return detect_stored(model, GRIDS[corpus], compute="never")
        return detect_stored(model)
    return detect_stored(model, GRIDS[corpus], compute=compute)


def shown_sweep(model: str, *, compute: Compute = "never") -> tuple[
        Sweep, HeadScores, list[Artifact]]:
    """Return the sweep of a model that the book shows, with its same-layer control."""
    scores, _ = scored(model, compute=compute)
    own, artifact = sweep_stored(model, scores, compute=compute)
    counts = tuple(layer_matched(CHAPTER)["models"].get(model, SweepConfig().counts))
    matched, more = sweep_stored(
        model, scores, SweepConfig(counts=counts, policies=("whole", MATCHED)), compute=compute)
    return own.beside(matched), scores, [artifact, more]


def sweep_stored(model: str, scores: HeadScores, config: SweepConfig = SweepConfig(), *,
                 compute: Compute = "auto", command: str | None = None) -> tuple[Sweep, Artifact]:
    """`sweep` of a model by its name, but a stored result is read instead."""

    ref = ModelRef(model)
    inputs = inputs_of(ref.identity, config.grid, ref.corpus) | {
        "scores": digest(scores.mean.round(DECIMALS).tolist())}
    changed = {"counts": json.dumps(config.counts)} | config.differences(
        SweepConfig(policies=config.policies))  # the chapter computes all of them
    return SWEEP.obtain(
        config, inputs, lambda journal: sweep(ref.load(), scores, config, journal=journal),
        compute=compute, model=model,
        command=command or run_notebook(CHAPTER, {"model": model, **changed}))
