"""Any checkpoint through the book's measurements, and RetMask's gain predicted from sparsity."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.book.chapters.masking_sweep import experiment
from rmutils.book.chapters.masking_sweep import sweet_spot as along
from rmutils.book.experiments.sweep_questions import HAYSTACK, NEXT_WORDS
from rmutils.book.findings import Measured, declare, scaled
from rmutils.core.config import Config
from rmutils.core.errors import NotStored, UserError
from rmutils.core.results import Artifact, Compute
from rmutils.evaluation.teaching_card import DETECTION
from rmutils.heads import HeadScores, sparsity
from rmutils.heads.detection import DetectConfig, detect_stored
from rmutils.models import LanguageModel, load_model
from rmutils.models.known_models import check, tau_of
from rmutils.stats import Line, fit_line

FEWEST = 4
"""Models that a forecast needs. Three leave one degree of freedom, and an interval of no use."""
TOO_FEW, NO_SLOPE, NO_BETTER, OUTSIDE = (
    "fewer than four models", "slope undecided", "mean predicts as well", "sparsity outside")
"""Why a line is no forecast."""


@dataclass(frozen=True)
class Forecast:
    """The prediction of a line for a model."""

    known: pd.DataFrame  # `model`, `sparsity`, `gain` of the models on which both are known
    line: Line | None  # through them; None: they are too few
    # `value`, `low`, `high`: Gain in points with its 95 % prediction interval, which also holds the
    # interval of the model's own sparsity; NaN without a line.
    value: float
    low: float
    high: float
    reasons: tuple[str, ...]  # why this is no forecast; empty if it is one

    @property
    def models(self) -> int:
        """Their number."""
        return len(self.known)


def forecast(known: pd.DataFrame, sparsity: tuple[float, float, float]) -> Forecast:
    """Predict the gain on a model.
    `known`: `model`, `sparsity`, `gain` of models of one kind; rows without either do not count."""
    known = known.reindex(columns=["model", "sparsity", "gain"]).dropna()
    if len(known) < 3:
        return Forecast(known, None, np.nan, np.nan, np.nan, (TOO_FEW,))
    line = fit_line(known["sparsity"], known["gain"])
    drawn = line.at(np.array(sparsity))
    unmet = tuple(name for name, met in conditions(line, sparsity[0]).items() if not met)
    return Forecast(known, line, float(drawn.value[0]), float(drawn.low.min()),
                    float(drawn.high.max()), unmet)


def conditions(line: Line, sparsity: float) -> dict[str, bool]:
    """Return the conditions of a forecast at some sparsity, and whether they are met. There must be
    `FEWEST` models; the interval of the slope must exclude zero; the line through the others must
    predict a left-out model better, on average, than their mean gain does; and the sparsity must
    lie within that of the models."""
    error, error_of_mean = line.errors()
    return {TOO_FEW: len(line.x) >= FEWEST,
            NO_SLOPE: not line.slope.low <= 0 <= line.slope.high,
            NO_BETTER: error < error_of_mean,
            OUTSIDE: bool(line.x.min() <= sparsity <= line.x.max())}


class OwnModelConfig(Config):
    """The measurements of a model."""

    detect: DetectConfig = DETECTION
    """Section 4.1 has 20 lengths up to 5K and 10 depths; two and five are minutes instead of hours.
    """
    sweep: experiment.SweepConfig = experiment.SweepConfig()
    """Appendix B masks the highest heads of one model; how many and what is asked is ours."""
    tau: float | None = Field(None, gt=0)
    """Threshold of a retrieval head; None: the model's own where the book knows one, else 0.1."""


@dataclass(frozen=True)
class OwnModel:
    """Results on a model."""

    name: str  # as given by its maker: a folder or file may be called anything
    facts: dict[str, str]  # what the model is, in words
    tau: float
    scores: HeadScores
    sparsity: pd.DataFrame  # as from `rmutils.heads.sparsity.summarize`
    sweep: experiment.Sweep | None  # None where the model cannot be given instructions
    artifacts: tuple[Artifact, ...]  # where all of it is stored

    @property
    def reached(self) -> int:
        """Number of heads that reach tau."""
        return experiment.count_at(self.scores, self.tau)


def examine(model: str, config: OwnModelConfig = OwnModelConfig(), *, compute: Compute = "auto",
            command: str) -> OwnModel:
    """Measure a model. Each part is stored when it is done, and one that was stopped goes on."""
    lm = load_model(model)
    check(lm)
    config, facts, chat = fitted(config, lm), describe(lm), lm.chat
    name = lm.name or Path(model).resolve().name  # of the working directory
    del lm  # what is stored is not computed, and then the memory is free for others
    scores, detection = detect_stored(model, config.detect, compute=compute)
    artifacts, swept = [detection], None
    if chat:
        swept, artifact = experiment.sweep_stored(model, scores, config.sweep, compute=compute,
                                       command=command)
        artifacts.append(artifact)
    tau = tau_of(model) if config.tau is None else config.tau
    return OwnModel(name, facts, tau, scores, sparsity.summarize(scores), swept, tuple(artifacts))


def curves(own: OwnModel) -> dict[str, pd.DataFrame]:
    """The cost of masking: a curve for needles found, next words and repetition."""
    if own.sweep is None:
        return {}
    shares = along.share_curves(own.sweep)
    kept = {"needles found": shares[HAYSTACK], NEXT_WORDS: shares[NEXT_WORDS]}
    return kept | {along.REPETITION: along.speech_curves(own.sweep)[along.REPETITION]}


def fitted(config: OwnModelConfig, lm: LanguageModel) -> OwnModelConfig:
    """Without lengths that the window, and counts that the model, has no room for."""
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


@declare("own-measure", unit="percent", place="fig-own-large", otherwise=(
    "{model}: {what} is {value} % {ci} with {heads} heads masked."))
def own_measure(own: OwnModel, what: str, masked: bool) -> Measured:
    """A measure of the sweep, of the whole model or without its retrieval heads."""
    heads = own.reached if masked else 0
    curve = curves(own)[what]
    at = curve[(curve["policy"] == "retrieval") & (curve["count"] == heads)]
    if at.empty:
        raise NotStored(f"The sweep of {own.name} has no step at {heads} heads.")
    return Measured.row(at.iloc[0], [own.artifacts[-1]], 100, verdict="", model=own.name,
                        heads=heads)


@declare("gain-by-sparsity", unit="points", place="fig-own-forecast", otherwise=(
    "Per tenth of the Gini coefficient, gains of {kind} differ by {value} points {ci}: {verdict}."))
def gain_by_sparsity(one: Forecast, kind: str) -> Measured:
    """Slope of gain against sparsity over models on which both are known, per tenth."""
    slope = one.line.slope if one.line else (math.nan,) * 3
    return Measured(scaled(slope, 0.1), [], len(one.known))
