"""What the chapter on models of one's own says: needles without the heads, and the known gains."""

from __future__ import annotations

from rmutils.book.chapters.your_own_model.experiment import Forecast, OwnModel, curves
from rmutils.book.findings.registry import Measured, declare
from rmutils.core.errors import NotStored
from rmutils.stats import Interval

FORECAST = "fig-own-forecast"


@declare("own-measure", unit="percent", place="fig-own-large", otherwise=(
    "{model}: {what} is {value} % {ci} with {heads} heads masked."))
def own_measure(own: OwnModel, what: str, masked: bool) -> Measured:
    """A measure of the sweep, of the whole model or without its retrieval heads."""
    heads = own.reached if masked else 0
    curve = curves(own)[what]
    at = curve[(curve["policy"] == "retrieval") & (curve["count"] == heads)]
    if at.empty:
        raise NotStored(f"The sweep of {own.name} has no step at {heads} heads.")
    return Measured(Interval(*(100 * at.iloc[0][["value", "low", "high"]].astype(float))),
                    [own.artifacts[-1].name], verdict="",
                    words={"model": own.name, "what": what, "heads": heads})


@declare("gain-by-sparsity", unit="points", place=FORECAST, otherwise=(
    "Per tenth of the Gini coefficient, gains of {kind} differ by {value} points {ci}: {verdict}."))
def gain_by_sparsity(one: Forecast, kind: str) -> Measured:
    """Slope of gain against sparsity over models on which both are known, per tenth."""
    nan, line = float("nan"), one.line
    ends = line.slope if line else (nan, nan, nan)
    return Measured(Interval(*(end / 10 for end in ends)), [], len(one.known),
                    words={"kind": kind})
