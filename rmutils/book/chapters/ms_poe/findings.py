"""What positions on other scales gain beyond the trained length, and what they cost within it."""

from functools import cache

from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.ms_poe import experiment
from rmutils.book.experiments.under_variants import changes, perplexities
from rmutils.book.findings import Measured, declare, scaled
from rmutils.core.errors import require
from rmutils.core.experiment import Experiment, load_plan
from rmutils.core.results import Artifact, Tables

STRAINED, CAUSES, PRICE = "fig-ms-poe-strained", "ms-poe-causes", "fig-ms-poe-price"
SCALED, REAL = "ms-poe-scales", "fig-ms-poe-real"
LARGE = "smollm2-135m"
LARGE_MANY, LARGE_ONE = "1 to 2", "all 1.5"
"""Ratios of the same mean on the real model; the one ratio leaves its first two layers alone."""
Positions = Experiment[experiment.PositionsConfig, Artifact]
CHANGE = ["change", "change_low", "change_high"]


@cache
def _stored(of: Positions = experiment.POSITIONS) -> tuple[Tables, list[Artifact]]:
    tables, runs = experiment.positions(of)
    require([of.command] if not tables or runs.missing else [])
    return tables, runs.artifacts


def _middle(model: str, variant: str, base: str = PLAIN,
            of: Positions = experiment.POSITIONS) -> Measured:
    """Needles found in the middle of a text beyond the trained length, minus those under `base`."""
    tables, names = _stored(of)
    asked = tables["needles"].query("cause == '' and variant in [@variant, @base]")
    rows = experiment.gains(asked, base).query("model == @model and part == 'middle'")
    return Measured.row(rows.iloc[0], names, 100, clusters=asked["question"].nunique(),
                        model=model, variant=variant, base=base)


@declare("middle-gain", unit="points", place=STRAINED, otherwise=(
    "Beyond its trained length, {model} finds {value} points {more|fewer} needles in the middle "
    "{ci} under {variant}: {verdict}."))
def middle_gain(model: str, variant: str = experiment.MANY) -> Measured:
    """Needles found in the middle of 1,024 tokens under a variant, minus plain."""
    return _middle(model, variant)


@declare("many-lead", unit="points", place=STRAINED, otherwise=(
    "Under ratios of {variant}, {model} finds {value} points {more|fewer} needles in the middle "
    "{ci} than under {base}: {verdict}."))
def many_lead(model: str, base: str = experiment.ONE) -> Measured:
    """Needles found in the middle under many ratios, minus under one, or in the reversed order."""
    return _middle(model, experiment.MANY, base)


@declare("scales-gain", unit="points", place=SCALED, otherwise=(
    "Beyond its trained length, {model} finds {value} points {more|fewer} needles in the middle "
    "{ci} under {variant} than under {base}: {verdict}."))
def scales_gain(model: str, variant: str, base: str = PLAIN) -> Measured:
    """Needles found under ratios that the summary recommends, or under ratios on YaRN."""
    return _middle(model, variant, base, experiment.SCALES)


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
