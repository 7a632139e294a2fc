"""What the chapter says: six methods after one fine-tune each, and the recipe without a part."""

from functools import cache

import pandas as pd

from rmutils.book.chapters.olmo3_recipe import ablations, experiment, yarn_by_ruler
from rmutils.book.chapters.olmo3_recipe.ablations import ARMS, RECIPE, RECIPE_PARTS
from rmutils.book.chapters.olmo3_recipe.experiment import Extension, at_end
from rmutils.book.findings import NONE, Measured, declare
from rmutils.core.errors import require
from rmutils.longcontext.extension import ExtensionConfig

MODEL, FULL, ALL = "tiny-olmo3", "YaRN, full layers", "YaRN, all layers"
FOUND, BUDGET = "fig-extended", "fig-budget"
LOSS, PARTS, RULER = "fig-loss-by-position", "fig-recipe-parts", "fig-ruler"


@cache
def fine_tunes(model: str, config: ExtensionConfig) -> tuple[Extension, str]:
    """Look up the stored fine-tunes of all methods, and their name."""
    ours, artifact = experiment.extension_stored(model, config, compute="never")
    return ours, artifact.name


def _measured(table: pd.DataFrame, name: str, scale: float = 1, **words: object) -> Measured:
    """One row; at the longest texts where there are several lengths."""
    row = table.loc[table["length"].idxmax()] if "length" in table else table.iloc[0]
    return Measured.row(row, [name], scale, **words)


@declare("facts-found", unit="percent", place=FOUND, otherwise=(
    "With {method}, {value} % of the facts {ci} are found in the longest texts."))
def facts_found(method: str, model: str = MODEL,
                config: ExtensionConfig = ExtensionConfig()) -> Measured:
    """Share of facts found in the longest texts after the fine-tune."""
    ours, name = fine_tunes(model, config)
    found = experiment.shares(at_end(ours.found))
    return _measured(found[found["method"] == method], name, 100, method=method)


@declare("facts-beside-yarn", unit="points", place=FOUND, otherwise=(
    "With {method}, {value} points {more|fewer} facts {ci} are found in the longest texts than "
    "with YaRN on full layers: {verdict}."))
def facts_beside_yarn(method: str, model: str = MODEL,
                      config: ExtensionConfig = ExtensionConfig()) -> Measured:
    """The same, minus that of YaRN on full layers."""
    ours, name = fine_tunes(model, config)
    less = experiment.differences(at_end(ours.found), FULL)
    return _measured(less[less["method"] == method], name, 100, method=method)


@declare("loss-beside-yarn", unit="nats per token", place=LOSS, otherwise=(
    "With {method}, a token of the longest texts costs {value} nats {more|less} {ci} than with "
    "YaRN on full layers (one fine-tune each): {verdict}."))
def loss_beside_yarn(method: str, model: str = MODEL,
                     config: ExtensionConfig = ExtensionConfig()) -> Measured:
    """Loss along the longest texts, minus that of YaRN on full layers, after one fine-tune each."""
    ours, name = fine_tunes(model, config)
    more = experiment.loss_change(at_end(ours.losses), FULL, by=())
    return _measured(more[more["method"] == method], name, method=method)


@declare("facts-gained", unit="points", place=BUDGET, otherwise=(
    "With {method}, the fine-tune changes the facts found in the longest texts by {value} points "
    "{ci}: {verdict}."))
def facts_gained(method: str, model: str = MODEL,
                 config: ExtensionConfig = ExtensionConfig()) -> Measured:
    """Facts found in the longest texts after the fine-tune, minus before it."""
    ours, name = fine_tunes(model, config)
    return _measured(experiment.gained(ours.found, method), name, 100, method=method)


@declare("loss-of-tokens", unit="nats per token", place=BUDGET, otherwise=(
    "The fine-tune changes the loss by {value} nats per token {ci} (one run): {verdict}."))
def loss_of_tokens(model: str = MODEL, config: ExtensionConfig = ExtensionConfig()) -> Measured:
    """Loss of YaRN on full layers after its fine-tune, minus before it."""
    ours, name = fine_tunes(model, config)
    own = ours.losses[ours.losses["method"] == FULL]
    change = experiment.loss_change(own.assign(method=own["tokens"]), 0, by=())
    return _measured(change[change["method"] == own["tokens"].max()], name)


@cache
def parts_at_end() -> tuple[ablations.RecipeParts, pd.DataFrame]:
    """Look up the runs without a part, and what each changes after all tokens."""
    parts = ablations.recipe_parts()
    if parts is None or not parts.complete:
        require([RECIPE_PARTS.command])
    effects = ablations.arm_effects(parts)
    last = effects[effects["tokens"] == effects["tokens"].max()]
    return parts, last.set_index(["measure", "arm"])


def _part(measure: str, arm: str, scale: float = 1) -> Measured:
    row = parts_at_end()[1].loc[(measure, arm)]
    return Measured.row(row, [], scale, p="p_holm", part=ARMS[arm].part)


@declare("part-loss", unit="nats per token", place=PARTS, otherwise=(
    "Without {part}, a token of the longest texts costs {value} nats {more|less} {ci}: {verdict}."))
def part_loss(arm: str) -> Measured:
    """Loss of the recipe without a part, minus that of the whole recipe."""
    return _part("loss", arm)


@declare("part-facts", unit="points", place=PARTS, otherwise=(
    "Without {part}, {value} points {more|fewer} facts {ci} are found: {verdict}."))
def part_facts(arm: str) -> Measured:
    """Facts found by the recipe without a part, minus those by the whole recipe."""
    return _part("found", arm, 100)


@declare("seeds-differ", unit="nats per token", place=PARTS, otherwise=(
    "Final losses of {seeds} seeds of one recipe differ by {value} nats per token."))
def seeds_differ() -> Measured:
    """Span of the final losses of one recipe over its seeds: what single runs may differ by."""
    losses = parts_at_end()[0].losses
    own = losses[(losses["tokens"] == losses["tokens"].max()) & (losses["arm"] == RECIPE)]
    by_seed = own.groupby("seed")["loss"].mean()
    return Measured.count(by_seed.max() - by_seed.min(), seeds=len(by_seed))


def _ruler(model: str, *arms: str) -> tuple[pd.DataFrame, list[str]]:
    table, runs = yarn_by_ruler.ruler_scores()
    asked = [(model, arm) for arm in arms]
    require([runs.missing[run] for run in asked if run in runs.missing])
    return table, [runs.stored[run].name for run in asked]


@declare("ruler-score", unit="points", place=RULER, otherwise=(
    "{model} gets {value} of RULER's 100 points {ci}, {arm}."))
def ruler_score(model: str, arm: str = yarn_by_ruler.TRAINED) -> Measured:
    """RULER score of a model in an arm, over all its lengths."""
    table, names = _ruler(model, arm)
    row = yarn_by_ruler.means(table).query("model == @model and arm == @arm").iloc[0]
    return Measured.row(row, names, verdict=NONE, model=model, arm=arm)


@declare("ruler-gain", unit="points", place=RULER, otherwise=(
    "With YaRN {model} has {value} {more|fewer} of RULER's points {ci}: {verdict}."))
def ruler_gain(model: str = MODEL) -> Measured:
    """RULER score with YaRN, minus that of the model as trained."""
    table, names = _ruler(model, yarn_by_ruler.TRAINED, yarn_by_ruler.YARN)
    row = yarn_by_ruler.differences(table).set_index("model").loc[model]
    return Measured.row(row, names, clusters=int(row["questions"]), p="p_holm", model=model)
