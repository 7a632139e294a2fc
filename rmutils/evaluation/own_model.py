"""Any checkpoint through what the book does with its own models: detection, sparsity, masking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pydantic import Field

from rmutils.artifacts import Artifact, Compute
from rmutils.config import Config
from rmutils.errors import UserError
from rmutils.evaluation.masking_sweep import Sweep, SweepConfig, sweep_stored
from rmutils.evaluation.teaching_scores import DETECTION
from rmutils.heads import HeadScores, sparsity
from rmutils.heads.detection import DetectConfig
from rmutils.heads.masking_plan import count_at
from rmutils.heads.store import detect_stored
from rmutils.models import LanguageModel, load_model
from rmutils.models.registry import tau_of
from rmutils.models.support import check


class OwnModelConfig(Config):
    """What is measured of a model. What its window or its number of heads has no room for is left
    out: see `fitted`."""

    detect: DetectConfig = DETECTION
    """Section 4.1 has 20 lengths up to 5K and 10 depths; two and five are minutes instead of hours.
    """
    sweep: SweepConfig = SweepConfig()
    """Appendix B masks the highest heads of one model; how many and what is asked is ours."""
    tau: float | None = Field(None, gt=0)
    """Threshold of a retrieval head; None: the model's own where the book knows one, else 0.1."""


@dataclass(frozen=True)
class OwnModel:
    """What was found.

    Attributes
    ----------
    name : str
        As given by its maker: a folder or file may be called anything.
    facts : dict of str to str
        What the model is, in words.
    tau : float
    scores : HeadScores
    sparsity : DataFrame
        As from `rmutils.heads.sparsity.summarize`.
    sweep : Sweep or None
        None where the model cannot be given instructions.
    artifacts : tuple of Artifact
        Where all of it is stored.
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
        """How many heads reach tau."""
        return count_at(self.scores, self.tau)


def examine(
    model: str, config: OwnModelConfig = OwnModelConfig(), *, compute: Compute = "auto",
    command: str,
) -> OwnModel:
    """Measure a model. Each part is stored when it is done, and one that was stopped goes on.

    Parameters
    ----------
    model : str
        Registry name, folder, .gguf file or hub id.
    command : str
        The command line that makes this.

    Raises
    ------
    UserError
        The model cannot be loaded or is of a kind that cannot be examined (see `check` of
        `rmutils.models.support`), it has no room for any of the lengths, or it finds no needle.
    """
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

    Raises
    ------
    UserError
        No length is left.
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
    """What a model is, in words."""
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
