"""Which part of the Olmo 3 recipe brings the gain? Fine-tunes without one of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd
import torch

from rmutils.book.chapters.olmo3_recipe.experiment import TABLES, run_method
from rmutils.core.config import Config
from rmutils.core.experiment import Experiment, Plan
from rmutils.core.journal import one_thread, progress_bar
from rmutils.core.results import Artifact, Compute, write_tables
from rmutils.longcontext.extension import Document, ExtensionConfig, instances, trained_window
from rmutils.longcontext.packing import Packing, best_fit, concatenate_and_split
from rmutils.longcontext.reach import ReachConfig
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.teaching import RECIPES, TeachingRecipe
from rmutils.stats import compare


@dataclass(frozen=True)
class Arm:
    """The recipe, or the recipe without a part."""

    label: str  # for figures
    part: str = ""  # what it leaves out, for sentences: without ...
    # Kinds of documents (`cwe`, `rex`) that lose their questions. What these leave is padding: no
    # document moves to another instance.
    without: tuple[str, ...] = ()
    pack: Callable[[Sequence[int], int], Packing] = best_fit
    isolated: bool = True  # whether documents of an instance are masked from each other


RECIPE = "recipe"
ARMS = {
    RECIPE: Arm("the whole recipe"),
    "no-rex": Arm("CWE alone", "REX", without=("rex",)),
    "natural": Arm("no questions", "CWE and REX", without=("cwe", "rex")),
    "split": Arm("concatenated and cut", "best fit", pack=concatenate_and_split),
    "unmasked": Arm("no masks", "masks between documents", isolated=False),
}
"""By their names in the plan."""


def arm_instances(lm: LanguageModel, recipe: TeachingRecipe, config: ExtensionConfig,
                  arm: str) -> list[list[Document]]:
    """Return the documents of each step of an arm, a key of `ARMS`."""
    part = ARMS[arm]
    packed = [[one.without_questions() if one.kind in part.without else one for one in documents]
              for documents in instances(lm, recipe, config, look_ups=False, pack=part.pack)]
    if part.isolated:
        return packed
    return [[Document("several", [i for one in documents for i in one.ids],  # one, which sees all
                      [w for one in documents for w in (0.0, *one.weights[1:])])]
            for documents in packed]


class PartConfig(Config):
    """One run: an arm with a seed."""

    model: str
    """A teaching model with a recipe."""
    arm: str
    """A key of `ARMS`."""
    extension: ExtensionConfig
    """One method, its fine-tune and what is asked; `seed` is the run's."""


@dataclass(frozen=True)
class RecipeParts:
    """The stored runs of the plan."""

    # `arm`, `seed`, `tokens` (of the fine-tune so far), `length`, `text`, `depth`, `found`.
    found: pd.DataFrame
    losses: pd.DataFrame  # `arm`, `seed`, `tokens`, `text`, `position`, `loss` (nats per token)
    done: list[tuple[str, int]]  # arm and seed of each run that is stored
    planned: int  # runs of the plan
    deviations: list[str]  # what is not as the plan says

    @property
    def complete(self) -> bool:
        """True if no planned run is missing."""
        return len(self.done) == self.planned


def planned(plan: Plan) -> list[PartConfig]:
    """Return all runs in the order in which they are made."""
    p = plan.content
    tuning, asked = p["fine_tune"], p["asked"]
    config = ExtensionConfig(
        methods=(p["method"],), studied=(p["method"],), steps=tuning["steps"],
        factor=tuning["tokens_each"] / trained_window(RECIPES[p["model"]]),
        learning_rate=tuning["learning_rate"],
        checkpoints=tuple(share for share in tuning["checkpoints"] if share < 1),
        reach=ReachConfig(lengths=(asked["length"],), texts=asked["texts"],
                          questions=asked["questions"], seed=asked["seed"]))
    return [PartConfig(model=p["model"], arm=arm, extension=config.changed({"seed": seed}))
            for seed, arm in product(range(p["seeds"]), p["arms"])]


def _make(config: PartConfig, folder: Path) -> dict[str, int]:
    """Write the tables of `olmo3_recipe.experiment.Extension`, but for `method`."""
    name, asked = config.model, config.extension
    method, = asked.methods
    after = [steps for steps in asked.asked_after(method) if steps]
    packed = arm_instances(load_model(name, dtype=torch.float32), RECIPES[name], asked, config.arm)
    total = asked.steps + len(after) * asked.reach.texts * len(asked.reach.lengths)
    with one_thread(), progress_bar(
            f"{config.arm}, seed {asked.seed}", total, unit="steps and texts") as advance:
        rows = run_method(name, method, asked, packed, advance, after)
    write_tables({table: pd.DataFrame(rows[table]) for table in TABLES}, folder)
    return {"steps": len(packed)}


RECIPE_PARTS = Experiment[PartConfig, Artifact](
    name="recipe-part", config=PartConfig, plan="olmo3_ablations", planned=planned,
    keys=("arm", "extension.seed"), make=_make,
    label=lambda run: f"{run.arm}-seed{run.extension.seed}",
    inputs=lambda run: {"model": identify(run.model, torch.float32),
                        "recipe": RECIPES[run.model].digest()},
    notebook="14_olmo3_recipe", parameter="compute_parts")


def recipe_parts(*, compute: Compute = "never") -> RecipeParts | None:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    runs = RECIPE_PARTS.collect(compute=compute)
    return RecipeParts(runs.table("found"), runs.table("losses"), [*runs.stored],
                       len(runs.planned), runs.deviations) if runs.stored else None


def arm_effects(parts: RecipeParts) -> pd.DataFrame:
    """Compare each arm with the recipe, at all checkpoints."""
    losses = parts.losses.groupby(["arm", "seed", "tokens", "text"], sort=False)["loss"].mean()
    tables = {
        "loss": losses.rename("score").reset_index().assign(sample=lambda table: table["text"]),
        "found": parts.found.assign(score=parts.found["found"].astype(float),
                                    sample=parts.found["depth"])}
    seeds = {seed for arm, seed in parts.done if arm == RECIPE}
    rows = []
    for measure, table in tables.items():
        table = table[table["seed"].isin(seeds)].rename(
            columns={"arm": "strategy", "text": "cluster"})
        rows += [compare(part, RECIPE).assign(measure=measure, tokens=tokens)
                 for tokens, part in table.groupby("tokens") if part["strategy"].nunique() > 1]
    columns = ["measure", "tokens", "arm", "effect", "low", "high", "p", "p_holm",
               "smallest_effect", "seeds"]
    return pd.concat(rows, ignore_index=True).rename(columns={"strategy": "arm"})[columns] if (
        rows) else pd.DataFrame(columns=columns)
