"""What positions on other scales gain beyond the trained length, and what they cost within it."""

from functools import cache

from rmutils.book.chapters.ms_poe import experiment
from rmutils.book.experiments.under_variants import changes, perplexities
from rmutils.book.findings import Measured, declare, scaled
from rmutils.core.errors import require
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact, Tables

STRAINED, CAUSES, PRICE = "fig-ms-poe-strained", "ms-poe-causes", "fig-ms-poe-price"
REAL = "fig-ms-poe-real"
LARGE = "smollm2-135m"
LARGE_MANY, LARGE_ONE = "1 to 2", "all 1.5"
"""Ratios of the same mean on the real model; the one ratio leaves its first two layers alone."""
CHANGE = ["change", "change_low", "change_high"]


@cache
def _stored() -> tuple[Tables, list[Artifact]]:
    tables, runs = experiment.positions()
    require([experiment.POSITIONS.command] if not tables or runs.missing else [])
    return tables, runs.artifacts


def _middle(cause: str, length: int, model: str, variant: str, base: str = "plain") -> Measured:
    tables, names = _stored()
    asked = tables["needles"].query(
        "cause == @cause and length == @length and variant in [@variant, @base]")
    rows = experiment.gains(asked, base).query(
        "model == @model and part == 'middle' and variant == @variant")
    return Measured.row(rows.iloc[0], names, 100, clusters=asked["question"].nunique(),
                        model=model, variant=variant, base=base)


def _length() -> int:
    return int(load_plan("ms_poe").content["strained"]["length"])


@declare("middle-gain", unit="points", place=STRAINED, otherwise=(
    "Beyond its trained length, {model} finds {value} points {more|fewer} needles in the middle "
    "{ci} under {variant}: {verdict}."))
def middle_gain(model: str, variant: str = experiment.MANY) -> Measured:
    """Needles found in the middle of 1,024 tokens under a variant, minus plain."""
    return _middle("", _length(), model, variant)


@declare("many-lead", unit="points", place=STRAINED, otherwise=(
    "Under ratios of {variant}, {model} finds {value} points {more|fewer} needles in the middle "
    "{ci} than under {base}: {verdict}."))
def many_lead(model: str, base: str = experiment.ONE) -> Measured:
    """Needles found in the middle under many ratios, minus under one, or in the reversed order."""
    return _middle("", _length(), model, experiment.MANY, base)


@declare("two-causes", unit="points", place=CAUSES, otherwise=(
    "Over all pairs of models, {what}: {value} points {ci}, {verdict}."))
def two_causes(what: str) -> Measured:
    """A quantity that the plan's rule asks for, by its name in `tested`."""
    tables, names = _stored()
    return Measured(scaled(experiment.tested(tables["needles"], load_plan("ms_poe"))[what]), names,
                    tables["needles"]["question"].nunique())


@declare("price-many-minus-one", unit="percent", place=PRICE, otherwise=(
    "Short texts are {value} % {more|less} perplexing to {model} {ci} under many ratios than "
    "under one of the same mean: {verdict}."))
def price_many_minus_one(model: str) -> Measured:
    """Perplexity of short texts under many ratios, above that under one of the same mean."""
    tables, names = _stored()
    texts = tables["texts"].query("cause == '' and model == @model")
    row = perplexities(texts, experiment.ONE).set_index("variant").loc[experiment.MANY, CHANGE]
    return Measured(scaled(row), names, texts["question"].nunique())


@cache
def _real() -> tuple[Tables, list[str]]:
    real = experiment.within_length(LARGE)
    require(real.missing)
    return real.tables, [one.name for one in real.artifacts]


@declare("price-one-large", unit="percent", place=PRICE, otherwise=(
    "Short texts are {value} % {more|less} perplexing to smollm2-135m {ci} with one ratio of 1.5 "
    "in all layers but the first two than with ratios of 1 to 2 in all: {verdict}."))
def price_one_large() -> Measured:
    """Perplexity of the real model with one ratio, above that with many of the same mean."""
    tables, names = _real()
    row = perplexities(tables["texts"], LARGE_MANY).set_index("variant").loc[LARGE_ONE, CHANGE]
    return Measured(scaled(row), names, tables["texts"]["question"].nunique())


@declare("documents-change", unit="points", place=REAL, otherwise=(
    "Within the trained length, {variant} changes the questions that smollm2-135m answers by "
    "{value} points {ci}: {verdict}."))
def documents_change(variant: str) -> Measured:
    """Questions to documents that the real model answers under a variant, minus plain."""
    tables, names = _real()
    row = changes(tables["documents"], "correct").set_index("variant").loc[variant]
    return Measured.row(row, names, 100, clusters=int(row["clusters"]))
