"""What was found about trainings, in sentences computed from the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rmutils.book.figures.report import join, number
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.stats import ANY, SHARE, Bounds, interval

LAST_STEPS = 5
"""Steps at the end of a training over which rewards are averaged: a single batch says little."""


def method(runs: Mapping[str, Sequence[RetMaskRun]]) -> list[str]:
    """Say how often masking changes an answer, where the loss begins, and which answer moves."""
    stored = {model: own for model, own in runs.items() if own}
    if not stored:
        return ["No run of RetMask is stored, so nothing can be said of its pairs."]

    def over_runs(measure: Callable[[RetMaskRun], float], bounds: Bounds = ANY) -> str:
        return join(f"{number(*interval(list(map(measure, own)), bounds=bounds))} on `{model}`"
                    for model, own in stored.items())

    def share(run: RetMaskRun) -> float:
        return len(run.pairs) / int(run.artifact.manifest["config"]["instructions"])

    def reward(side: str) -> Callable[[RetMaskRun], float]:
        return lambda run: float(run.curve[f"{side}_reward"].tail(LAST_STEPS).mean())

    every = [run for own in stored.values() for run in own]
    exact, rounded = ([abs(run.curve["loss"][0] - math.log(2)) for run in every
                       if (run.artifact.manifest["config"]["recipe"]["precision"]
                           == "float32") == full] for full in (True, False))
    chosen, rejected = reward("chosen"), reward("rejected")
    falls = all(rejected(run) < -abs(chosen(run)) for run in every)
    much = "most" if min(map(share, every)) > 0.5 else "some"
    return [
        f"**Masking the retrieval heads changes {much} answers.** The share of "
        "instructions that become a pair, because both answers differ, is "
        f"{over_runs(share, SHARE)} (95 % intervals over runs).",
        "**Every training starts at a loss of log 2 = 0.6931**, because the model starts as its "
        f"own reference: {len(exact)} stored trainings in float32 differ from it by "
        f"{max(exact, default=0):.1g} at most"
        + (f", {len(rounded)} in bfloat16, which rounds, by {max(rounded):.1g}." if rounded
           else "."),
        ("**Training mostly unlearns the rejected answers.** " if falls else "")
        + "At the end of training the reward (β times the change of log-probability) of rejected "
        f"answers is {over_runs(rejected)}; that of chosen answers is {over_runs(chosen)}.",
    ]
