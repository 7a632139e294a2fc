"""What a filter layer chooses, what hiding the rest costs, and what a step costs on a GPU."""

from dataclasses import replace
from functools import cache

import pandas as pd

from rmutils.attention.select_attention import Select
from rmutils.book.chapters.retrieval_heads_under_change.experiment import CHANGED, needles_under
from rmutils.book.chapters.scale.work import roofline
from rmutils.book.chapters.share_attention import savings_curves
from rmutils.book.chapters.share_attention.findings import less_than_one
from rmutils.book.chapters.share_attention.layer_choice import (
    AgreementConfig,
    early_and_later,
    planned_recall,
)
from rmutils.book.experiments.under_variants import changes, levels
from rmutils.book.findings import AGAINST, NONE, SHOWN, UNDECIDED, Measured, declare, scaled
from rmutils.core.config import run_notebook
from rmutils.core.errors import require
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact, Tables
from rmutils.stats import DIFFERENCE, contrast

RECALL, QUALITY, AGREE = "fig-select-recall", "select-answers", "fig-select-agree"
COSTS, GPU, WITH_SHARE = "fig-select-costs", "fig-select-gpu", "select-answers"
MOST = 0.97  # the largest p that the plan's rule asks for
LARGE, FILTER = "smollm2-135m", 14  # the real model, and its filter layer


@cache
def _recall() -> tuple[pd.DataFrame, str]:
    model, layer, config = planned_recall(load_plan("select_recall"))
    tables, artifact = savings_curves.saved(model, config, compute="never")
    return tables["recall"].query("layer == @layer"), artifact.name


@declare("needle-chosen", unit="percent", place=RECALL, otherwise=(
    "At p = {p}, {model} has {value} % of the needle's tokens among the chosen ones {ci}."))
def needle_chosen(column: str, p: float) -> Measured:
    """Share of the needle's tokens that the real model's filter layer chooses."""
    table, name = _recall()
    part = table[table["p"] == p]
    row = levels(part.assign(variant=""), column).iloc[0]
    return Measured(scaled(row[["value", "low", "high"]]), [name], part["question"].nunique(),
                    verdict=NONE, words={"model": LARGE})


@declare("steps-beyond-prompt", unit="points", place=RECALL, otherwise=(
    "At p = {p}, steps of the answer choose {value} points {more|fewer} of the needle's tokens "
    "{ci} than the prompt's last token does: {verdict} by the rule of the plan."))
def steps_beyond_prompt(p: float = MOST) -> Measured:
    """What steps choose, minus what the prompt chooses; the plan's primary comparison."""
    table, name = _recall()
    found = {at: contrast(part["next"] - part["prompt"], part["question"], bounds=DIFFERENCE)
             for at, part in table[table["p"] <= MOST].groupby("p")}
    verdict = (SHOWN if all(one.low > 0 for one in found.values()) else
               AGAINST if all(one.high < 0 for one in found.values()) else UNDECIDED)
    return replace(Measured.contrast(found[p], [name]), verdict=verdict)


@declare("live-needle-chosen", unit="percent", place="fig-select-layers", otherwise=(
    "Layer {layer} of {model} has chosen {value} % of the needle's tokens when they are copied "
    "{ci}."))
def live_needle_chosen(recall: pd.DataFrame, model: str, layer: int, p: float,
                       artifact: str) -> Measured:
    """Share of the needle's tokens that a layer has chosen when they are to be copied."""
    part = recall.query("layer == @layer and p == @p")
    row = levels(part.assign(variant=""), "next").iloc[0]
    return Measured.row(row, [artifact], 100, clusters=part["question"].nunique(), verdict=NONE)


@declare("needles-lost-selecting", unit="points", place=QUALITY, otherwise=(
    "Behind a filter in layer 1 with p = 0.99, {model} finds {value} points {fewer|more} needles "
    "{ci}: {verdict}."))
