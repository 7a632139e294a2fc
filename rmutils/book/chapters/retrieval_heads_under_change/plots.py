"""Chapter 15: the matrix of verdicts."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rmutils.book.chapters.retrieval_heads_under_change import findings
from rmutils.book.figures.style import BLUE, CALLED, GREY, INK, RED, new_axes

SIGNS = {findings.YES: ("✓", BLUE), findings.NO: ("\N{MINUS SIGN}", RED),
         findings.OPEN: ("?", GREY), findings.NO_ROOM: ("", GREY)}
"""Sign and colour of a verdict."""
HEADINGS = {findings.RANKING: "Do the top heads stay on top? Percent that stay",
            findings.MASKING: "Does masking still hurt? More needles lost than with random heads "
                              "(points)"}
ENDS = ["value", "low", "high"]


def matrix(table: pd.DataFrame, variants: Sequence[str]) -> Figure:
    """A cell for each question, model and variant: verdict, value, and what could be shown."""
    lines: list[tuple[str, str]] = []
    for question in table["question"].unique():
        part = table[table["question"] == question]
        lines += [(question, ""), *((question, model) for model in part["model"].unique())]
    cells = table.set_index(["question", "model", "variant"], drop=False)
    figure, axes = new_axes(0.7 + 0.42 * len(lines))
    for y, (question, model) in enumerate(lines):
        if not model:
            axes.text(-0.5, y + 0.25, HEADINGS[question], fontsize=10, fontweight="bold")
            continue
        for x, variant in enumerate(variants):
            if (question, model, variant) in cells.index:
                _cell(axes, x, y, cells.loc[(question, model, variant)])
    axes.set(xlim=(-0.5, len(variants) - 0.5), ylim=(len(lines) - 0.5, -0.5))
    axes.set_xticks(range(len(variants)), variants, fontsize=9)
    axes.set_yticks([y for y, (_, model) in enumerate(lines) if model],
                    [CALLED.get(model, model) for _, model in lines if model], fontsize=9)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def _cell(axes: Axes, x: int, y: int, row: pd.Series) -> None:
    sign, colour = SIGNS[row["verdict"]]
    axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour,
                             alpha=0.08 if row["verdict"] == findings.NO_ROOM else 0.25,
                             edgecolor="none"))
    value, low, high, smallest = (100 * row[name] for name in (*ENDS, "smallest"))
    first, second = ((("none found", "twice") if row["question"] == findings.RANKING else
                      ("under half", "found")) if row["verdict"] == findings.NO_ROOM else
                     (f"{sign}  {value:z.0f}",
                      f"seen from {smallest:.0f}" if row["verdict"] == findings.OPEN
                      and row["question"] != findings.RANKING else f"{low:z.0f} to {high:z.0f}"))
    axes.text(x, y - 0.19, first, ha="center", va="center", fontsize=9, color=INK)
    axes.text(x, y + 0.21, second, ha="center", va="center", fontsize=9, color=INK)
