"""The worth of each head: needles lost when it is masked alone, and by many masked together."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.book.findings import NONE, SHOWN, Measured, declare, scaled
from rmutils.core.config import Config, command_line
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.evaluation.answers import find_needles
from rmutils.evaluation.formation import formation_stored, half_risen
from rmutils.heads import DetectConfig, choose, mask_heads
from rmutils.heads.detection import depends_on, detect_stored, even_depths, inputs_of
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef
from rmutils.stats import DIFFERENCE, SHARE, draws, interval, interval_of

ABLATION = Stage[Tables](
    "ablation", version=1, facts=lambda tables: {
        "maskings": tables["cases"]["heads"].nunique(), "cases": len(tables["cases"])})


class AblationConfig(Config):
    """The questions, and which heads count as others."""

    detect: DetectConfig = DetectConfig(lengths=(256, 512), depths=even_depths(5))
    """The detection that says which heads retrieve; that of the model cards."""
    grid: DetectConfig = DetectConfig(lengths=(512,), depths=even_depths(5))
    """The paper masks all retrieval heads at once and no head alone; the questions are ours."""
    tau: float = 0.1
    """Lowest score of a retrieval head (section 4.1, Llama-3.1)."""
    draws: Annotated[int, Field(ge=1)] = 5
    """Sets of other heads, as many as there are retrieval heads, that are masked together."""
    seed: int = 0
    """Seed of the first of them."""


def ablate(lm: LanguageModel, scores: HeadScores, config: AblationConfig, *,
           journal: Path | None = None) -> pd.DataFrame:
    """Ask for the same needles of the whole model, without each head, and without sets."""
    layers, heads = lm.shape
    plan: dict[str, tuple[int, list[Head]]] = {"": (-1, [])}
    plan |= {f"{i}.{j}": (-1, [(i, j)]) for i in range(layers) for j in range(heads)}
    for draw in range(config.draws):
        others = choose(scores, "non-retrieval", tau=config.tau, seed=config.seed + draw)
        plan[" ".join(f"{i}.{j}" for i, j in sorted(others))] = draw, others
    kept = Journal(journal, depends_on(lm, config, config.grid))
    todo = [name for name in plan if name not in kept]
    with progress_bar(f"ablations of {lm.name}", len(plan), unit="maskings",
                      done=len(plan) - len(todo)) as advance:
        for name in todo:
            with mask_heads(lm, plan[name][1]):
                found = find_needles(lm, config.grid)
            kept[name] = found.drop(columns="response").to_dict("list")
            advance(1)
    return pd.concat([
        pd.DataFrame(kept[name]).assign(
            heads=name, draw=draw, score=max((scores.mean[head] for head in masked), default=0.0))
        for name, (draw, masked) in plan.items()], ignore_index=True)


def ablate_stored(model: str, config: AblationConfig = AblationConfig(), *,
                  compute: Compute = "auto") -> tuple[pd.DataFrame, Artifact]:
    """`ablate` of a model by its name, but a stored result is read instead."""

    ref = ModelRef(model)

    def make(journal: Path) -> Tables:
        lm = ref.load()
        scores, _ = detect_stored(lm, config.detect, named=model)
        return {"cases": ablate(lm, scores, config, journal=journal)}

    tables, artifact = ABLATION.obtain(
        config, inputs_of(ref.identity, config.grid, ref.corpus), make, compute=compute,
        command=command_line("run", "teaching_models", "-p", "compute_ablation", "auto"),
        model=model)
    return tables["cases"], artifact


def losses(cases: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Needles lost by each masking, as a share of all."""
    order = cases["heads"].drop_duplicates()
    found = cases.pivot_table(index=["needle", "length", "depth"], columns="heads",
                              values="success", aggfunc="first").astype(float)[order]
    lost = found[[""]].to_numpy() - found.drop(columns="").to_numpy()
    drawn = draws(lost, found.index.get_level_values("needle"))
    table = cases.drop_duplicates("heads")[["heads", "draw", "score"]].iloc[1:]
    loss, low, high = interval_of(drawn, bounds=DIFFERENCE)
    return table.assign(loss=loss, low=low, high=high).reset_index(drop=True), drawn


def together(cases: pd.DataFrame) -> pd.DataFrame:
    """Loss of heads masked together, and the sum of what is lost by each of them alone."""
    table, drawn = losses(cases)
    place = {name: i for i, name in enumerate(table["heads"])}
    sets = table.index[table["draw"] >= 0]
    alone = [[place[name] for name in table["heads"][i].split()] for i in sets]
    return pd.DataFrame({
        "together": interval_of(drawn[:, sets].mean(1), bounds=DIFFERENCE),
        "sum of each alone": interval_of(np.mean([drawn[:, part].sum(1) for part in alone], axis=0),
                                         bounds=(-len(alone[0]), len(alone[0]))),
    }, index=["value", "low", "high"]).T


MASKED, ALONE = "fig-tiny-masked", "fig-heads-alone"
FORMED, BEGUN_BY = "fig-formation", "fig-timeline"


@declare("teaching-needles-found", unit="percent", place=MASKED, otherwise=(
    "{state}, the model finds {value} % of the needles {ci}."))
def needles_found(found: pd.DataFrame, state: str) -> Measured:
    """Share of needles found in a state, as `rmutils.evaluation.answers.find_needles` tells it."""
    share = interval(found["success"], found["needle"], bounds=SHARE,
                     cases=found["needle"].nunique())
    return Measured(scaled(share), (), found["needle"].nunique(), verdict=NONE)


@declare("other-heads-together", unit="points", place=ALONE, otherwise=(
    "Without sets of other heads, {model} finds {value} points fewer needles {ci}: {verdict}."))
def other_heads_together(model: str) -> Measured:
    """Needles lost without as many other heads as there are retrieval heads, a mean over sets."""
    cases, artifact = ablate_stored(model, compute="never")
    return Measured(scaled(together(cases).loc["together"]), [artifact], cases["needle"].nunique())


@declare("strongest-head", unit="percent", place=FORMED, otherwise=(
    "The head of {model} that retrieves most copies {value} % of a needle {ci}."))
def strongest_head(model: str) -> Measured:
    """Forced score of the highest head at the end of training."""
    formed, artifact = formation_stored(model, compute="never")
    risen = half_risen(formed)
    return Measured(scaled((risen["score"], risen["low"], risen["high"])), [artifact],
                    verdict=SHOWN)


BEGUN, HALF_FOUND = 0.25, 0.5
"""A head has begun to copy, or to match prefixes, at a quarter; needles are found at half of the
final share."""


@declare("formation-step", unit="steps", place=BEGUN_BY, otherwise=(
    "By step {value}, {model} has begun: {what}."))
def formation_step(model: str,
                   what: Literal["retrieval", "prefix_matching", "needles"]) -> Measured:
    """First snapshot in which some head scores a quarter, or half of the needles are found that
    are found at the end."""
    formed, artifact = formation_stored(model, compute="never")
    if what == "needles":
        steps = formed.steps
        reached = steps["step"][steps["found"] >= HALF_FOUND * steps["found"].iloc[-1]]
    else:
        reached = formed.heads["step"][formed.heads[what] >= BEGUN]
    return Measured.count(reached.min(), [artifact], model=model, what=what)