def needles_lost_selecting(model: str) -> Measured:
    """Needles that a teaching model loses behind its filter, as chapter 15 measured them."""
    found = needles_under(Select(filter_layer=1, p=0.99))
    require([] if model in found else [
        run_notebook("15_retrieval_heads_under_change", {"compute_stored": "auto"})])
    table, artifact = found[model]
    row = changes(table, "correct").set_index("variant").loc[CHANGED]
    return Measured(scaled(row[["effect", "high", "low"]], -100), [artifact], int(row["clusters"]),
                    row["p"])


@cache
def _agreement() -> tuple[Tables, str]:
    tables, artifact = savings_curves.saved(LARGE, AgreementConfig(layer=FILTER), compute="never")
    return tables, artifact.name


@declare("later-layers-agree", unit="correlation", place=AGREE, otherwise=(
    "Scores of tokens correlate by {value} {more|less} {ci} between later layers of {model} than "
    "between early ones: {verdict}."))
def later_layers_agree() -> Measured:
    """Rank correlation of two later layers' scores, minus that of two early ones."""
    tables, name = _agreement()
    found = early_and_later(tables["layers"], FILTER - 3)["difference"]  # 11 of 32, as in Figure 3
    return Measured(found, [name], tables["layers"]["question"].nunique(), words={"model": LARGE})


@declare("tokens-stay", unit="percent", place=AGREE, otherwise=(
    "Of the tokens that a step of {model} chooses, {value} % are chosen {steps} steps later, too "
    "{ci}."))
def tokens_stay(steps: int) -> Measured:
    """Share of the chosen tokens that a later step chooses, too."""
    tables, name = _agreement()
    table = levels(tables["overlap"].assign(variant=""), "common", ["steps"]).set_index("steps")
    return Measured.row(table.loc[steps], [name], 100, verdict=NONE, model=LARGE,
                        clusters=tables["overlap"]["question"].nunique())


@declare("select-time", unit="times", place=COSTS, otherwise=(
    "With {variant}, {model} needs {value} times the plain model's time {ci} for {what}."))
def select_time(costs: pd.DataFrame, column: str, variant: str, what: str, model: str,
                artifact: str) -> Measured:
    """Processor time as a multiple of the plain model's; shown means that it is less."""
    row = savings_curves.ratios(costs, column).set_index("variant").loc[variant]
    return Measured.row(row, [artifact], verdict=less_than_one(row))


@declare("gpu-step", unit="times", place=GPU, otherwise=(
    "By formula, a step takes {value} times as long as the plain one."))
def gpu_step(tokens: int, kept: float) -> Measured:
    """Least time of a step on an H100 as a multiple of the plain step's, by formula."""
    return Measured.count(roofline([tokens], [kept])["times"].iloc[0])


@cache
def _together() -> tuple[pd.DataFrame, list[Artifact]]:
    needles, artifacts, missing = savings_curves.share_and_select(load_plan("share_and_select"))
    require(missing)
    return needles, artifacts


@declare("both-beyond-four-fifths", unit="points", place=WITH_SHARE, otherwise=(
    "Sharing and selecting at once, {model} finds {value} points {more|fewer} needles {ci} than "
    "four fifths of what it finds as it is: {verdict} by the rule of the plan."))
def both_beyond_four_fifths() -> Measured:
    """Needles found with both, minus four fifths of the plain model's; the plan's primary."""
    needles, names = _together()
    return Measured(scaled(savings_curves.remaining(needles)), names, needles["question"].nunique(),
                    words={"model": LARGE})


@declare("both-change", unit="points", place=WITH_SHARE, otherwise=(
    "Sharing and selecting at once change the needles that {model} finds by {value} points {ci}: "
    "{verdict}."))
def both_change() -> Measured:
    """Needles found with both, minus those of the plain model."""
    return _change(savings_curves.BOTH)


@declare("select-change", unit="points", place=WITH_SHARE, otherwise=(
    "Selecting tokens changes the needles that {model} finds by {value} points {ci}: {verdict}."))
def select_change() -> Measured:
    """Needles found if tokens are selected and no head shares, minus those of the plain model."""
    return _change(savings_curves.SELECT)


def _change(arm: str) -> Measured:
    needles, names = _together()
    row = changes(needles, "correct").set_index("variant").loc[arm]
    return Measured.row(row, names, 100, clusters=int(row["clusters"]), p="p", model=LARGE)
