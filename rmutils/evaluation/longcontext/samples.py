"""The questions of a data set, with their prompts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmutils.corpora.world.fitting import Count, TooShort
from rmutils.corpora.world.questions import Chronicle, Question
from rmutils.errors import UserError
from rmutils.evaluation.longcontext.prompts import Prompter, draw
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.evaluation.longcontext.suite import Dataset
from rmutils.models import LanguageModel

DRAWS = 8
"""So many worlds in a row are tried."""


@dataclass(frozen=True)
class Asked:
    """A question with its prompt.

    Attributes
    ----------
    sample : int
        Its number.
    cluster : int
        Number of the text; questions to the same one are resampled together.
    question : Question
    prompt : sequence of int
        Token ids.
    """

    sample: int
    cluster: int
    question: Question
    prompt: Sequence[int]


def prompter_of(
    lm: LanguageModel, dataset: Dataset, length: int, config: EvaluateConfig, count: Count
) -> Prompter:
    """The prompts of a data set, in the form that suits the model where it is not prescribed."""
    own = lm.corpus == "world"
    chat = lm.chat and (own or config.thinking or dataset.chat)
    shots = 0 if own else dataset.shots
    return Prompter(lm, dataset, length, shots if config.shots is None else config.shots,
                    chat if config.chat is None else config.chat, config.thinking, count,
                    config.seed)


def questions(prompter: Prompter, samples: int) -> list[Asked]:
    """The first samples of a data set; those of a short run are the first ones of a long run.

    Raises
    ------
    UserError
        The length is too short for the data set.
    """
    drawn = zip(range(samples), _endless(prompter), strict=False)
    return [Asked(i, cluster, question, prompter.fitted(question))
            for i, (cluster, question) in drawn]


def _endless(prompter: Prompter) -> Iterator[tuple[int, Question]]:
    """Questions with the numbers of their texts. Each text has a world of its own; worlds that ask
    for more room than there is are left out."""
    dataset, needed = prompter.dataset, []
    for cluster in itertools.count():
        seed = f"evaluation {prompter.seed} {dataset.name} {cluster}"
        try:
            drawn = draw(dataset, lambda seed=seed: Chronicle(seed), prompter.room,
                         prompter.count, dataset.questions)
        except TooShort as error:
            needed.append(prompter.length - prompter.room + error.least)
            if len(needed) == DRAWS:
                raise UserError(
                    f"{dataset.name} does not fit into {prompter.length} tokens: take at least "
                    f"{min(needed)}, or fewer demonstrations (shots).") from error
            continue
        needed.clear()
        yield from ((cluster, question) for question in drawn)
