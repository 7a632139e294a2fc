"""The gain of RetMask on a model that it was not run on, judged by sparsity (section 5.2).

"RetMask's effectiveness correlates with the sparsity of the retrieval score distribution", says the
paper. If so, models on which the gain is known predict that on another: gain = a + b x sparsity,
by least squares, with the interval in which one more model of their kind is expected. When such a
line is no forecast was fixed before any was drawn: see `reasons_against`.

Any checkpoint through what the book does with its own models: detection, sparsity, masking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.book.chapters.masking_sweep.experiment import (
    Sweep,
    SweepConfig,
    count_at,
    sweep_stored,
)
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.results import Artifact, Compute
from rmutils.evaluation.teaching_card import DETECTION
from rmutils.heads import HeadScores, sparsity
from rmutils.heads.detection import DetectConfig, detect_stored
from rmutils.models import LanguageModel, load_model
from rmutils.models.known_models import check, tau_of
from rmutils.stats import fit_line

FEWEST = 4
"""Models that a forecast needs. Three leave one degree of freedom, and an interval of no use."""


@dataclass(frozen=True)
class Line:
    """Gain against sparsity over models on which both are known.

    `known`: `model`, `sparsity`, `gain` (points of 0 to 100), three rows or more.
    `slope_low`, `slope_high`: Its 95 % interval.
    `error`, `error_of_mean`: Mean absolute error in points when each model in turn is predicted by
    the others: by their line, and by their mean gain without a look at sparsity.
    """

    known: pd.DataFrame
    intercept: float
    slope: float
    slope_low: float
    slope_high: float
    error: float
    error_of_mean: float

    def at(self, sparsity: np.ndarray | float) -> np.ndarray:
        """Gain with its 95 % prediction interval, in points.

        Result: (..., 3): value, low, high, for one more model. Normal, independent errors are
        assumed.
        """
        return np.stack(fit_line(self.known["sparsity"], self.known["gain"]).at(sparsity), axis=-1)


@dataclass(frozen=True)
class Forecast:
    """The prediction of a line for a model.

    `known`: `model`, `sparsity`, `gain` of the models on which both are known.
    `line`: Through them; None: they are too few.
    `value`, `low`, `high`: Gain in points with its 95 % prediction interval, which also holds the
    interval of the model's own sparsity; NaN without a line.
    `reasons`: Why this is no forecast; empty if it is one.
    """

    known: pd.DataFrame
    line: Line | None
    value: float
    low: float
    high: float
    reasons: tuple[str, ...]

    @property
    def models(self) -> int:
        """Their number."""
        return len(self.known)


def fit(known: pd.DataFrame) -> Line | None:
    """The line through models with known `sparsity` and `gain`; None for fewer than three."""
    x, y = known["sparsity"].to_numpy(float), known["gain"].to_numpy(float)
    if len(x) < 3:
        return None
    line = fit_line(x, y)
    misses = []
    for left_out in range(len(x)):
        others, gains = np.delete(x, left_out), np.delete(y, left_out)
        by_line = np.poly1d(np.polyfit(others, gains, 1))(x[left_out])
        misses.append((abs(y[left_out] - by_line), abs(y[left_out] - gains.mean())))
    return Line(known, line.intercept, *line.slope, *map(float, np.mean(misses, axis=0)))


def forecast(known: pd.DataFrame, sparsity: tuple[float, float, float]) -> Forecast:
    """Predict the gain on a model.

    `known`: `model`, `sparsity`, `gain` of models of one kind; rows without either do not count.
    """
    known = known.reindex(columns=["model", "sparsity", "gain"]).dropna()
    line = fit(known)
    if line is None:
        return Forecast(known, None, np.nan, np.nan, np.nan,
                        (f"of such models, sparsity and gain are known of {len(known)} only",))
    drawn = line.at(np.array(sparsity))
    return Forecast(known, line, float(drawn[0, 0]), float(drawn[:, 1].min()),
                    float(drawn[:, 2].max()), tuple(reasons_against(line, sparsity[0])))


def reasons_against(line: Line, sparsity: float) -> list[str]:
    """Say why a line does not predict the gain at some sparsity; empty if it does.

    There must be `FEWEST` models; the interval of the slope must exclude zero; the line through the
    others must predict a left-out model better, on average, than their mean gain does; and the
    sparsity must lie within that of the models.
    """
    count, lowest, highest = len(line.known), *line.known["sparsity"].agg(["min", "max"])
    against = []
    if count < FEWEST:
        against.append(f"{count} models are fewer than the {FEWEST} that a line with an interval "
                       "needs")
    if line.slope_low <= 0 <= line.slope_high:
        against.append("a gain that goes with sparsity is not seen in them: the slope is "
                       f"{line.slope:.0f} points per unit of sparsity [{line.slope_low:.0f}, "
                       f"{line.slope_high:.0f}]")
    if line.error >= line.error_of_mean:
        against.append("on average the line through the others misses a left-out model by "
                       f"{line.error:.2f} points, their mean by {line.error_of_mean:.2f}")
    if not lowest <= sparsity <= highest:
        against.append(f"this model's sparsity, {sparsity:.3f}, is outside of theirs, "
                       f"{lowest:.3f} to {highest:.3f}")
    return against


class OwnModelConfig(Config):
    """The measurements of a model. Those that its window or its number of heads has no room for are
    left out: see `fitted`."""

    detect: DetectConfig = DETECTION
    """Section 4.1 has 20 lengths up to 5K and 10 depths; two and five are minutes instead of hours.
    """
    sweep: SweepConfig = SweepConfig()
    """Appendix B masks the highest heads of one model; how many and what is asked is ours."""
    tau: float | None = Field(None, gt=0)
    """Threshold of a retrieval head; None: the model's own where the book knows one, else 0.1."""


