"""What the chapter says masked models get wrong: prompts passed, failed, and beyond a control."""

from __future__ import annotations

import math
from collections.abc import Collection

from rmutils.book.chapters.failure_modes.experiment import WHOLE, FailureModes
from rmutils.book.claims.effects.masking_effects import failure_blind_spot
from rmutils.book.findings.registry import NONE, Measured, declare
from rmutils.book.verdicts import Effect
from rmutils.core.errors import NotStored
from rmutils.heads.masking import MATCHED
from rmutils.stats import Interval, holm

STORED, LIVE = "fig-failure-shares", "fig-failure-live"
RETRIEVAL, ANYWHERE = "retrieval", "non-retrieval"
MASKS = {WHOLE: "no heads masked", RETRIEVAL: "its retrieval heads masked",
         ANYWHERE: "random heads masked", MATCHED: "other heads of the same layers masked"}


def _effect(modes: FailureModes, kind: str, more: str, less: str,
            artifacts: Collection[str]) -> Effect:
    rows = modes.losses().set_index(["kind", "more", "less"])
    if (kind, more, less) not in rows.index:
        raise NotStored(f"No prompts of the kind {kind} were asked with {MASKS[more]} and with "
                        f"{MASKS[less]}.")
    prompts = modes.table.loc[modes.table["kind"] == kind, "prompt"].nunique()
    return Effect.of(Interval(*rows.loc[(kind, more, less), ["value", "low", "high"]]),
                     "share of prompts", artifacts, prompts,
                     blind=failure_blind_spot(modes, kind))


@declare("prompts-failed", unit="points", place=STORED, otherwise=(
    "With {masked}, {model} fails {value} points more of the prompts of the kind {kind} {ci}: "
    "{verdict}."))
def prompts_failed(modes: FailureModes, model: str, artifacts: Collection[str], kind: str,
                   masked: str) -> Measured:
    """Prompts of a kind that the whole model passes, minus those that a masked one passes."""
    return Measured.of(_effect(modes, kind, WHOLE, masked, artifacts), 100, model=model, kind=kind,
                       masked=MASKS[masked])


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
    found = Measured.of(effect, 100, model=model, kind=kind, control=MASKS[control])
    return Measured(found.found, found.artifacts, effect.clusters, p.get(kind, math.nan),
                    found.verdict, found.words)


@declare("responses-that", unit="percent", place=STORED, otherwise=(
    "With {masked}, {value} % of the responses of {model} to the kind {kind} are: {outcome}."))
def responses_that(modes: FailureModes, model: str, artifacts: Collection[str], kind: str,
                   masked: str, outcome: str) -> Measured:
    """Share of the responses to a kind of prompt that have an outcome."""
    rows = modes.shares(outcome).set_index(["kind", "masked"])
    if (kind, masked) not in rows.index:
        raise NotStored(f"No prompts of the kind {kind} were asked with {MASKS[masked]}.")
    found = Interval(*(100 * rows.loc[(kind, masked), ["value", "low", "high"]]))
    return Measured(found, artifacts, int(rows.loc[(kind, masked), "prompts"]), verdict=NONE,
                    words={"model": model, "kind": kind, "masked": MASKS[masked],
                           "outcome": outcome})
