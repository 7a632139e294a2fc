"""Questions to every variant: needles in haystacks, and documents with the answer in one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated

from pydantic import Field

from rmutils.attention import sharing_plans
from rmutils.core.config import Config
from rmutils.corpora.world.lookups import gold_positions
from rmutils.corpora.world.writing import Question
from rmutils.evaluation.helmet.metrics import substring_exact_match
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases, even_depths
from rmutils.models import LanguageModel


class DocumentsConfig(Config):
    """Questions to several documents, of which one holds the answer."""

    lengths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (512,)
    """Tokens of prompt and answer together."""
    places: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)] = (
        even_depths(5))
    """Where the document stands, 0 (first) to 1 (last). Liu et al. (2023) have five places of 20
    documents, too."""
    questions: Annotated[int, Field(ge=1)] = 20
    """At each length; the first ones of a long list are those of a short one."""
    seed: int = 42
    """Seed of the texts and questions. -1 is taken: by these questions Share-Attention finds which
    heads are alike (`rmutils.attention.sharing_plans`)."""


@dataclass(frozen=True)
class Asked:
    """A question with what is known of it."""

    row: dict  # what tells it from the others of its kind
    prompt: Sequence[int]  # token ids
    judge: Callable[[str], dict]  # response -> columns of the result


@dataclass(frozen=True)
class Questions:
    """Questions that are asked in the same way."""

    questions: list[Asked]
    max_new_tokens: int


def needle_questions(lm: LanguageModel, grid: DetectConfig) -> Questions:
    """The cases of a grid, with `recall` and `correct`."""
    def judge(value: str, response: str) -> dict:
        recall = answer_recall(value, response)
        return {"recall": recall, "correct": float(recall > SUCCESS_ROUGE)}

    return Questions([
        Asked({"length": case.length, "question": case.needle_index, "place": case.depth},
              case.input_ids, partial(judge, case.needle.real_needle))
        for case in build_cases(lm, grid)], grid.max_new_tokens)


def document_questions(lm: LanguageModel, config: DocumentsConfig) -> Questions:
    """Questions in the words of the teaching models' task, without demonstrations."""
    sharing_plans.check_window(lm, max(config.lengths))
    found = [_asked(lm, length, i, place, question) for length in config.lengths
             for i, moved in enumerate(islice(sharing_plans.document_questions_at(
                 lm, length, config.places, config.seed), config.questions))
             for place, question in zip(config.places, moved, strict=True)]
    return Questions(found, sharing_plans.ANSWER_TOKENS)


def _asked(lm: LanguageModel, length: int, number: int, place: float, question: Question) -> Asked:
    def judge(response: str) -> dict:
        return {"correct": float(substring_exact_match(response, question))}

    (gold,), documents = gold_positions(question)
    return Asked({"length": length, "question": number, "place": place, "document": gold,
                  "documents": documents}, sharing_plans.document_prompt(lm, question.prompt),
                 judge)