@dataclass(frozen=True)
class OwnModel:
    """Results on a model.

    `name`: As given by its maker: a folder or file may be called anything.
    `facts`: What the model is, in words.
    `sparsity`: As from `rmutils.heads.sparsity.summarize`.
    `sweep`: None where the model cannot be given instructions.
    `artifacts`: Where all of it is stored.
    """

    name: str
    facts: dict[str, str]
    tau: float
    scores: HeadScores
    sparsity: pd.DataFrame
    sweep: Sweep | None
    artifacts: tuple[Artifact, ...]

    @property
    def reached(self) -> int:
        """Number of heads that reach tau."""
        return count_at(self.scores, self.tau)


def examine(
    model: str, config: OwnModelConfig = OwnModelConfig(), *, compute: Compute = "auto",
    command: str,
) -> OwnModel:
    """Measure a model. Each part is stored when it is done, and one that was stopped goes on."""
    lm = load_model(model)
    check(lm)
    config, facts, chat = fitted(config, lm), describe(lm), lm.chat
    name = lm.name or Path(model).resolve().name  # of the working directory
    del lm  # what is stored is not computed, and then the memory is free for others
    scores, detection = detect_stored(model, config.detect, compute=compute)
    artifacts, swept = [detection], None
    if chat:
        swept, artifact = sweep_stored(model, scores, config.sweep, compute=compute,
                                       command=command)
        artifacts.append(artifact)
    tau = tau_of(model) if config.tau is None else config.tau
    return OwnModel(name, facts, tau, scores, sparsity.summarize(scores), swept, tuple(artifacts))


def fitted(config: OwnModelConfig, lm: LanguageModel) -> OwnModelConfig:
    """Without lengths that the window has no room for, and counts that are above the number of
    heads.
    """
    room = lm.window - config.detect.max_new_tokens
    lengths = [length for length in config.detect.lengths if length <= room]
    if not lengths:
        raise UserError(f"the window of {lm.name} has {lm.window} tokens, and all lengths plus "
                        f"{config.detect.max_new_tokens} of answer are longer. Choose lengths up "
                        f"to {room}.")
    heads = math.prod(lm.shape)
    counts = [count for count in config.sweep.counts if count <= heads]
    return config.changed({
        "detect.lengths": lengths, "sweep.counts": counts or [max(heads // 4, 1)],
        "sweep.length": min(config.sweep.length, lm.window - config.sweep.max_new_tokens)})


def describe(lm: LanguageModel) -> dict[str, str]:
    """Describe a model in words."""
    config = lm.model.config
    layers, heads = lm.shape
    shared = getattr(config, "num_key_value_heads", None) or heads
    return {
        "family": lm.family,
        "size": f"{sum(p.numel() for p in lm.model.parameters()) / 1e6:,.1f} million parameters, "
                + str(lm.model.dtype).removeprefix("torch."),
        "heads": f"{layers} layers of {heads} ({shared} key heads)",
        "window": f"{lm.window:,} tokens",
        "prompt": "chat template" if lm.chat else "plain text: it has no chat template",
        "text": {"book": "essays of this book", "world": "the invented world"}[lm.corpus],
    }
