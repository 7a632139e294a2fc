"""Counts behind appendix H: how often a masked model loses a name, a format or its reasoning."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.book.findings import NONE, Measured, declare
from rmutils.book.verdicts import MARGIN, Effect, blind_spot, names_of, quantity
from rmutils.core.config import Config, added, digest, run_notebook
from rmutils.core.errors import NotStored, UserError
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.evaluation.failure_prompts import (
    OUTCOMES,
    FailureKind,
    FailurePrompt,
    failure_prompts,
    outcome,
)
from rmutils.heads.detection import DetectConfig, detect_stored, even_depths
from rmutils.heads.masking import MATCHED, Policy, choose
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from rmutils.stats import DIFFERENCE, SHARE, Bounds, Interval, holm, interval

FAILURE_MODES = Stage[Tables]("failure-modes", version=1)
WHOLE = "nothing"  # name of the mask of the whole model
PAPER: tuple[Policy, ...] = ("retrieval", "non-retrieval")  # masks of the appendix
Masks = Mapping[str, Sequence[Sequence[Head]]]
"""Masks by name, such as `retrieval` -> a set of heads for each draw."""


class FailureConfig(Config):
    """Which heads are masked and what is asked."""

    lengths: tuple[int, ...] = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
    """Detection that tells the retrieval heads: prompt lengths in tokens."""
    depths: Annotated[int, Field(ge=1)] = 10
    """Its needle depths, evenly from 0 to 1."""
    tau: float = 0.1
    """Lowest score of a retrieval head: "threshold tau = 0.1 for Llama-3.1" (section 4.1)."""
    draws: Annotated[int, Field(ge=1)] = 4
    """Sets of other heads that are masked in turn."""
    mask_seed: int = 42
    """Seed of the first of these sets; the next ones count on. 42 in the authors' scripts."""
    prompts: Annotated[int, Field(ge=1)] = 100
    """Prompts of each kind."""
    seed: int = 0
    """Draws the prompts."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    """Longest response. 2,048 in the authors' scripts, whose instructions ask for more."""
    policies: tuple[Policy, ...] = added(PAPER)
    """Masks of the responses. The whole model answers beside `retrieval`."""
    kinds: tuple[FailureKind, ...] = added(tuple(OUTCOMES))
    """Kinds of prompts that are asked."""

    @property
    def grid(self) -> DetectConfig:
        """The detection."""
        return DetectConfig(lengths=self.lengths, depths=even_depths(self.depths))

    def masks(self, scores: HeadScores) -> dict[str, list[list[Head]]]:
        """The retrieval heads, and as many others in each draw (section 4.1)."""
        seeds = range(self.mask_seed, self.mask_seed + self.draws)
        return {policy: [choose(scores, policy, tau=self.tau, seed=seed)
                         for seed in (seeds[:1] if policy == "retrieval" else seeds)]
                for policy in self.policies}


def failure_modes(lm: LanguageModel, masks: Masks, config: FailureConfig,
                  journals: Path | None = None) -> FailureModes:
    """Ask each masked model, and the whole one beside `retrieval`, and check what they say."""
    prompts = failure_prompts(config.prompts, config.seed, lm.corpus)
    backend, tables = Transformers(lm), []
    whole = {WHOLE: [()]} if "retrieval" in masks else {}
    for masked, draw, heads in [(name, i, heads) for name, draws in {**whole, **masks}.items()
                                for i, heads in enumerate(draws)]:
        for kind in config.kinds:
            asked = {i: prompt for i, prompt in enumerate(prompts) if prompt.kind == kind}
            settings = ResponseConfig(
                heads=tuple(heads), temperature=0, max_new_tokens=config.max_new_tokens,
                thinking=kind == "reasoning chain")
            said = respond(backend, [Instruction.of(p.text) for p in asked.values()], settings,
                           journals and journals / f".{masked}-{draw}.jsonl")
            tables.append(pd.DataFrame({
                "prompt": list(asked), "kind": kind, "form": [p.form for p in asked.values()],
                "masked": masked, "draw": draw, "text": said["text"],
                "finished": said["finished"]}))
    return FailureModes.of(prompts, pd.concat(tables, ignore_index=True))


