"""What was found about trainings, in sentences computed from the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from rmutils.figures.report import number
from rmutils.figures.sentences import by_sign, join
from rmutils.paper.verdicts import Effect
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


def _tally(tables: Sequence[pd.DataFrame]) -> tuple[int, int, int]:
    """Count intervals above zero, below zero, and in all."""
    rows = pd.concat(tables)
    return int((rows["low"] > 0).sum()), int((rows["high"] < 0).sum()), len(rows)


def main_contrasts(
    less: Mapping[str, pd.DataFrame], gained: Mapping[str, pd.DataFrame],
    control: str = "non-retrieval-mask",
) -> list[str]:
    """Say by how much RetMask gains more than other trainings, and over no training.

    Parameters
    ----------
    less, gained : mapping
        Model -> table as from `rmutils.experiments.main_tables.contrasts` and `gains`.
    control : str
        The strategy that differs from RetMask in nothing but which heads are masked.
    """
    less = {model: table for model, table in less.items() if len(table)}
    if not less or not gained:
        return ["No two trainings of one model are stored, so nothing can be compared."]
    above, below, count = _tally(list(less.values()))
    own_above, own_below, models = _tally(
        [table[table["strategy"] == "retmask"] for table in gained.values()])
    return [
        f"**RetMask gains more than another training in {above} of {count} comparisons, and less "
        f"in {below}**; the other {count - above - below} intervals include zero.",
        f"The difference to {STRATEGIES[control].name}, which masks as many *other* heads, is "
        f"{_on_models(less, control)} points (95 % intervals).",
        f"Compared with the model before training, RetMask measurably raises the mean score in "
        f"{own_above} of {models} models and lowers it in {own_below}: the difference is "
        f"{_on_models(gained, 'retmask')} points.",
    ]


def reasoning_kinds(less: pd.DataFrame, gained: pd.DataFrame) -> list[str]:
    """Say what pairs without reasoning change, beside whole ones.

    Parameters
    ----------
    less : DataFrame
        As from `contrasts` by category: whole pairs minus each shortened kind.
    gained : DataFrame
        As from `gains`, over all categories.
    """
    if less.empty or gained.empty:
        return ["Trainings on all three kinds of pairs are not stored, so nothing can be compared."]
    lines = []
    for strategy, part in less.groupby("strategy", sort=False):
        better, worse = part[part["high"] < 0], part[part["low"] > 0]
        lines.append(f"{STRATEGIES[strategy].name} does worse in {len(worse)} and better in "
                     f"{len(better)} of {len(part)} categories")
    each = join(f"{number(*_interval(row))} after {STRATEGIES[row['strategy']].name}"
                for _, row in gained.iterrows())
    return [f"**Compared with whole pairs, category by category:** {join(lines)}; the other "
            "intervals include zero.",
            f"Over the model before training, the mean score changes by {each} points (95 % "
            "intervals)."]


def abilities_kept(changed: Mapping[str, pd.DataFrame]) -> list[str]:
    """Say what training does to the tasks that have nothing to do with retrieval.

    Parameters
    ----------
    changed : mapping
        Model -> rows of `rmutils.experiments.general_abilities.changes` for the mean of all tasks.
    """
    tables = {model: table for model, table in changed.items()
              if "retmask" in set(table["strategy"])}
    if not tables:
        return ["No training with RetMask is stored, so nothing can be said."]
    own = {model: table.set_index("strategy").loc["retmask"] for model, table in tables.items()}
    sure = {model: by_sign(_interval(row), "rises", "falls", "open")
            if row["p_holm"] <= 0.05 else "open"  # corrected for the strategies of a model
            for model, row in own.items()}
    moved = ", ".join(f"`{model}` by {number(*_interval(own[model]))} points"
                      for model, what in sure.items() if what != "open")
    still = [row for model, row in own.items() if sure[model] == "open"]
    counts = [*sure.values()]
    others = [table[table["strategy"] != "retmask"] for table in tables.values()]
    above, below, count = _tally(others)
    return [
        f"**After RetMask, the mean over tasks that could show a loss falls in "
        f"{counts.count('falls')} of {len(own)} models and rises in {counts.count('rises')}**"
        + (f": on {moved}." if moved else "."),
        *([f"Where it does neither, it changes by {_range(still, 'effect')} points; the smallest "
           f"detectable change there is {_range(still, 'smallest_effect')} points."]
          if still else []),
        f"Of the intervals of {count} other trainings, {above} lie above zero and {below} below "
        "it, before any correction for their number."]


def _range(rows: Sequence[pd.Series], column: str) -> str:
    """Name the lowest and the highest of some values; one where they read alike."""
    values = [row[column] for row in rows]
    return " to ".join(dict.fromkeys(f"{end:.2g}" for end in (min(values), max(values))))


def masked_heads(
    model: str, effects: Mapping[str, Effect], elsewhere: Mapping[str, Effect]
) -> list[str]:
    """Say what RetMask does to the scores of the heads that it masks.

    Parameters
    ----------
    effects : mapping
        As from `rmutils.paper.effects.head_effects.masked_heads_after`, with `retmask`.
    elsewhere : mapping
        Other models -> the effect of RetMask on them.
    """
    def thousandths(effect: Effect) -> str:
        return number(*(1000 * end for end in (effect.value, effect.low, effect.high)))

    own = effects["retmask"]
    found = Interval(own.value, own.low, own.high)
    others = join(f"{thousandths(effect)} after {STRATEGIES[name].name}"
                  for name, effect in effects.items() if name != "retmask")
    return [
        f"**After RetMask, the scores of the masked heads of `{model}` "
        f"{by_sign(found, 'rise', 'fall', 'do not measurably change')}**: by {thousandths(own)} "
        f"thousandths (95 % interval over {own.clusters} needles; {own.note}).",
        f"After the other trainings of this model the same heads change by {others}.",
        "On the teaching models, with several seeds, RetMask changes them by "
        + join(f"{thousandths(effect)} (`{name}`)" for name, effect in elsewhere.items()) + "."]


LAST_STEPS = 5
"""Steps at the end of a training over which rewards are averaged: a single batch says little."""


def method(runs: Mapping[str, Sequence[RetMaskRun]]) -> list[str]:
    """Say how often masking changes an answer, where the loss begins, and which answer moves.

    Parameters
    ----------
    runs : mapping
        Model -> stored runs of RetMask, one per seed.
    """
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
