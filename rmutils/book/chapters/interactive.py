"""Figures that answer questions: the data that a figure's view in the book works on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython.display import HTML
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from rmutils.attention.decoding import Answer
from rmutils.book.chapters.masking_sweep.plots import LINES
from rmutils.book.chapters.preliminaries.experiment import attention_rows
from rmutils.book.figures.report import number
from rmutils.book.figures.style import SEQUENTIAL
from rmutils.corpora.niah import NiahCase
from rmutils.heads.copy_score import copied
from rmutils.heads.scores import DECIMALS, Head, HeadScores

if TYPE_CHECKING:
    from rmutils.models import LanguageModel

STEPS = 100  # the slider for tau has so many steps between 0 and 1
FAINTEST = 0.002  # a lower weight of attention is not carried into the page


def embed(view: str, data: Mapping[str, Any]) -> HTML:
    """Data for a view of the figure above."""
    text = json.dumps({"view": view, **data}, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return HTML(f'<script type="application/json" class="rm-figure">{text}</script>')


def head_map(scores: HeadScores, tau: float, *, cards: bool = False) -> HTML:
    """Data for the view of `figures.head_figures.head_map`: scores, and a slider for tau."""
    highest = max(scores.mean.max(), tau)
    colours = mpl.colormaps[SEQUENTIAL]
    taus = np.arange(STEPS + 1) / STEPS
    mean = scores.mean.round(DECIMALS).ravel()
    reach = [number(*one) for one in zip(*scores.statistic(
        lambda maps: np.stack([(maps >= one).sum((1, 2)) for one in taus], axis=1),
        bounds=(0, mean.size)), strict=True)]
    shown = map(number, mean, *scores.interval().reshape(-1, 2).T)
    return embed("heads", {
        "layers": scores.shape[0], "heads": scores.shape[1], "tau": tau, "steps": STEPS,
        "mean": mean.tolist(), "shown": list(shown), "reach": reach, "highest": float(highest),
        "colours": [to_hex(colours(one / highest)) for one in mean],
        "ramp": [to_hex(colours(one)) for one in np.linspace(0, 1, 9)],
        "cards": f"heads_at_work.html#head-{scores.model}-" if cards else ""})


def needle(lm: LanguageModel, case: NiahCase, answer: Answer, heads: Mapping[str, Head]) -> HTML:
    """Data for the view of `rmutils.book.figures.head_figures.arg_max_rows`: where heads look."""
    rows = attention_rows(lm, case, answer, [*heads.values()])
    hits = copied(answer, case.input_ids, case.needle_span)
    found = [{
        "name": name, "looks": answer.positions[:, layer, head].tolist(),
        "copied": hits[:, layer, head].tolist(),
        "inside": [round(float(row[slice(*case.needle_span)].sum()), 3) for row in of_head],
        "weights": [[[int(j), round(float(row[j]), 3)] for j in np.flatnonzero(row >= FAINTEST)]
                    for row in of_head],
    } for (name, (layer, head)), of_head in zip(heads.items(), rows, strict=True)]
    texts = [lm.tokenizer.decode([token]) for token in [*case.input_ids, *answer.tokens]]
    return embed("needle", {
        "prompt": texts[: len(case.input_ids)], "written": texts[len(case.input_ids):],
        "needle": case.needle_span, "inserted": case.inserted_span, "heads": found})


def masking_sweep(figure: Figure, curves: Mapping[str, pd.DataFrame], scores: HeadScores) -> HTML:
    """Data for the view of `masking_sweep.plots.masking_sweep`: all values at a count."""
    counts = sorted({int(n) for one in curves.values() for n in one["count"]})
    there = {policy for one in curves.values() for policy in one["policy"]}
    lines = {policy: label for policy, (label, *_) in LINES.items() if policy in there}
    measures = [{"name": name, **{policy: _shown(one, policy, counts) for policy in lines}}
                for name, one in curves.items()]
    return embed("sweep", {
        "counts": counts, "of": scores.mean.size, "taus": [_taus(scores, n) for n in counts],
        "lines": lines, "measures": measures, **_places(figure, counts)})


def _shown(curve: pd.DataFrame, policy: str, counts: list[int]) -> list[str | None]:
    """The values with their intervals, None at a count that the policy does not have."""
    rows = curve[curve["policy"] == policy].set_index("count")[["value", "low", "high"]]
    return [number(*rows.loc[n]) if n in rows.index else None for n in counts]


def _taus(scores: HeadScores, count: int) -> str:
    """Between which scores tau has to be to mask so many of the highest heads."""
    ranked = np.sort(scores.mean.ravel())[::-1].round(DECIMALS)
    if count == 0:
        return f"τ > {ranked[0]:.3g}"
    if count == len(ranked):
        return f"τ ≤ {ranked[-1]:.3g}"
    above, below = ranked[count - 1], ranked[count]
    return f"{below:.3g} < τ ≤ {above:.3g}" if above > below else "no τ: scores are equal"


def _places(figure: Figure, counts: list[int]) -> dict[str, Any]:
    """Where on the picture counts are, and its panels: shares of its width and height."""
    figure.draw_without_rendering()
    width, height = figure.get_size_inches()
    panels = [axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
              for axes in figure.axes]
    axes = figure.axes[-1]
    inches = [axes.transData.transform((n, 0))[0] / figure.dpi for n in counts]
    return {"across": [round(x / width, 4) for x in inches],
            "top": round(1 - max(p.y1 for p in panels) / height, 4),
            "bottom": round(min(p.y0 for p in panels) / height, 4)}
