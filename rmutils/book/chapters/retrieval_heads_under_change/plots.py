"""Chapter 15: the matrix of verdicts, and what was found, in sentences computed from results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.retrieval_heads_under_change.experiment import KEYS_TRAIT
from rmutils.book.chapters.retrieval_heads_under_change.head_ranking import (
    ALPHA,
    HALF,
    MASKING,
    NO,
    NO_ROOM,
    OPEN,
    RANKING,
    TRAINING,
    YES,
    agreements,
    masking,
    moves,
    traits_set_apart,
)
from rmutils.book.experiments.under_variants import Tables
from rmutils.book.figures.report import join, number
from rmutils.book.figures.style import BLUE, GREY, INK, RED, WIDTH

SIGNS = {YES: ("+", BLUE), NO: ("\N{MINUS SIGN}", RED), OPEN: ("?", GREY), NO_ROOM: ("", GREY)}
"""Sign and colour of a verdict."""
ENDS = ["value", "low", "high"]


def matrix(table: pd.DataFrame, variants: Sequence[str]) -> Figure:
    """A cell for each question, model and variant: verdict, value, and what could be shown."""
    lines: list[tuple[str, str]] = []
    for question in table["question"].unique():
        part = table[table["question"] == question]
        lines += [(question, ""), *((question, model) for model in part["model"].unique())]
    cells = table.set_index(["question", "model", "variant"], drop=False)
    figure = Figure(figsize=(WIDTH, 0.7 + 0.42 * len(lines)))
    axes = figure.subplots()
    for y, (question, model) in enumerate(lines):
        if not model:
            axes.text(-0.5, y + 0.25, question, fontsize=10, fontweight="bold")
            continue
        for x, variant in enumerate(variants):
            if (question, model, variant) in cells.index:
                _cell(axes, x, y, cells.loc[(question, model, variant)])
    axes.set(xlim=(-0.5, len(variants) - 0.5), ylim=(len(lines) - 0.5, -0.5))
    axes.set_xticks(range(len(variants)), variants, fontsize=9)
    axes.set_yticks([y for y, (_, model) in enumerate(lines) if model],
                    [model for _, model in lines if model], fontsize=9)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def _cell(axes: Axes, x: int, y: int, row: pd.Series) -> None:
    sign, colour = SIGNS[row["verdict"]]
    axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour,
                             alpha=0.08 if row["verdict"] == NO_ROOM else 0.25, edgecolor="none"))
    first, second = (("no room", "to show it") if row["verdict"] == NO_ROOM else
                     (f"{sign}  {row['value']:z.2f}",
                      f"from {row['smallest']:.2f}" if row["verdict"] == OPEN
                      and row["question"] != RANKING
                      else f"[{row['low']:z.2f}, {row['high']:z.2f}]"))
    axes.text(x, y - 0.19, first, ha="center", va="center", fontsize=9, color=INK)
    axes.text(x, y + 0.21, second, ha="center", va="center", fontsize=9, color=INK)


def ratios_of_retrieval_heads(tables: Mapping[str, Tables]) -> str:
    """Say where Ms-PoE gives retrieval heads higher or lower ratios than others of their layer."""
    compared = traits_set_apart(tables)
    keys = compared[compared["trait"] == KEYS_TRAIT]
    apart = keys[(keys["p_holm"] < ALPHA) & ((keys["high"] < 0.5) | (keys["low"] > 0.5))]
    lines = [
        f"**In {row.model}, Ms-PoE gives the {'highest' if row.high < 0.5 else 'lowest'} ratios to "
        f"the retrieval heads**: their last query picks out more keys than another head of the "
        f"layer in {number(row.value, row.low, row.high)} of the pairs (p = {row.p_holm:.3f}, "
        "corrected)"
        + (", so their positions are compressed most." if row.high < 0.5
           else ", so they are spared.")
        for row in apart.itertuples()]
    rest = [model for model in keys["model"] if model not in set(apart["model"])]
    return " ".join([*lines, f"In {join(rest)} no such order is shown." if rest else ""]).strip()


def kept_and_needed(table: pd.DataFrame) -> str:
    """Say in how many changed cells the ranking is kept and masking hurts, and which were left out:
    plain attention changes nothing, and a model that finds few needles can lose few."""
    changed = table[table["variant"] != PLAIN]
    ranking, needed = (changed[changed["question"] == question] for question in (RANKING, MASKING))
    testable = "testable cases"
    told = (f"**The highest heads stay the highest {_share_of(ranking, testable)}**; masking them "
            "costs more needles than masking others "
            + _share_of(needed, "cases in which the model finds at least half of its needles")
            + ".")
    broken = ranking[ranking["verdict"] == NO_ROOM]
    few = needed[needed["verdict"] == NO_ROOM].merge(
        broken[["model", "variant"]], how="left", indicator=True).query("_merge == 'left_only'")
    return (told
            + (f" In {len(broken)} more, the change leaves no needle found, so it leaves no scores."
               if len(broken) else "")
            + (" Where a change leaves some, but fewer than half, the rule does not judge masking: "
               "as a share of the needles, it costs more than masking others by " + join(
                   f"{number(row.value, row.low, row.high)} in {row.model} under "
                   f"{_in_words(row.variant)}" for row in few.itertuples()) + "."
               if len(few) else ""))


def _share_of(part: pd.DataFrame, cases: str) -> str:
    """Say in how many cells that could show it the answer is yes."""
    could = part[part["verdict"] != NO_ROOM]
    counts = could["verdict"].value_counts()
    kept = counts.get(YES, 0)
    return (f"in {'all' if kept == len(could) else f'{kept} of'} {len(could)} {cases}"
            + (f" (not in {counts[NO]})" if NO in counts else ""))


def _in_words(variant: str) -> str:
    """The name of an attention in a sentence, for the short one of a column."""
    name, _, p = variant.partition(" ")
    return {"Share": "Share-Attention", "Select": f"Select-Attention with p = {p}"}.get(
        name, variant)


def masking_under(tables: Tables, model: str, variant: str) -> str:
    """Say what a variant leaves of a model's needles, of its ranking of heads, and of the cost of
    masking.
    """
    lost = masking(tables["needles"]).set_index(["quantity", "variant"])
    overlap, = agreements(tables).query(
        "quantity == 'overlap' and variant == @variant")[ENDS].to_numpy()

    def share(quantity: str, at: str) -> str:
        return number(*lost.loc[(quantity, at), ENDS])

    few = lost.loc[("found", variant), "value"] < HALF
    return (f"Under {_in_words(variant)}, `{model}` finds {share('found', variant)} of the needles "
            f"instead of {share('found', PLAIN)}. Of its highest heads, {number(*overlap)} stay "
            "among the highest. Masking the retrieval heads costs "
            f"{share('excess', variant)} of the needles more than masking others; under plain "
            f"attention, {share('excess', PLAIN)}."
            + (" By the second rule, so few needles do not show whether masking still hurts."
               if few else ""))


def scores_fall(tables: Mapping[str, Tables]) -> str:
    """Say where the retrieval heads' own scores fall, although they may stay the highest."""
    rows = pd.concat([moves(one).query("quantity == 'retrieval heads'").assign(model=model)
                      for model, one in tables.items()], ignore_index=True)
    falls = rows[rows["high"] < 0]
    if falls.empty:
        return "**Nowhere is it shown that the scores of retrieval heads fall.**"
    told = ["{} lowers their mean score by {}".format(_in_words(variant), join(
        f"{number(-row.value, -row.high, -row.low)} in {row.model}" for row in part.itertuples()))
        for variant, part in falls.groupby("variant", sort=False)]
    return ("**Some changes make them copy less, even in the needles that are found both times.** "
            f"{'; '.join(told)}.")


def gains_shown(table: pd.DataFrame) -> str:
    """Say where RetMask's models gain, and how large a gain would have been seen."""
    part = table[table["question"] == TRAINING]
    open_, counts = part[part["verdict"] == OPEN], part["verdict"].value_counts()
    gains = counts.get(YES, 0)
    return (
        f"**Models that RetMask trained gain measurably in {gains} of {len(part)} cases**"
        f" and lose in {counts.get(NO, 0)}."
        + (f" In {counts[NO_ROOM]} of them the model already finds so many needles, or so few, "
           "that a gain could not show." if NO_ROOM in counts else "")
        + (f" In the other {len(open_)} a gain below {open_['smallest'].min():.2f} to "
           f"{open_['smallest'].max():.2f} of the needles is likely to be missed."
           if len(open_) else ""))
