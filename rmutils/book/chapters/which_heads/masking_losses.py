"""What masking the heads of a score loses: the analyses of `which_heads.experiment`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.which_heads.experiment import (
    COPY,
    MATCHED,
    PLAIN_TEXT,
    PRIMARY,
    SCORE,
    TOP,
    WHOLE,
    WhichHeads,
)
from rmutils.heads.scores import DECIMALS, Head
from rmutils.stats import ANY, DIFFERENCE, Interval, contrast, holm, interval

ADDED = "heads by "
"""How comparisons of the scores begin that the second plan adds."""


def costs(result: WhichHeads) -> pd.DataFrame:
    """Return what each masking loses, and how much of it is due to the heads.

    Columns: `outcome`, `kind`, `count`, `whole` (of the unmasked model), `lost` and `control` (by
    the top heads, and by as many others of the same layers), each an `Interval` over samples (and
    draws), `difference` (an `Interval`), `p` (sign flips of samples), `p_holm` (over the scores,
    for each outcome and number).
    """
    rows = []
    for (outcome, kind, count), part in result.outcomes[
            result.outcomes["policy"] != WHOLE].groupby(["outcome", "kind", "count"], sort=False):
        whole, lost = _lost(result, outcome, part)
        bounds = ANY if outcome == PLAIN_TEXT else DIFFERENCE
        beyond = contrast(lost[TOP] - lost[MATCHED], bounds=bounds)
        rows.append((outcome, kind, count, whole.mean(), interval(lost[TOP][:, 0], bounds=bounds),
                     interval(lost[MATCHED], seeds=True, bounds=bounds), beyond.interval, beyond.p))
    table = pd.DataFrame(rows, columns=["outcome", "kind", "count", "whole", "lost", "control",
                                        "difference", "p"])
    return table.assign(p_holm=table.groupby(["outcome", "count"])["p"].transform(holm))


def _lost(
    result: WhichHeads, outcome: str, part: pd.DataFrame
) -> tuple[pd.Series, dict[str, np.ndarray]]:
    """What the whole model has of an outcome, and what rows of `outcomes` lack of it: by policy,
    (samples, draws)."""
    whole = result.outcomes.query("policy == @WHOLE and outcome == @outcome").set_index(
        "sample")["value"]
    return whole, {policy: whole.to_numpy()[:, None] - group.pivot(
        index="sample", columns="draw", values="value").loc[whole.index].to_numpy()
        for policy, group in part.groupby("policy")}


def compare_ablations(by_how: Mapping[str, WhichHeads]) -> pd.DataFrame:
    """Return the five comparisons of `data/plans/which_heads_ablations.yml` on one model.

    Columns: `what`, `difference` (an `Interval` over needles and draws of the share of needles lost
    beyond the control), `p` (sign flips of needles), `p_holm` (over the five).
    """
    def beyond(how: str, kind: str) -> np.ndarray:
        part = by_how[how].outcomes.query(
            "policy != @WHOLE and outcome == @PRIMARY and kind == @kind")
        _, lost = _lost(by_how[how], PRIMARY, part)
        return np.asarray(lost[TOP] - lost[MATCHED])

    compared = [(f"{ADDED}{kind}", beyond("zero", kind), DIFFERENCE)
                for kind in ("anchor", "query", "patching")]
    compared += [(f"{how} minus zero, heads by copy", beyond(how, COPY) - beyond("zero", COPY),
                  ANY) for how in ("mean", "query")]  # differences of differences
    found = {what: contrast(values, bounds=bounds) for what, values, bounds in compared}
    table = pd.DataFrame([(what, one.interval, one.p) for what, one in found.items()],
                         columns=["what", "difference", "p"])
    return table.assign(p_holm=holm(table["p"]))


def ablations_told(model: str, result: WhichHeads, table: pd.DataFrame, level: float) -> str:
    """Say what `compare_ablations` decides on a model, and which heads the added scores choose."""
    count = int(result.outcomes["count"].max())
    shared = agreement(result, count).set_index("kind")["common"]
    clear = table[[_clear(row, level) for row in table.itertuples()]]
    added = [row for row in clear.itertuples()
             if row.what.startswith(ADDED) and row.difference.low > 0]
    ways = [row.what.partition(" ")[0] for row in clear.itertuples()
            if not row.what.startswith(ADDED)]
    most = max(added, key=lambda row: row.difference.value, default=None)
    return (f"- **{model}**: {len(added)} of 3 added scores decide that their heads matter"
            + (f", most clearly {most.what.removeprefix(ADDED)}, whose heads lose "
               f"{_share(most.difference)} of the literal needles beyond the control"
               if most else "") + ". "
            + (f"Switching off by {' and '.join(ways)} costs otherwise than zeroing."
               if ways else "Neither other way of switching heads off is shown to cost otherwise "
               "than zeroing.")
            + f" Of the top {count} heads by copy score, "
            + ", ".join(f"{kind} has {shared[kind]}" for kind in ("anchor", "query", "patching"))
            + ".")


def compare_kinds(result: WhichHeads, outcome: str, count: int, base: str = COPY) -> pd.DataFrame:
    """Compare what the top heads of each score lose with what those of another do.

    Columns: `kind`, `more` (`Interval` over the same samples of how much more is lost), `p` (sign
    flips of samples).
    """
    part = result.outcomes.query(
        "policy == @TOP and outcome == @outcome and count == @count").pivot(
            index="sample", columns="kind", values="value")
    bounds = ANY if outcome == PLAIN_TEXT else DIFFERENCE
    more = {kind: contrast(part[base] - part[kind], bounds=bounds)
            for kind in result.scores["kind"].unique() if kind != base}
    return pd.DataFrame([{"kind": kind, "more": one.interval, "p": one.p}
                         for kind, one in more.items()])


def agreement(result: WhichHeads, count: int, tau: float = 0.1) -> pd.DataFrame:
    """Compare each score with the copy score.

    Columns: `kind`, `correlation` (Spearman's, over all heads), `common` (of the top `count`),
    `layers` (lowest, middle and highest of the top), `like_tau` (the score that as many heads reach
    as reach `tau` by the copy score; NaN if none does).
    """
    base, mean = result.ranking(COPY)[:count], result.map_of(COPY)
    reached = int((mean.round(DECIMALS) >= tau).sum())
    rows = []
    for kind in result.scores["kind"].unique():
        ranked, scores = result.ranking(kind), result.map_of(kind)
        layers = sorted(layer for layer, _ in ranked[:count])
        rows.append((kind, pd.Series(mean.ravel()).corr(pd.Series(scores.ravel()), "spearman"),
                     len({*ranked[:count]} & {*base}),
                     f"{layers[0]} to {layers[-1]}, median {np.median(layers):g}",
                     scores[ranked[reached - 1]] if reached else np.nan))
    return pd.DataFrame(rows, columns=["kind", "correlation", "common", "layers", "like_tau"])


def finding(
    model: str, result: WhichHeads, table: pd.DataFrame, bounds: tuple[float, float], level: float
) -> str:
    """Say which scores find heads that matter, by the rule of the plan.

    Scores that choose the same heads are named together: nothing can tell them apart.
    """
    part = table[table["outcome"] == PRIMARY]
    count, whole = int(part["count"].iloc[0]), part["whole"].iloc[0]
    if whole < bounds[0]:
        return f"- **{model}** finds {whole:.0%} of the literal needles, too few to lose any."
    alike: dict[tuple[frozenset[Head], Interval], list[Any]] = {}
    for row in part.itertuples():
        heads = frozenset(result.ranking(row.kind)[:count])
        alike.setdefault((heads, row.difference), []).append(row)
    groups = sorted(alike.items(), key=lambda one: -one[0][1].value)
    told = [one for one in groups if _clear(one[1][0], level)] or groups[:1]
    lines = []
    for (heads, difference), (row, *others) in told:
        names = _listed([SCORE[one.kind] for one in (row, *others)])
        verdict = ("are undecided" if not _clear(row, level) else
                   "matter" if difference.low > 0 else "matter less than others")
        lines.append(
            f"The top {count} by {names}{', the same heads,' * bool(others)} {verdict}: masking "
            f"them loses {_share(difference)} of all needles beyond what "
            f"{_others(heads, result.map_of(row.kind).shape[1])} cost (p = {row.p_holm:.2g}).")
    rest = [_listed([SCORE[row.kind] for row in rows]) for key, rows in groups
            if key not in dict(told)]
    return (f"- **{model}** finds {whole:.0%} of the literal needles. {' '.join(lines)}"
            + f" Undecided{', too' * (not _clear(told[0][1][0], level))}: {'; '.join(rest)}."
            * bool(rest))


def headlines(
    stored: Mapping[str, WhichHeads], tables: Mapping[tuple[str, int], pd.DataFrame], level: float
) -> list[str]:
    """Say how alike the scores choose, what their heads are worth, and what the plan decides."""
    most = {model: max(count for name, count in tables if name == model) for model in stored}
    fewest = {model: min(count for name, count in tables if name == model) for model in stored}
    apart, compared, rows, clear, tests = [], [], {}, 0, 0
    for model, result in stored.items():
        shared = agreement(result, most[model])["common"].min()
        if 2 * shared < most[model]:
            apart.append(f"on `{model}` one of them shares only {shared} of {most[model]}")
        compared.append(compare_kinds(result, PRIMARY, fewest[model]).assign(model=model))
        rows[model] = tables[model, most[model]].query(
            "outcome == @PRIMARY and kind == @COPY").iloc[0]
        planned = tables[model, fewest[model]].query("outcome == @PRIMARY")
        clear += sum(_clear(row, level) for row in planned.itertuples())
        tests += len(planned)
    least, worst = (choose(rows, key=lambda model: rows[model].lost.value) for choose in (min, max))
    missed = sum(row.lost.low > 0 for row in rows.values())
    pairs = pd.concat(compared, ignore_index=True)
    pairs["p_holm"] = holm(pairs["p"])
    differ = [f"on `{row.model}` the top {fewest[row.model]} by `{row.kind}` cost "
              f"{'fewer' if row.more.high < 0 else 'more'} needles than those by copy score, "
              f"{_share(row.more)} (corrected p {row.p_holm:.2g})" for row in pairs.itertuples()
              if row.more.low > 0 or row.more.high < 0]
    sure = int((pairs["p_holm"] < level).sum())
    return [
        f"**In {len(stored) - len(apart)} of {len(stored)} models the scores choose much the same "
        f"heads**: {_kinds(stored)} each share at least half of their top heads with the copy "
        "score"
        + "".join(f"; {words}" for words in apart) + ".",
        f"**Without the top {_either(most)} heads by copy score, {missed} of {len(stored)} models "
        f"miss needles they found before**: from {_share(rows[least].lost)} of them on `{least}` "
        f"(others of the same layers: {_control(stored[least], rows[least])}) to "
        f"{_share(rows[worst].lost)} on `{worst}` ({_control(stored[worst], rows[worst])}).",
        ("**That heads by another score matter more or less than those by copy score is "
         f"{f'shown in {sure} of' if sure else 'not shown in'} {len(pairs)} comparisons**"
         + (f"; before a correction for their number: {'; '.join(differ)}" if differ else "")
         + ". Each score against random others of its layers, the plan's own test with the top "
         f"{_either(fewest)}, is clear in {clear} of {tests}; the others are undecided.")]


def _kinds(stored: Mapping[str, WhichHeads]) -> str:
    """The scores beside the copy score that every model has."""
    return _listed([f"`{kind}`" for kind in next(iter(stored.values())).scores["kind"].unique()
                    if kind != COPY])


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return " and ".join(filter(None, (", ".join(first), last)))


def _either(counts: Mapping[str, int]) -> str:
    return " or ".join(map(str, sorted({*counts.values()})))


def _clear(row: Any, level: float) -> bool:
    """Whether a row of `costs` decides by the rule of the plan."""
    return bool(row.p_holm < level and (row.difference.low > 0 or row.difference.high < 0))


def _control(result: WhichHeads, row: Any) -> str:
    """What a control loses, with its interval if there are draws enough for one of use."""
    rows = result.outcomes
    draws = rows[(rows["policy"] == MATCHED) & (rows["count"] == row["count"])]["draw"].nunique()
    return (_share(row["control"]) if draws > 2 else
            f"{100 * row['control'].value:.0f} %, from {draws} draws")


def _others(heads: frozenset[Head], width: int) -> str:
    """Name the control; where its layers have no more heads than it masks, each draw is the same.
    """
    left = width * len({layer for layer, _ in heads}) - len(heads)
    return ("as many others of the same layers" if left > len(heads)
            else "the only others of the same layers")


def _share(found: Interval) -> str:
    value, low, high = (f"{100 * end + 0:.0f}".replace("-", "−") for end in found)
    return f"{value} % [{low}, {high}]"


def off_floor(costs_of: pd.DataFrame, bounds: tuple[float, float]) -> list[str]:
    """Return the outcomes that have room for a loss; plain text always has."""
    whole = costs_of.groupby("outcome", sort=False)["whole"].first()
    return [name for name, value in whole.items() if name == PLAIN_TEXT or value >= bounds[0]]

