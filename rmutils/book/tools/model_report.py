"""The one-page report of `rmutils report`: everything about a model in one HTML file or as JSON."""

import base64
import html
import io
import json
from contextlib import suppress
from string import Template

import pandas as pd
from IPython.display import HTML
from matplotlib.figure import Figure

from rmutils import paper
from rmutils.book.chapters.masking_sweep.plots import masking_sweep
from rmutils.book.chapters.score_distribution.designs import design_stored, designs, points
from rmutils.book.chapters.score_distribution.plots import forecast_figure
from rmutils.book.chapters.your_own_model import Forecast, OwnModel, curves, forecast
from rmutils.book.claims.gains import sparsity_gains
from rmutils.book.figures import head_map, report, use_style
from rmutils.book.figures.training_figures import nothing
from rmutils.book.templates import template
from rmutils.core.errors import NotStored

SPARSITY = "gini"
"""The measure by which gains are predicted: that of chapter 5, named there before its models were
trained."""
DESIGNED, PAPER = "models by design", "the paper's models"
MEASURES = {"share_zero": "share of heads at zero", "heads_at_least_0.1": "heads at 0.1 or above",
            "gini": "Gini coefficient", "hoyer": "Hoyer's sparseness",
            "effective_heads": "effective heads"}


def forecasts(own: OwnModel) -> dict[str, Forecast]:
    """Predict a model's gain from the designed models and from the paper's."""
    found = {}
    for name, config in designs().items():
        with suppress(NotStored):
            found[name] = design_stored(config, compute="never")
    designed = points(found, SPARSITY) if found else pd.DataFrame()
    return {kind: forecast(known, sparsity_of(own)) for kind, known in
            ((DESIGNED, designed), (PAPER, sparsity_gains(SPARSITY)))}


def summary(own: OwnModel, found: dict[str, Forecast]) -> pd.DataFrame:
    """Return what was found, the forecast last: `what`, `found`, both as text."""
    heads, cases = own.scores.mean.size, len(own.scores.cases)
    rows = {"needles found in the detection": f"{len(own.scores.runs)} of {cases}",
            f"heads that reach τ = {own.tau:g}":
                f"{own.reached} of {heads} ({100 * own.reached / heads:.0f} %)"}
    if own.sweep is not None:
        asked = own.artifacts[-1].manifest["config"]
        rows["needles of the sweep"] = (f"{asked['needles'] * len(asked['depths'])}, in prompts of "
                                        f"up to {asked['length']:,} tokens")
        rows |= _without_heads(own)
        for kind, one in found.items():
            rows[f"gain by RetMask, points, from {kind}"] = (
                f"no forecast: {'; '.join(one.reasons)}" if one.reasons else
                report.number(one.value, one.low, one.high))
    return pd.DataFrame(rows.items(), columns=["what", "found"])


def _without_heads(own: OwnModel) -> dict[str, str]:
    """Each curve of the whole model, and without its retrieval heads where the sweep has them."""
    rows = {}
    for name, curve in curves(own).items():
        at = curve[(curve["policy"] == "retrieval") & curve["count"].isin({0, own.reached})]
        if own.reached and len(at) == 2:
            shown = report.intervals(at.sort_values("count")[["value", "low", "high"]])
            rows[f"{name}, whole and without these heads"] = " → ".join(shown)
    return rows


def as_json(own: OwnModel, found: dict[str, Forecast]) -> str:
    """Return all numbers of the page as JSON."""
    interval = own.scores.interval()
    reached = own.scores.ranking()[: own.reached]
    return json.dumps({
        "model": own.name, "facts": own.facts, "tau": own.tau,
        "needles": {"asked": len(own.scores.cases), "found": len(own.scores.runs)},
        "heads": [{"layer": layer, "head": head, "score": own.scores.mean[layer, head],
                   "low": interval[layer, head, 0], "high": interval[layer, head, 1]}
                  for layer, head in reached],
        "sparsity": _records(own.sparsity[["statistic", "value", "low", "high"]]),
        "sweep": {name: _records(curve) for name, curve in curves(own).items()},
        "forecast": {} if own.sweep is None else {kind: {
            "models": one.models, "gain": _records(pd.DataFrame(
                [[one.value, one.low, one.high]], columns=["value", "low", "high"]))[0],
            "is_forecast": not one.reasons, "reasons_against": list(one.reasons)}
            for kind, one in found.items()},
        "artifacts": [artifact.name for artifact in own.artifacts],
    }, indent=1, ensure_ascii=False) + "\n"


def sparsity_of(own: OwnModel) -> tuple[float, float, float]:
    """Return a model's sparsity with the ends of its 95 % interval."""
    row = own.sparsity.set_index("statistic").loc[SPARSITY]
    return row["value"], row["low"], row["high"]


def _records(frame: pd.DataFrame) -> list[dict]:
    return json.loads(frame.to_json(orient="records"))  # numbers that are none become null


def page(own: OwnModel, found: dict[str, Forecast]) -> str:
    """The report as an HTML document that stands alone and prints on one sheet of A4."""
    use_style()
    name = html.escape(own.name)
    facts = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>"
                    for k, v in own.facts.items())
    said = "".join(f"<dt>{html.escape(row.what)}</dt><dd>{html.escape(row.found)}</dd>"
                   for row in summary(own, found).itertuples())
    table = measures(own).to_html(index=False, border=0, escape=True)
    made = "<br>".join(html.escape(f"{a.name}: {a.manifest['command']}") for a in own.artifacts)
    figures = "".join(_figure(figure, caption) for caption, figure in _figures(own, found).items())
    return Template(template("model_report.html")).substitute(
        name=name, style=template("model_report.css"), facts=facts, said=said, figures=figures,
        table=table, made=made)


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
            forecast_figure(found, sparsity_of(own), MEASURES[SPARSITY])
    return figures


def measures(own: OwnModel) -> pd.DataFrame:
    """Return how concentrated retrieval is, beside the paper's models."""
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
    return HTML(f'<div class="rm-page"><iframe sandbox title="A report" '
                f'srcdoc="{html.escape(document)}"></iframe></div>')


def _figure(figure: Figure, caption: str) -> str:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    data, words = base64.b64encode(drawn.getvalue()).decode(), html.escape(caption)
    return (f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{words}</figcaption></figure>")
