"""One case looked at closely, which needles windows reach, and what ten real depths find."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from rmutils.attention.decoding import Answer, capturing, decode
from rmutils.core.errors import NotStored, UserError
from rmutils.core.results import Artifact, Compute
from rmutils.corpora.niah import NiahCase
from rmutils.heads.copy_score import copied
from rmutils.heads.detection import DetectConfig, build_cases, detect_stored, even_depths
from rmutils.heads.head_change import needle_weights, weighted_means
from rmutils.heads.scores import DECIMALS, Head, HeadScores
from rmutils.heads.sparsity import rank_correlations, share_above
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.caches import Trunk
from rmutils.models.engine.implementations import using
from rmutils.stats import ANY, POSITIVE, RESAMPLES, SHARE, interval, interval_of, spread

if TYPE_CHECKING:  # chapters that look at one case do not depend on the steps of RetMask
    from rmutils.core.experiment import Plan


def detect_stored_or_small(model: str, grid: DetectConfig, *,
                           compute: Compute) -> tuple[HeadScores, Artifact]:
    """Detection on a large grid, or on what a model's window and the stored results allow."""
    if compute != "always":
        with suppress(NotStored):
            return detect_stored(model, grid, compute="never")
    lm = load_model(model)
    if fitting := tuple(n for n in grid.lengths if n + grid.max_new_tokens <= lm.window):
        grid = grid.model_copy(update={"lengths": fitting})
    try:
        return detect_stored(lm, grid, compute=compute, named=model)
    except NotStored:
        small = grid.model_copy(update={"lengths": grid.lengths[:2],
                                        "depths": tuple(even_depths(3))})
        return detect_stored(lm, small, named=model)


def answer_case(lm: LanguageModel, case: NiahCase, *, max_new_tokens: int = 50) -> Answer:
    """The model's greedy answer to one case, with the arg-max rows of all heads."""
    with capturing(lm.model) as recorder:
        cache = Trunk(lm.model, []).read(case.input_ids, room=max_new_tokens)
        return decode(lm.model, recorder, [case.input_ids], [cache],
                      max_new_tokens=max_new_tokens, stop_ids=lm.stop_ids)[0]


def example() -> tuple[LanguageModel, NiahCase, Answer]:
    """The case on which readers of the guided build write the method themselves."""
    return deepcopy(_example())


@cache
def _example() -> tuple[LanguageModel, NiahCase, Answer]:
    lm = load_model("tiny-llama", device="cpu")
    lm.model.set_attn_implementation("eager")
    case = build_cases(lm, DetectConfig(lengths=[128], depths=[0.5]))[0]
    return lm, case, answer_case(lm, case)


@torch.inference_mode()
def attention_rows(lm: LanguageModel, case: NiahCase, answer: Answer,
                   heads: Sequence[Head]) -> np.ndarray:
    """The attention of some heads in the rows that decided the T tokens of an answer."""
    cache = Trunk(lm.model, []).read(case.input_ids, room=len(answer.tokens))
    read = torch.tensor([[case.input_ids[-1], *answer.tokens[:-1]]], device=lm.model.device)
    with using(lm.model, "eager"):  # the only one that gives its weights away
        layers = lm.model(input_ids=read, past_key_values=cache, use_cache=True,
                          output_attentions=True).attentions
    return np.stack([layers[layer][0, head].float().cpu().numpy() for layer, head in heads])


def trace(lm: LanguageModel, case: NiahCase, answer: Answer, head: Head) -> pd.DataFrame:
    """Equation 1 step by step for one head, a row per written token."""
    layer, index = head
    hits = copied(answer, case.input_ids, case.needle_span)[:, layer, index]
    seen: set[int] = set()
    rows = []
    looked = answer.positions[:, layer, index]
    for hit, token, position in zip(hits, answer.tokens, looked, strict=True):
        if hit:
            seen.add(int(position))
        there = case.input_ids[position] if position < len(case.input_ids) else None
        rows.append({
            "written": lm.tokenizer.decode([token]), "looks at": int(position),
            "token there": "" if there is None else lm.tokenizer.decode([there]),
            "in needle": bool(case.needle_span[0] <= position < case.needle_span[1]),
            "copied": bool(hit), "so far": len(seen),
        })
    return pd.DataFrame(rows)


WITHIN, BEYOND, ACROSS = "within the window", "beyond the window", "across its edge"
"""Where a needle stands for a sliding layer while the answer is written."""


def full_layers(layers: int, every: int) -> np.ndarray:
    """True for the last layer of each `every`: the full ones of Gemma 3 (6) and Olmo 3 (4)."""
    return np.arange(1, layers + 1) % every == 0


def sides(cases: pd.DataFrame, window: int, answer: int) -> np.ndarray:
    """`WITHIN`, `BEYOND` or `ACROSS` for each case."""
    if "needle_start" not in cases:
        raise UserError("this stored detection does not say where its needles stand. Make it "
                        "again, with the same command and `--compute always`.")
    start, last = cases["needle_start"], cases["prompt_tokens"] - 1
    within = start > last + answer - 1 - window
    beyond = start + cases["needle_tokens"] - 1 <= last - window
    return np.select([within, beyond], [WITHIN, BEYOND], ACROSS)


def split(scores: HeadScores, window: int, answer: int) -> dict[str, HeadScores]:
    """The scores of each side of the window, where any needle was found there."""
    place = sides(scores.cases, window, answer)
    found = scores.cases["success"].to_numpy()
    return {side: scores.where(place == side) for side in (WITHIN, BEYOND)
            if (found & (place == side)).any()}


