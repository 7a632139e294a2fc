"""The steps of a run up to its pairs: which heads are masked, and who answers what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmutils.artifacts import Artifact, Compute
from rmutils.contrast.backends import Transformers
from rmutils.contrast.drawing import draw_stored
from rmutils.contrast.judges import Proxy
from rmutils.contrast.pairs import Pairs
from rmutils.contrast.strategies import STRATEGIES, contrast
from rmutils.heads import choose
from rmutils.heads.scores import Head
from rmutils.heads.store import detect_stored
from rmutils.models import LanguageModel, load_model

if TYPE_CHECKING:
    from rmutils.training.retmask import RetMaskConfig


def masked_heads(author: LanguageModel | str, config: RetMaskConfig) -> list[Head]:
    """The heads that are masked on the rejected side; none for some strategies.

    Parameters
    ----------
    author : LanguageModel or str
        The model that answers.
    """
    policy = STRATEGIES[config.strategy].policy
    if not policy:
        return []
    scores, _ = detect_stored(author, config.detect)
    return choose(scores, policy, tau=config.tau, seed=config.seed)


def contrasted(
    author: str, writer: LanguageModel, config: RetMaskConfig, heads: list[Head], *,
    compute: Compute, workers: int, command: str,
) -> tuple[Pairs, tuple[Artifact, ...]]:
    """The pairs of a run, and the stored results that they were made from.

    Parameters
    ----------
    author, writer : str, LanguageModel
        The model that answers: its name, and it.
    """
    kept = {"compute": compute, "command": command}
    drawn, written = draw_stored(config.source, config.instructions, seed=config.seed, lm=writer)
    other = config.smaller and Transformers(load_model(config.smaller), named=config.smaller,
                                            workers=workers)
    made = contrast(
        config.strategy, Transformers(writer, named=author, workers=workers), drawn.instructions,
        config.responses.changed({"seed": config.seed}), heads=heads, other=other,
        judge=Proxy(writer, config.responses.thinking), **kept)
    return made.pairs, (*written, *made.artifacts)
