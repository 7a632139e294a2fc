"""Counts behind appendix H: how often a masked model loses a name, a format or its reasoning.

The appendix shows one prompt of each kind with the responses of three models: whole, without its
retrieval heads, without as many others. Here the same three answer many prompts.

Failures, counted: shares with intervals, paired differences, and examples by a rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.core.config import Config, added, digest, run_notebook
from rmutils.core.errors import UserError
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
from rmutils.stats import DIFFERENCE, SHARE, Bounds, interval

FAILURE_MODES = Stage[Tables]("failure-modes", version=1)
WHOLE = "nothing"
"""Name of the mask of the whole model."""
PAPER: tuple[Policy, ...] = ("retrieval", "non-retrieval")
"""Masks of the appendix."""
Masks = Mapping[str, Sequence[Sequence[Head]]]
"""Masks by name, such as `retrieval` -> a set of heads for each draw."""


class FailureConfig(Config):
    """Which heads are masked and what is asked. The paper counts nothing here: the sizes are ours.
    """

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


def failure_modes(
    lm: LanguageModel, masks: Masks, config: FailureConfig, journals: Path | None = None
) -> FailureModes:
    """Ask each masked model, and the whole one beside `retrieval`, and check what they say.

    Responses are greedy, so that nothing but the heads differs. Where the model can think, it does
    for reasoning chains and for nothing else.

    `config`: Only `prompts`, `seed`, `max_new_tokens` and `kinds` are of use here.
    """
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


def failure_modes_stored(
    name: str, config: FailureConfig = FailureConfig(), *, compute: Compute = "auto"
) -> tuple[FailureModes, Artifact]:
    """`failure_modes` of a model by its name or folder, but stored responses are read instead.

    Responses are kept, not what came out of them: they are checked when they are read. The
    detection of `config.grid` is looked up likewise, and run if it is not stored.
    """
    scores, _ = detect_stored(name, config.grid, compute="never" if compute == "never" else "auto")
    masks, prompts = config.masks(scores), failure_prompts(config.prompts, config.seed,
                                                           corpus_of(name))

    def make(journal: Path) -> Tables:
        found = failure_modes(load_model(name), masks, config, journal.parent).table
        return {"responses": found.drop(columns=["outcome", "passed"])}

    inputs = {"model": identify(name), "heads": digest(masks),
              "prompts": digest([prompt.text for prompt in prompts])}
    tables, artifact = FAILURE_MODES.obtain(
        config, inputs, make, compute=compute, command=chapter_command(name, config), model=name)
    return FailureModes.of(prompts, tables["responses"]), artifact


def chapter_command(name: str, config: FailureConfig) -> str:
    """Return the command that runs the chapter with these parameters."""
    return run_notebook("08_failure_modes", {
        "model": name, "compute": "auto", **config.differences(FailureConfig(
            policies=config.policies, kinds=config.kinds))})  # the chapter asks under all masks


@dataclass(frozen=True)
class FailureModes:
    """Responses to the same prompts, each with what came out.

    `table`: A row per response: `prompt` (index of the prompt), `kind`, `form`, `masked` (`nothing`
    or a key of the masks), `draw`, `text`, `finished` (False if it was cut), `outcome`, `passed`.
    """

    prompts: tuple[FailurePrompt, ...]
    table: pd.DataFrame

    @classmethod
    def of(cls, prompts: Sequence[FailurePrompt], responses: pd.DataFrame) -> FailureModes:
        """Check responses (the columns up to `finished`)."""
        found = [outcome(prompts[i], text)
                 for i, text in zip(responses["prompt"], responses["text"], strict=True)]
        first = responses["kind"].map(lambda kind: OUTCOMES[kind][0])
        return cls(tuple(prompts), responses.assign(outcome=found, passed=found == first))

    def beside(self, other: FailureModes) -> FailureModes:
        """These responses and those of other masks to the same prompts."""
        if self.prompts != other.prompts:
            raise UserError("the responses answer different prompts.")
        return FailureModes(self.prompts, pd.concat([self.table, other.table], ignore_index=True))

    def shares(self, result: str | None = None, by: str = "kind") -> pd.DataFrame:
        """Share of each masked model's responses that pass, or have another outcome.

        Result: The column `by`, `masked`, `prompts`, `value`, `low`, `high` (95 % bootstrap over
        prompts and over draws of heads).
        """
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
        """Paired differences in the share that passes: `more` less `less`, the same prompts.

        Columns: `kind`, `more`, `less` (what is masked), `value`, `low`, `high`. Layer-matched
        masks come last, if there are any.
        """
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
        """The first prompt, in the order of the seed, that the whole model passes and the masked
        one (its first draw) does not; None if there is none."""
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