def summarize(scores: HeadScores, *, window: int, every: int, tau: float, answer: int,
              resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Both sides of the window in numbers, each with a 95 % interval over needles."""
    place = sides(scores.cases, window, answer)
    full = full_layers(scores.shape[0], every)
    rows = []
    for side in (side for side in (WITHIN, BEYOND) if side in place):
        cases = scores.cases[place == side]
        rows.append((side, len(cases), "found", *interval(
            cases["success"], cases["needle"], bounds=SHARE, resamples=resamples, seed=seed)))
    for side, part in split(scores, window, answer).items():
        statistics = {
            "full_share": lambda means: means[:, full].sum((1, 2)) / np.maximum(
                means.sum((1, 2)), 1e-12),
            "heads": lambda means: (means >= tau).sum((1, 2)),
            "full_heads": lambda means: (means[:, full] >= tau).sum((1, 2)),
            "full_mean": lambda means: means[:, full].mean((1, 2)),
            "sliding_mean": lambda means: means[:, ~full].mean((1, 2))}
        for name, statistic in statistics.items():
            rows.append((side, int((place == side).sum()), name, *part.statistic(
                statistic, bounds=POSITIVE if name.endswith("heads") else SHARE,
                resamples=resamples, seed=seed)))
    return pd.DataFrame(rows, columns=["side", "cases", "statistic", "value", "low", "high"])


CHOICES = 50  # random choices of two places for each needle and length
REAL, COLLAPSED, RANDOM = "real", "collapsed", "two random places"
OVERLAP = "top heads in common"


def planned_grid(plan: Plan, model: str) -> DetectConfig:
    """Return the grid with real depths that is planned for a model."""
    grid = plan.content["grids"].get(model, plan.content["grids"]["teaching"])
    return DetectConfig(lengths=tuple(grid["lengths"]), depths=even_depths(grid["depths"]))


def depth_deviations(plan: Plan) -> list[str]:
    """Say what the plan wants beside the comparison and is not stored, in a sentence each."""
    model, grid = plan.content["models"][0], DetectConfig(
        definition="wu", lengths=(512, 1024), depths=even_depths(10), needles=3)
    try:
        detect_stored(model, grid, compute="never")
    except NotStored:
        return [f"The plan wants a detection of {model} by the published script's definition "
                "beside this comparison; it was not run."]
    return []


def compare_depths(scores: HeadScores, tau: float, *, resamples: int = RESAMPLES,
                   seed: int = 0) -> pd.DataFrame:
    """Compare the heads of a detection with those of its start and end alone."""
    cases = scores.cases
    table = np.zeros((len(cases), scores.mean.size + 1))
    table[cases["success"].to_numpy(bool), :-1] = scores.runs.reshape(len(scores.runs), -1)
    table[:, -1] = cases["success"]
    needles = cases["needle"].to_numpy()
    of_needle = (np.unique(needles)[:, None] == needles).astype(float)
    drawn = needle_weights(len(of_needle), resamples, seed)
    count = round(share_above(scores.mean, tau) * scores.mean.size)

    chosen = np.argsort(-scores.mean.ravel(), kind="stable")[:count]

    def means_of(times: np.ndarray) -> np.ndarray:
        """Mean scores, (draws, heads), if each case is counted so many times."""
        return weighted_means(of_needle @ (times[:, None] * table), drawn).round(DECIMALS)

    whole = means_of(np.ones(len(cases)))
    highest = _top(whole, count)

    def measured(times: np.ndarray) -> dict[str, np.ndarray]:
        means = means_of(times)
        found, asked = (drawn @ (of_needle @ part) for part in (times * table[:, -1], times))
        return {
            OVERLAP: (_top(means, count) & highest).sum(1) / count,
            "rank correlation": rank_correlations(whole, means),
            f"heads at or above {tau:g}": (means >= tau).sum(1).astype(float),
            "mean score, top heads": means[:, chosen].mean(1),
            "mean score, all heads": means.mean(1), "needles found": found / asked}

    depth = cases["depth"].to_numpy()
    real = measured(np.ones(len(cases)))
    collapsed = measured(np.where(depth == depth.min(), 9.0, depth == depth.max()))
    rng, places = np.random.default_rng(seed), [
        np.asarray(rows) for rows in cases.groupby(["needle", "length"]).indices.values()]
    total = dict.fromkeys(real, np.zeros(len(drawn)))
    for _ in range(CHOICES):
        times = np.zeros(len(cases))
        for rows in places:
            times[rng.choice(rows, 2, replace=False)] = 9, 1
        once = measured(times)
        total = {name: value + once[name] / CHOICES for name, value in total.items()}
    rows = []
    for name, value in real.items():
        change = collapsed[name] - total[name]
        _, low, high = interval_of(spread(change, len(of_needle)), bounds=ANY, centred=True)
        rows.append((name, value[0], collapsed[name][0], total[name][0], change[0], low, high))
    return pd.DataFrame(rows, columns=["quantity", REAL, COLLAPSED, RANDOM, "difference", "low",
                                       "high"])


def _top(means: np.ndarray, count: int) -> np.ndarray:
    """Mark the highest heads of each row."""
    marks = np.zeros(means.shape, bool)
    np.put_along_axis(marks, np.argsort(-means, axis=1, kind="stable")[:, :count], True, axis=1)
    return marks
