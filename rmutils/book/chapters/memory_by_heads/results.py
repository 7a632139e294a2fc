"""What the stored runs of `data/plans/memory_by_heads.yml` and `memory_found.yml` say."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.chapters.memory_by_heads.experiment import (
    ANYWHERE,
    FOUND,
    KEY,
    MATCHED,
    MEMORY,
    NONE,
    TOP,
    WHOLE,
)
from rmutils.book.figures.report import number
from rmutils.book.figures.style import BLUE, GREY, ORANGE, WIDTH
from rmutils.core.errors import NotStored
from rmutils.core.results import Artifact
from rmutils.stats import DIFFERENCE, SHARE, Contrast, contrast, holm, interval

LINES = {TOP: (BLUE, "o", "key heads that copy"), MATCHED: (ORANGE, "^", "others, same layers"),
         ANYWHERE: (GREY, "s", "others, any layer")}
MAIN = 0.4
"""Share of the key heads that decides."""


@cache
def stored(first: bool = False) -> dict[str, tuple[pd.DataFrame, Artifact]]:
    """Look the answers of all models up, on needles that they find; or those of the first plan."""
    found, experiment = {}, MEMORY if first else FOUND
    for run in experiment.runs().values():
        try:
            artifact = experiment.obtain(run, compute="never")
        except NotStored:
            continue
        found[run.model] = pd.read_parquet(artifact.path("answers.parquet")), artifact
    return found


def needles_kept(answers: pd.DataFrame) -> pd.DataFrame:
    """Return `policy`, `share`, `value`, `low`, `high` (needles found, 95 % over needles), `kept`
    (mean share of the cache's bytes) of each condition."""
    rows = []
    for (_, policy, share), part in answers.groupby(KEY, sort=False):
        found = part.groupby("needle")["success"].mean()
        rows.append((policy, share, *interval(found, bounds=SHARE, cases=len(found)),
                     part["kept"].mean()))
    return pd.DataFrame(rows, columns=["policy", "share", "value", "low", "high", "kept"])


def top_minus_others(answers: pd.DataFrame, share: float, others: str = MATCHED) -> Contrast:
    """Compare the needles found with top key heads and with others, needle by needle."""
    part = answers[(answers["share"] == share) & (answers["score"] == "copy")]
    by_needle = part.pivot_table(index="needle", columns="policy", values="success")
    return contrast((by_needle[TOP] - by_needle[others]).to_numpy(), bounds=DIFFERENCE)


def primary() -> pd.DataFrame:
    """Apply the plan's rule: at 40 % of the key heads, Holm over the models."""
    rows = [{"model": model, **found.columns, "needles": found.clusters}
            for model, (answers, _) in stored().items()
            for found in [top_minus_others(answers, MAIN)]]
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"])) if rows else table


def memory_figure(results: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the needles found by the share of key heads that keep the whole text, models side by
    side."""
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for axes, (model, answers) in zip(panels, results.items(), strict=True):
        table = needles_kept(answers)
        ends = table.set_index("policy")
        for shift, (policy, (colour, marker, label)) in enumerate(LINES.items()):
            part = pd.concat([ends.loc[[NONE]], ends.loc[[policy]], *(
                [ends.loc[[WHOLE]]] if policy == TOP else [])])
            place = 100 * part["share"] + 0.8 * (shift - 1)
            axes.plot(place, 100 * part["value"], color=colour, marker=marker, ms=4, lw=1.3,
                      label=label)
            axes.vlines(place, 100 * part["low"], 100 * part["high"], color=colour, lw=1)
        axes.set_ylim(-3, 103)
        axes.set_title(model, fontsize=10)
        axes.tick_params(labelsize=9)
        axes.set_xlabel("key heads that keep the whole text (%)", fontsize=9)
    panels[0].set_ylabel("needles found (%)", fontsize=9)
    panels[0].legend(fontsize=9, loc="lower right")
    return figure


def kept_table(first: bool = False) -> pd.DataFrame:
    """Return all conditions as readers see them."""
    return pd.DataFrame([{
        "model": model, "whole text": row.policy,
        "of the key heads (%)": round(100 * row.share),
        "bytes of the cache (%)": round(100 * row.kept),
        "needles found (%)": number(100 * row.value, 100 * row.low, 100 * row.high)}
        for model, (answers, _) in stored(first).items()
        for row in needles_kept(answers).itertuples()])
