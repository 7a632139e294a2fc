"""What a report says of a model: sentences, a forecast of RetMask's gain, and all its numbers."""

from __future__ import annotations

import json
from contextlib import suppress

import pandas as pd

from rmutils import report
from rmutils.errors import NotStored
from rmutils.evaluation import sweep_curves as along
from rmutils.evaluation.designed_gains import points
from rmutils.evaluation.designs import design_stored, designs
from rmutils.evaluation.forecast import Forecast, forecast
from rmutils.evaluation.own_model import OwnModel
from rmutils.evaluation.sweep_questions import HAYSTACK, NEXT_WORDS
from rmutils.paper.sparsity_gains import sparsity_gains

SPARSITY = "gini"
"""The measure by which gains are foretold: that of chapter 5, named there before its models were
trained."""
DESIGNED, PAPER = "models by design", "the paper's models"
NO_CHAT = ("A model without a chat template cannot be given instructions, and RetMask trains on "
           "answers to instructions. So nothing was masked, and no gain can be foretold.")


def forecasts(own: OwnModel) -> dict[str, Forecast]:
    """What the designed models and the paper's foretell for a model; only what is stored counts."""
    found = {}
    for name, config in designs().items():
        with suppress(NotStored):
            found[name] = design_stored(config, compute="never")
    designed = points(found, SPARSITY) if found else pd.DataFrame()
    return {kind: forecast(known, sparsity_of(own)) for kind, known in
            ((DESIGNED, designed), (PAPER, sparsity_gains(SPARSITY)))}


def findings(own: OwnModel, found: dict[str, Forecast]) -> list[str]:
    """What was found, in sentences, the forecast last."""
    heads, cases = own.scores.mean.size, len(own.scores.cases)
    told = [f"It finds {len(own.scores.runs)} of {cases} needles. {own.reached} of its {heads} "
            f"heads ({100 * own.reached / heads:.0f} %) reach τ = {own.tau:g}."]
    if own.sweep is None:
        return [*told, NO_CHAT]
    if own.reached:
        told.append(_without_heads(own))
    else:
        told.append("RetMask masks the heads that reach τ. Here there is none to mask, so RetMask "
                    "cannot be run with this τ.")
    return told + [foretold(kind, one) for kind, one in found.items()]


def foretold(kind: str, one: Forecast) -> str:
    """A forecast in words, or why there is none."""
    if one.reasons:
        gains = one.known["gain"]
        return (f"Judged by {kind}, no forecast: {'; '.join(one.reasons)}." + (
            f" All that can be said: their gains lie between {gains.min():.1f} and "
            f"{gains.max():.1f} points." if len(gains) > 1 else ""))
    return (f"Judged by {kind}, RetMask would change its long-context score by "
            f"{report.number(one.value, one.low, one.high)} points (95 % prediction interval).")


def _without_heads(own: OwnModel) -> str:
    parts = []
    for name, curve in curves(own).items():
        at = curve[(curve["policy"] == "retrieval") & curve["count"].isin((0, own.reached))]
        if len(at) == 2:
            whole, masked = (report.number(*row) for row in
                             at.sort_values("count")[["value", "low", "high"]].to_numpy())
            parts.append(f"{name} from {whole} to {masked}")
    return (f"Without these {own.reached} heads: " + "; ".join(parts) + "." if parts else
            f"The sweep has no step at {own.reached} heads; see the figure for its neighbours.")


def as_json(own: OwnModel, found: dict[str, Forecast]) -> str:
    """All numbers of the page."""
    interval = own.scores.interval()
    reached = own.scores.ranking()[: own.reached]
    return json.dumps({
        "model": own.name, "facts": own.facts, "tau": own.tau,
        "needles": {"asked": len(own.scores.cases), "found": len(own.scores.runs)},
        "heads": [{"layer": layer, "head": head, "score": own.scores.mean[layer, head],
                   "low": interval[layer, head, 0], "high": interval[layer, head, 1]}
                  for layer, head in reached],
        "sparsity": _records(own.sparsity[["statistic", "value", "low", "high"]]),
        "sweep": {name: _records(curve) for name, curve in curves(own).items()},
        "forecast": {} if own.sweep is None else {kind: {
            "models": one.models, "gain": _records(pd.DataFrame(
                [[one.value, one.low, one.high]], columns=["value", "low", "high"]))[0],
            "is_forecast": not one.reasons, "reasons_against": list(one.reasons)}
            for kind, one in found.items()},
        "artifacts": [artifact.name for artifact in own.artifacts],
    }, indent=1, ensure_ascii=False) + "\n"


def curves(own: OwnModel) -> dict[str, pd.DataFrame]:
    """What masking costs: a curve (see `rmutils.evaluation.sweep_curves.curve`) for needles found,
    next words and repetition; none without a sweep."""
    if own.sweep is None:
        return {}
    shares = along.share_curves(own.sweep)
    kept = {"needles found": shares[HAYSTACK], NEXT_WORDS: shares[NEXT_WORDS]}
    return kept | {along.REPETITION: along.speech_curves(own.sweep)[along.REPETITION]}


def sparsity_of(own: OwnModel) -> tuple[float, float, float]:
    """Of a model, with the ends of its 95 % interval."""
    row = own.sparsity.set_index("statistic").loc[SPARSITY]
    return row["value"], row["low"], row["high"]


def _records(frame: pd.DataFrame) -> list[dict]:
    return json.loads(frame.to_json(orient="records"))  # numbers that are none become null