def failure_modes_stored(name: str, config: FailureConfig = FailureConfig(), *,
                         compute: Compute = "auto",
                         command: str = "") -> tuple[FailureModes, Artifact]:
    """`failure_modes` of a model by its name or folder, but stored responses are read instead.
    Further sets of heads are asked by another `command` than their settings would name."""
    scores, _ = detect_stored(name, config.grid, compute="never" if compute == "never" else "auto")
    masks, prompts = config.masks(scores), failure_prompts(config.prompts, config.seed,
                                                           corpus_of(name))

    def make(journal: Path) -> Tables:
        found = failure_modes(load_model(name), masks, config, journal.parent).table
        return {"responses": found.drop(columns=["outcome", "passed"])}

    inputs = {"model": identify(name), "heads": digest(masks),
              "prompts": digest([prompt.text for prompt in prompts])}
    tables, artifact = FAILURE_MODES.obtain(
        config, inputs, make, compute=compute, command=command or chapter_command(name, config),
        model=name)
    return FailureModes.of(prompts, tables["responses"]), artifact


def chapter_command(name: str, config: FailureConfig, **more: object) -> str:
    """Return the command that runs the chapter with these parameters, and more of its own."""
    return run_notebook("08_failure_modes", {
        "model": name, "compute": "auto", **config.differences(FailureConfig(
            policies=config.policies, kinds=config.kinds)),  # it asks under all masks
        **{parameter: json.dumps(value) for parameter, value in more.items()}})


@dataclass(frozen=True, eq=False)
class FailureModes:
    """Responses to the same prompts, each with what came out."""

    prompts: tuple[FailurePrompt, ...]
    # A row per response: `prompt` (index of the prompt), `kind`, `form`, `masked` (`nothing` or a
    # key of the masks), `draw`, `text`, `finished` (False if it was cut), `outcome`, `passed`.
    table: pd.DataFrame

    @classmethod
    def of(cls, prompts: Sequence[FailurePrompt], responses: pd.DataFrame) -> FailureModes:
        """Check responses (the columns up to `finished`)."""
        found = [outcome(prompts[i], text)
                 for i, text in zip(responses["prompt"], responses["text"], strict=True)]
        first = responses["kind"].map(lambda kind: OUTCOMES[kind][0])
        return cls(tuple(prompts), responses.assign(outcome=found, passed=found == first))

    def beside(self, other: FailureModes) -> FailureModes:
        """These responses and those of other masks, or further draws, to the same prompts."""
        if self.prompts != other.prompts:
            raise UserError("the responses answer different prompts.")
        draws = self.table.groupby(["kind", "masked"])["draw"].max() + 1
        rows = other.table.join(draws.rename("before"), on=["kind", "masked"])
        rows["draw"] += rows.pop("before").fillna(0).astype(int)
        return FailureModes(self.prompts, pd.concat([self.table, rows], ignore_index=True))

    def shares(self, result: str | None = None, by: str = "kind") -> pd.DataFrame:
        """Share of each masked model's responses that pass, or have another outcome."""
        counted = self.table["outcome"] == result if result else self.table["passed"]
        rows = []
        for (group, masked), part in self.table.assign(counted=counted).groupby(
                [by, "masked"], sort=False):
            values = _by_draw(part)
            rows.append({by: group, "masked": masked, "prompts": len(values), **_mean(values)})
        return pd.DataFrame(rows)

    def outcomes(self) -> pd.DataFrame:
        """The share of every outcome: `kind`, `outcome`, and the columns of `shares`."""
        return pd.concat([
            self.shares(result).query("kind == @kind").assign(outcome=result)
            for kind, results in OUTCOMES.items() for result in results], ignore_index=True)

    def losses(self) -> pd.DataFrame:
        """Paired differences in the share that passes: `more` less `less`, the same prompts."""
        compared = [(WHOLE, "retrieval"), (WHOLE, "non-retrieval"), ("non-retrieval", "retrieval"),
                    (WHOLE, MATCHED), (MATCHED, "retrieval")]
        rows = []
        for kind, part in self.table.assign(counted=self.table["passed"]).groupby(
                "kind", sort=False):
            of = {masked: _by_draw(rows_) for masked, rows_ in part.groupby("masked")}
            for more, less in (pair for pair in compared if of.keys() >= {*pair}):
                rows.append({"kind": kind, "more": more, "less": less,
                             **_mean(of[more] - of[less], DIFFERENCE)})
        return pd.DataFrame(rows)

    def repeated(self) -> pd.Series:
        """Share of the prompts of each kind that a response passes which repeats the prompt."""
        return pd.DataFrame([{"kind": prompt.kind, "passed": outcome(prompt, prompt.text)
                              == OUTCOMES[prompt.kind][0]} for prompt in self.prompts]
                            ).groupby("kind", sort=False)["passed"].mean()

    def example(self, kind: str, masked: str) -> int | None:
        """The first prompt that the whole model passes and the masked one does not, or None."""
        first = self.table.query("kind == @kind and draw == 0")
        passed = first.pivot(index="prompt", columns="masked", values="passed")
        found = passed.index[passed[WHOLE] & ~passed[masked]]
        return int(found[0]) if len(found) else None

    def responses(self, prompt: int) -> pd.DataFrame:
        """The rows of one prompt, one for each kind of mask (its first draw)."""
        return self.table.query("prompt == @prompt and draw == 0")


