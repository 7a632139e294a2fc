"""What was found about trainings, in sentences computed from the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd

from rmutils.book.chapters.main_tables.experiment import able_to_differ
from rmutils.book.figures.report import join, number
from rmutils.book.verdicts import ALPHA, SHOWN, Claimed, Effect, answers
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.preference.strategies import STRATEGIES
from rmutils.stats import ANY, SHARE, Bounds, Interval, interval


def _interval(row: pd.Series) -> Interval:
    return Interval(row["effect"], row["low"], row["high"])


def _on_models(tables: Mapping[str, pd.DataFrame], strategy: str) -> str:
    """List a strategy's effect on each model, where it is stored."""
    found = {model: table.set_index("strategy").loc[strategy] for model, table in tables.items()
             if strategy in set(table.get("strategy", ()))}
    return join(f"{number(*_interval(row))} on `{model}`" for model, row in found.items())


def _tally(tables: Sequence[pd.DataFrame], p: str | None = "p_holm") -> tuple[int, int, int]:
    """Count what lies above zero, below zero, and in all: by the interval, and by a column p of the
    tables as well."""
    rows = pd.concat(tables)
    sure = rows[p] <= ALPHA if p else rows["low"].notna()
    return (int((sure & (rows["low"] > 0)).sum()), int((sure & (rows["high"] < 0)).sum()),
            len(rows))


def main_contrasts(
    less: Mapping[str, pd.DataFrame], gained: Mapping[str, pd.DataFrame],
    room: Mapping[str, Effect], control: str = "non-retrieval-mask",
) -> list[str]:
    """Say by how much RetMask gains more than other trainings, and over no training."""
    less = {model: table for model, table in less.items() if len(table)}
    if not less or not gained:
        return ["No two trainings of one model are stored, so nothing can be compared."]
    above, below, count = _tally(list(less.values()))
    better, worse, _ = _tally(list(less.values()), p=None)
    own_above, own_below, models = _tally(
        [table[table["strategy"] == "retmask"] for table in gained.values()])
    return [
        f"**In {count - above - below} of {count} comparisons we cannot tell RetMask from another "
        f"training{f'; it is better in {above} and worse in {below}' * bool(above + below)}**, "
        "with p corrected for the comparisons of a model. By the intervals alone, it would be "
        f"better in {better} and worse in {worse}.",
        f"The difference from {STRATEGIES[control].name}, which masks as many *other* heads, in "
        f"points: {_on_models(less, control)} (95 % intervals, before any correction).",
        f"Compared with the model before training, RetMask measurably raises the mean score in "
        f"{own_above} of {models} models and lowers it in {own_below}; the difference in points: "
        f"{_on_models(gained, 'retmask')}." + "".join(
            f" {_raised(model, table, room)}" for model, table in gained.items()
            if _tally([table[table["strategy"] == "retmask"]])[0]),
    ]


def _raised(model: str, table: pd.DataFrame, room: Mapping[str, Effect]) -> str:
    """Say what stands beside a gain by RetMask: the other trainings, and the categories with room.
    """
    above, _, count = _tally([table[table["strategy"] != "retmask"]])
    also = f"{f'all {count}' if above == count else f'{above} of {count}'} other trainings"
    told = f"On `{model}`, {also} raise it as well"
    if model not in room:
        return f"{told}."
    judged = dict(zip(room, answers([(effect, Claimed(above=0)) for effect in room.values()]),
                      strict=True))[model]
    effect = room[model]
    verdict = "shown" if judged.verdict == SHOWN else judged.verdict
    return (f"{told}; over the categories with room for a gain, RetMask's gain is "
            f"{verdict}: {_scaled(effect, 1)} "
            f"(p = {judged.p:.2g}, corrected for {len(room)} models).")


def strengths(
    sizes: Mapping[str, pd.DataFrame],
    controls: Sequence[str] = ("non-retrieval-mask", "random-mask"),
) -> str:
    """Say how many of RetMask's pairs and training steps the other masks have.

    `sizes`: Model -> `strategy`, `pairs` and `steps` of each training
    (`rmutils.book.chapters.main_tables.experiment.Evaluated`).
    """
    lines = []
    for model, table in sizes.items():
        means = table.groupby("strategy").mean()
        there = [control for control in controls if {control, "retmask"} <= {*means.index}]
        shares = {control: means.loc[control] / means.loc["retmask"] for control in there}
        told = join(f"{share['pairs']:.0%} and {share['steps']:.0%} for {STRATEGIES[control].name}"
                    for control, share in shares.items()) if there else ""
        lines += [f"on `{model}` {told}"] if told else []
    return ("The trainings also differ in strength: where both answers are equal there is no pair. "
            "Pairs and training steps under other masks, as shares of RetMask's: "
            + "; ".join(lines) + "." if lines else
            "No training under other masks is stored beside RetMask.")


WITHOUT = {"rc-removed": "Removing the thoughts from the pairs",
           "rc-un-generated": "Making the pairs without thoughts"}
"""What was done to the pairs of a strategy."""


def reasoning_kinds(
    less: pd.DataFrame, gained: pd.DataFrame, blind: Collection[str] = ()
) -> list[str]:
    """Say what pairs without reasoning change, beside whole ones."""
    if less.empty or gained.empty:
        return ["Trainings on all three kinds of pairs are not stored, so nothing can be compared."]
    few = [*dict.fromkeys(less.loc[less["p"].isna(), "category"])]
    able = able_to_differ(less, blind)
    if able.empty:
        return ["In no category could a difference have been shown."]
    lines = []
    for strategy, part in able.groupby("strategy", sort=False):
        worse, better, count = _tally([part])
        found = (f"does worse than whole pairs in {worse} and better in {better} of" if
                 worse + better else "makes no detectable difference in any of")
        sure, (below, above, _) = (worse, better), _tally([part], p=None)
        lines.append(
            f"**{WITHOUT.get(strategy, STRATEGIES[strategy].name)} {found} {count} categories that "
            "could show one" + (".**" if sure == (below, above) else
                                  f"**; by the intervals alone, it would be worse in {below} and "
                                  f"better in {above}."))
    left = [f"{join(names)}, {why}" for names, why in (
        (sorted(blind), "where the untrained model's score could not have moved"),
        (few, "with too few texts for a test")) if names]
    lines[-1] += (f" Each p is corrected for these {len(able)} comparisons"
                  + (f". Left out: {'; '.join(left)}." if left else "."))
    each = join(f"{number(*_interval(row))} after {STRATEGIES[row['strategy']].name}"
                for _, row in gained.iterrows())
    return [*lines,
            "Compared with the model before training, the mean score changes, in points, by "
            f"{each} (95 % intervals)."]


def _of(effect: Effect) -> Interval:
    return Interval(effect.value, effect.low, effect.high)


def _scaled(effect: Effect, scale: float) -> str:
    return number(*(scale * end for end in _of(effect)))


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
