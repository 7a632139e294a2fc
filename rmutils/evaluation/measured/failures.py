"""What masked models fail in, from stored responses (chapter on appendix H)."""

from __future__ import annotations

from functools import cache

from rmutils.artifacts import Artifact
from rmutils.evaluation.claims import Effect
from rmutils.evaluation.failure_counts import WHOLE, FailureModes
from rmutils.evaluation.failure_modes import failure_modes_stored

RETRIEVAL, OTHERS = "retrieval", "non-retrieval"


def failures_added(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without its retrieval heads;
    less those of which the opposite holds."""
    return _lost(model, kind, WHOLE, RETRIEVAL)


def failures_added_by_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the whole model passes, but not without as many other heads;
    less those of which the opposite holds."""
    return _lost(model, kind, WHOLE, OTHERS)


def failures_added_beyond_others(model: str, kind: str) -> Effect:
    """Share of prompts of a kind that the model passes without other heads, but not without its
    retrieval heads; less those of which the opposite holds."""
    return _lost(model, kind, OTHERS, RETRIEVAL)


@cache
def _stored(model: str) -> tuple[FailureModes, Artifact]:
    """Read once: checking all responses takes a second."""
    return failure_modes_stored(model, compute="never")


def _lost(model: str, kind: str, more: str, less: str) -> Effect:
    modes, artifact = _stored(model)
    row = modes.losses().set_index(["kind", "more", "less"]).loc[kind, more, less]
    prompts = modes.table.loc[modes.table["kind"] == kind, "prompt"].nunique()
    return Effect(row["value"], row["low"], row["high"], "share of prompts",
                  (artifact.name,)).of_shares(prompts)
