"""From responses to scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rmutils.corpora.world.questions import Question
from rmutils.evaluation.longcontext.metrics import METRICS, parse
from rmutils.evaluation.longcontext.prompts import Prompter
from rmutils.evaluation.longcontext.samples import Asked
from rmutils.evaluation.longcontext.suite import Dataset
from rmutils.models.thoughts import without_thoughts

Grade = Callable[[str, Question], float | None]


def score(
    dataset: Dataset, metric: str, response: str, question: Question, grade: Grade | None = None
) -> float:
    """0 to 100, of the better reading of a response; NaN if there is no score.

    The readings are the response without a prefix at its beginning, and what follows the prefix on
    its line, or the first line.

    Parameters
    ----------
    grade : callable, optional
        In the metric's place: (response, question) -> 0 to 1, or None for no score. It sees one
        reading, and no empty ones, which get what the metric gives them.
    """
    readings = {"raw": response.strip().removeprefix(dataset.prefix),
                "parsed": parse(response, dataset.prefix)}
    read = [readings[name] for name in dataset.readings]
    if grade and read[-1].strip():
        given = grade(read[-1], question)
        return float("nan") if given is None else 100 * given
    return 100 * max(METRICS[metric](text, question) for text in read)


def rows(
    prompter: Prompter, asked: Sequence[Asked], responses: Sequence[str],
    score_of: Callable[[Asked, str, str], float],
) -> Iterator[dict]:
    """A row per sample and metric. Of a thought that never ends nothing is scored; HELMET would
    score the thought.

    Parameters
    ----------
    score_of : callable
        (question, metric, response with the prefix where that ended the prompt) -> score.
    """
    d = prompter.dataset
    for ask, text in zip(asked, responses, strict=True):
        response = without_thoughts(text)
        said = response if prompter.chat else f"{d.prefix} {response}"
        for metric in d.metrics:
            value = score_of(ask, metric, said)
            yield {"category": d.category, "dataset": d.name, "length": prompter.length,
                   "sample": ask.sample, "cluster": ask.cluster, "metric": metric, "score": value,
                   "unscored": value != value, "response": response,
                   "prompt_tokens": len(ask.prompt), "position": ask.question.depth}
