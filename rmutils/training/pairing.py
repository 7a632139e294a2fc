"""The steps of a run up to its pairs: which heads are masked, and who answers what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmutils.artifacts import Artifact, Compute
from rmutils.contrast.drawing import draw_stored
from rmutils.contrast.longreward import longreward_pairs
from rmutils.contrast.pairs import Pairs
from rmutils.contrast.strategies import RELEASED, contrast, strategy_of
from rmutils.heads import HeadScores, choose
from rmutils.heads.scores import Head
from rmutils.heads.store import detect_stored
from rmutils.models import LanguageModel, load_model
from rmutils.training.means import Means

if TYPE_CHECKING:
    from rmutils.training.retmask import RetMaskConfig


def masked_heads(author: LanguageModel | str, config: RetMaskConfig) -> list[Head]:
    """The heads that are masked on the rejected side; none for some strategies.

    Parameters
    ----------
    author : LanguageModel or str
        The model that answers.
    """
    if not strategy_of(config.strategy).policy:
        return []
    return heads_of(detect_stored(author, config.detect)[0], config)


def heads_of(scores: HeadScores, config: RetMaskConfig) -> list[Head]:
    """The same from scores that are at hand."""
    return choose(scores, strategy_of(config.strategy).policy, tau=config.tau, seed=config.seed)


def contrasted(
    author: str, writer: LanguageModel, config: RetMaskConfig, heads: list[Head], *,
    compute: Compute, workers: int, command: str, means: Means = Means(),
) -> tuple[Pairs, tuple[Artifact, ...]]:
    """The pairs of a run, and the stored results that they were made from.

    Parameters
    ----------
    author, writer : str, LanguageModel
        The model that answers: its name, and it.
    """
    if config.strategy == RELEASED:
        return longreward_pairs(writer, config.instructions, seed=config.seed), ()
    kept = {"compute": compute, "command": command}
    drawn, written = draw_stored(config.source, config.instructions, seed=config.seed, lm=writer)
    other = config.smaller and means.backend(load_model(config.smaller), config.smaller, workers)
    judge, device = means.judging(writer, config.responses.thinking), writer.model.device
    backend = means.backend(writer, author, workers)
    made = contrast(
        config.strategy, backend, drawn.instructions,
        config.responses.changed({"seed": config.seed}), heads=heads, other=other,
        judge=judge, **kept)
    for engine in filter(None, (backend, other)):
        engine.close()
    writer.model.to(device)
    return made.pairs, (*written, *made.artifacts)