def _by_draw(rows: pd.DataFrame) -> np.ndarray:
    """Column `counted` as (prompts, draws)."""
    return rows.pivot(index="prompt", columns="draw", values="counted").to_numpy(dtype=float)


def _mean(values: np.ndarray, bounds: Bounds = SHARE) -> dict[str, float]:
    """Mean of (prompts, draws), with an interval over both."""
    return interval(values, seeds=True, bounds=bounds, cases=len(values))._asdict()


STORED, LIVE = "fig-failure-shares", "fig-failure-live"
RETRIEVAL, ANYWHERE = "retrieval", "non-retrieval"
MASKS = {WHOLE: "no heads masked", RETRIEVAL: "its retrieval heads masked",
         ANYWHERE: "random heads masked", MATCHED: "other heads of the same layers masked"}
COPIED = "entity name"  # the kind whose task is to copy, so that a response may repeat the prompt


@quantity("without its retrieval heads {model} fails {effect} percentage points more prompts of "
          "the kind “{kind}”", scale=100)
def failures_added(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that masking the retrieval heads loses, minus those it wins."""
    return _lost(model, kind, WHOLE, RETRIEVAL)


@quantity("without as many other heads {model} fails {effect} percentage points more prompts of "
          "the kind “{kind}”", scale=100)
def failures_added_by_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that masking other heads loses, minus those that it wins."""
    return _lost(model, kind, WHOLE, ANYWHERE)


@quantity("without as many other heads of the same layers {model} fails {effect} percentage points "
          "more prompts of the kind “{kind}”", scale=100)
def failures_added_by_same_layers(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that masking other heads of the same layers loses, minus those
    that it wins."""
    return _lost(model, kind, WHOLE, MATCHED)


@quantity("without its retrieval heads {model} fails {effect} percentage points more prompts of "
          "the kind “{kind}” than without the same number of others", scale=100)
def failures_added_beyond_others(model: str, kind: str) -> Effect:
    """Share of prompts that only masking retrieval heads loses, minus those only others lose."""
    return _lost(model, kind, ANYWHERE, RETRIEVAL)


LARGER = "qwen2.5-coder-0.5b"  # the plan's second model
PLANNED = run_notebook("08_failure_modes", {"compute": "auto"})  # asks all that the plan counts


@cache
def planned_failures(model: str, compute: Compute = "never") -> tuple[
        FailureModes, list[Artifact]]:
    """All responses that the plan counts, read once: checking them takes a second."""
    parts = [failure_modes_stored(model, FailureConfig.model_validate(asked), compute=compute,
                                  command=PLANNED)
             for asked in load_plan("more_failures").content["asked"][model]]
    return (reduce(FailureModes.beside, [modes for modes, _ in parts]),
            [artifact for _, artifact in parts])


def _lost(model: str, kind: str, more: str, less: str) -> Effect:
    modes, artifacts = planned_failures(model)
    return _effect(modes, kind, more, less, names_of(artifacts))


@cache
def failure_blind_spot(modes: FailureModes, kind: str) -> str:
    """Why responses of this kind could not have shown it."""
    own = modes.table.query("kind == @kind and masked == @WHOLE")
    right, prompts = OUTCOMES[kind][0], [modes.prompts[i] for i in own["prompt"]]
    echoed = np.mean([outcome(prompt, prompt.text) == right for prompt in prompts])
    if kind != COPIED and echoed > MARGIN / 100:
        return f"{kind}: a response that repeats the prompt passes {echoed:.0%} of the prompts"
    shifted = [*own["text"].iloc[1:], own["text"].iloc[0]]
    chance = np.mean([outcome(prompt, text) == right
                      for prompt, text in zip(prompts, shifted, strict=True)])
    return blind_spot(100 * own["passed"].mean(), 100 * chance, kind, ceiling=False)  # a loss


def _effect(modes: FailureModes, kind: str, more: str, less: str,
            artifacts: Collection[str]) -> Effect:
    rows = modes.losses().set_index(["kind", "more", "less"])
    if (kind, more, less) not in rows.index:
        raise NotStored(f"No prompts of the kind {kind} were asked with {MASKS[more]} and with "
                        f"{MASKS[less]}.")
    prompts = modes.table.loc[modes.table["kind"] == kind, "prompt"].nunique()
    return Effect.of(Interval(*rows.loc[(kind, more, less), ["value", "low", "high"]]),
                     "share of prompts", artifacts, prompts, blind=failure_blind_spot(modes, kind))


@declare("prompts-failed", unit="points", place=STORED, otherwise=(
    "With {masked}, {model} fails {value} points more of the prompts of the kind {kind} {ci}: "
    "{verdict}."))
def prompts_failed(modes: FailureModes, model: str, artifacts: Collection[str], kind: str,
                   masked: str) -> Measured:
    """Prompts of a kind that the whole model passes, minus those that a masked one passes."""
    return Measured.of(_effect(modes, kind, WHOLE, masked, artifacts), 100, masked=MASKS[masked])


@declare("live-prompts-failed", unit="points", place=LIVE, otherwise=(
    "With {masked}, {model} fails {value} points more of the prompts of the kind {kind} {ci}: "
    "{verdict}."))
def live_prompts_failed(modes: FailureModes, model: str, artifacts: Collection[str], kind: str,
                        masked: str) -> Measured:
    """The same of the model that answers while the page is built."""
    return prompts_failed(modes, model, artifacts, kind, masked)


@declare("prompts-failed-beyond", unit="points", place=STORED, otherwise=(
    "With its retrieval heads masked, {model} fails {value} points more of the prompts of the kind "
    "{kind} {ci} than with {control}: {verdict}."))
def prompts_failed_beyond(modes: FailureModes, model: str, artifacts: Collection[str], kind: str,
                          control: str) -> Measured:
    """The same, minus what a control costs; p is corrected over the kinds that can be compared."""
    effect = _effect(modes, kind, control, RETRIEVAL, artifacts)
    asked = modes.table.loc[modes.table["masked"] == control, "kind"].unique()
    able = {name: one for name in asked
            if not (one := _effect(modes, name, control, RETRIEVAL, artifacts)).blocked}
    p = dict(zip(able, holm([one.p(0) for one in able.values()]), strict=True))
    found = Measured.of(effect, 100, control=MASKS[control])
    return replace(found, p=p.get(kind, math.nan))


@declare("responses-that", unit="percent", place=STORED, otherwise=(
    "With {masked}, {value} % of the responses of {model} to the kind {kind} are: {outcome}."))
def responses_that(modes: FailureModes, model: str, artifacts: Collection[str], kind: str,
                   masked: str, outcome: str) -> Measured:
    """Share of the responses to a kind of prompt that have an outcome."""
    rows = modes.shares(outcome).set_index(["kind", "masked"])
    if (kind, masked) not in rows.index:
        raise NotStored(f"No prompts of the kind {kind} were asked with {MASKS[masked]}.")
    row = rows.loc[(kind, masked)]
    return Measured.row(row, artifacts, 100, clusters=int(row["prompts"]), verdict=NONE,
                        masked=MASKS[masked])
