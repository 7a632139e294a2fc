"""The one-page report of `rmutils report`: everything about a model in one file.

A model's name and whatever else comes with a checkpoint is escaped; the page runs no script and
loads nothing.
"""

from __future__ import annotations

import base64
import html
import io

import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from rmutils import paper, report
from rmutils.book.model_findings import SPARSITY, curves, findings, sparsity_of
from rmutils.evaluation.forecast import Forecast
from rmutils.evaluation.own_model import OwnModel
from rmutils.plots import head_map, use_style
from rmutils.plots.abilities import nothing
from rmutils.plots.forecast import forecasts
from rmutils.plots.masking_sweep import masking_sweep

MEASURES = {"share_zero": "share of heads at zero", "heads_at_least_0.1": "heads at 0.1 or above",
            "gini": "Gini coefficient", "hoyer": "Hoyer's sparseness",
            "effective_heads": "effective heads"}


def page(own: OwnModel, found: dict[str, Forecast]) -> str:
    """The report as an HTML document that stands alone and prints on one sheet of A4."""
    use_style()
    name = html.escape(own.name)
    facts = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>"
                    for k, v in own.facts.items())
    said = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in findings(own, found))
    table = measures(own).to_html(index=False, border=0, escape=True)
    made = "<br>".join(html.escape(f"{a.name}: {a.manifest['command']}") for a in own.artifacts)
    figures = "".join(_figure(figure, caption) for caption, figure in _figures(own, found).items())
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8">'
            f'<meta name="color-scheme" content="light">'
            f'<meta name="viewport" content="width=device-width">\n<title>Retrieval heads of {name}'
            f"</title>\n<style>{STYLE}</style></head>\n<body><main>\n"
            f"<h1>Retrieval heads of {name}</h1>\n"
            f'<div class="two"><section><h2>The model</h2><dl>{facts}</dl></section>'
            f"<section><h2>What was found</h2><ul>{said}</ul></section></div>\n"
            f'<div class="figures">{figures}</div>\n'
            f'<section><h2 id="measures">How concentrated retrieval is</h2><div class="wide" '
            f'tabindex="0" role="region" aria-labelledby="measures">{table}</div></section>\n'
            f"<footer><p>{LIMITS}</p><p>{made}</p></footer>\n</main></body>\n</html>\n")


def _figures(own: OwnModel, found: dict[str, Forecast]) -> dict[str, Figure]:
    none = nothing("No head reaches tau.")
    figures = {"Retrieval score of each head, from 0 to 1. Outlined: those that reach τ.":
               head_map(own.scores, own.tau) if own.reached else none}
    if own.sweep is not None:
        marks = {own.tau: own.reached} if own.reached else {}
        figures["What masking costs: shares of right answers and repetition, with 95 % intervals. "
                "Random heads stand for comparison."] = masking_sweep(curves(own), marks)
        figures["Gain by RetMask against sparsity on models where both are known. Line and shade: "
                "least squares with a 95 % prediction interval. Upright: this model."] = \
            forecasts(found, sparsity_of(own), MEASURES[SPARSITY])
    return figures


def measures(own: OwnModel) -> pd.DataFrame:
    """How concentrated retrieval is, beside the paper's models whose scores are published; with
    95 % intervals, as text."""
    tables = {"this model": own.sparsity} | dict(
        [*paper.load_published_summary().groupby("model", sort=False)])
    rows = {}
    for model, part in tables.items():
        ends = part.set_index("statistic").loc[list(MEASURES), ["value", "low", "high"]].to_numpy()
        rows[model] = [str(part["heads"].iloc[0]), *(report.number(*row) for row in ends)]
    frame = pd.DataFrame(rows, index=["heads", *MEASURES.values()]).rename_axis("measure")
    return frame.reset_index()


def framed(document: str) -> HTML:
    """The page within a page of the book; nothing in it can run."""
    return HTML(f'<div class="rm-page"><iframe sandbox title="A report" loading="lazy" '
                f'srcdoc="{html.escape(document)}"></iframe></div>')


def _figure(figure: Figure, caption: str) -> str:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    data, words = base64.b64encode(drawn.getvalue()).decode(), html.escape(caption)
    return (f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{words}</figcaption></figure>")


LIMITS = (
    "Brackets: 95 % bootstrap intervals, over needles, questions and, for random heads, choices. "
    "Gains are points of 100 over the seven categories of HELMET. The models by design are toys; "
    "the paper's have 8 billion parameters and one training each. A forecast is given only where "
    "four models or more are known, the slope's interval leaves out zero, the line foretells these "
    "models better than their mean does, and the model's sparsity is among theirs. Sparsity "
    "depends on the grid of needles: with more needles, fewer heads stay at zero.")
STYLE = """
@page { size: A4; margin: 11mm; }
html { font-size: 14px; }
body { margin: 0; background: #fff; color: #14181e; font: 1rem/1.4 'Liberation Sans', sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { margin: 0 0 .6rem; font-size: 1.5rem; overflow-wrap: anywhere; }
h2 { margin: .4rem 0 .2rem; font-size: 1rem; }
.two { display: grid; grid-template-columns: minmax(14rem, 1fr) 2fr; gap: 0 1.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .8rem; margin: 0; }
dt { color: #4a5560; } dd { margin: 0; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: 1fr 1fr; gap: .6rem 1.2rem; margin: .6rem 0;
           align-items: start; }
.figures figure:nth-child(2) { grid-row: span 2; }
figure { margin: 0; break-inside: avoid; }
figure img { display: block; width: 100%; max-height: 26rem; object-fit: contain; }
figcaption, footer { color: #4a5560; font-size: .8rem; }
table { width: 100%; border-collapse: collapse; font-size: .85rem; }
th, td { padding: .1rem .4rem; border-bottom: 1px solid #c9d1d9; text-align: left; }
footer p { margin: .4rem 0 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .two, .figures { grid-template-columns: minmax(0, 1fr); }
  .wide { overflow-x: auto; }
}
@media print {
  html { font-size: 11px; } main { max-width: none; padding: 0; }
  figure img { max-height: 88mm; }
  .figures figure:nth-child(2) img { max-height: 130mm; }
}
"""
