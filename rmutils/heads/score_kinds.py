"""Kinds of retrieval score: the place where a further one is added.

A kind says which cases it needs, how they are answered and watched, what each head scores in a
case, and how cases become scores of a model; all but `ScoreKind.score` have a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field, model_validator

from rmutils.attention.decoding import Answer
from rmutils.attention.watching import What
from rmutils.core.config import Config, added
from rmutils.core.errors import UserError
from rmutils.core.registry import Registry
from rmutils.core.validation import Count, checked
from rmutils.corpora.niah import Haystack, Needle, NiahBuilder, NiahCase, needle_of
from rmutils.heads import answering
from rmutils.heads.scores import HeadScores, Values
from rmutils.models import LanguageModel

SCORES: Registry[type[ScoreKind]] = Registry(
    "kind of retrieval score", "rmutils.scores", package="rmutils.heads")
"""Kinds of retrieval score by the name that `DetectConfig.score` gives them."""


def _needles(given: Any) -> Any:
    """Needles as texts become `Needle`s; a number stays one."""
    if isinstance(given, Mapping | Needle):
        return (needle_of(given),)
    if not isinstance(given, Sequence) or isinstance(given, str):
        return given
    single = all(isinstance(one, str) for one in given)
    return tuple(map(needle_of, [given] if single else given))


class DetectConfig(Config):
    """The grid of a detection, and the kind of score.

    The paper's grid is "20 different context lengths uniformly distributed between 0 and 5K, with
    the needle inserted at 10 depth positions for each length" (section 4.1), with three needles.
    The defaults are a grid that a laptop does in some minutes.

    Examples
    --------
    >>> from rmutils import DetectConfig
    >>> config = DetectConfig(lengths=(256,), depths=(0.0, 0.5, 1.0))
    >>> config.score, config.definition, config.max_new_tokens
    ('copy', 'paper', 50)
    >>> config.changed({"needles": 2}).needles
    2
    >>> DetectConfig(needles=[("The key is in the jar.", "Where is the key?", "in the jar")])
    DetectConfig(needles=(Needle(needle='The key is in the jar.', question='Where is the key?', \
real_needle='in the jar'),))
    """

    lengths: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (256, 512)
    """Prompt lengths in tokens. Section 4.1: "20 different context lengths uniformly distributed
    between 0 and 5K"."""
    depths: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)] = (
        0.0, 0.5, 1.0)
    """Needle positions, from 0 (start of the context) to 1 (its end). Section 4.1: "the needle
    inserted at 10 depth positions for each length"."""
    needles: Annotated[Count | tuple[Needle, ...] | None, BeforeValidator(_needles)] = None
    """How many needles of the set, from its start; None: all. Or needles of your own, each a tuple
    or a mapping of the sentence that is hidden, the question, and the answer, which is a stretch of
    the sentence."""
    score: Annotated[str, SCORES] = added("copy")
    """`copy`: the paper's. `attention`, `dla`, `locos`: where heads look and what they add to the
    logit while they answer. `anchor`: how the prompt's last tokens look at the needle. `query`: how
    the question does. `patching`: what a head brings back of the answer where the needle is
    missing. Or another registered kind. All but `query` and `patching` come from one run."""
    definition: Literal["paper", "wu"] = "paper"
    """How the copy score is counted. `paper`: Equation 1 as a set overlap, exact needle span,
    answers end at the stop token. `wu`: the published code (see `rmutils.heads.copy_score`)."""
    max_new_tokens: Count = 50
    """The paper is silent; 50 in `retrieval_head_detection.py`."""
    corpus: Annotated[Literal["book", "world", "japanese"] | None, Field(exclude=True)] = None
    """Haystack and needles that ship with the book, by name. None: those of the model."""
    needle_set: Annotated[str | None, Field(exclude=True)] = None
    """Another set of the corpus's needles, by its folder: `literal`, `paraphrased` and
    `associative` hide the same sentences and ask ever less directly (the last one not of the
    invented world). None: `needles`."""
    haystack: Annotated[Path | None, Field(exclude=True)] = None
    """Folder of own haystack text; None: that of the corpus. Its content, not its path, is
    part of a result's identity."""
    needle_file: Annotated[Path | None, Field(exclude=True)] = None
    """File of own needles, likewise."""

    @model_validator(mode="after")
    def _of_copy(self) -> DetectConfig:
        if self.definition != "paper" and self.score != "copy":
            raise ValueError(f"definition {self.definition!r} is one of the score 'copy', "
                             f"not of {self.score!r}")
        return self


def kind_of(config: DetectConfig) -> type[ScoreKind]:
    """Return the kind of score that a configuration asks for."""
    return SCORES[config.score].defined(config.definition)


class ScoreKind(ABC):
    """One kind of retrieval score, for one model and grid."""

    only_found: ClassVar[bool] = True
    """Only cases in which the model finds the needle are successful; False: all cases are."""
    version: ClassVar[int] = 1
    """Raised when the kind gives another score to the same configuration: stored results of the
    version before are then no longer found."""
    together: ClassVar[tuple[str, ...]] = ()
    """Names of the kinds that one run gives, if this one is among them."""
    watched: ClassVar[tuple[What, ...]] = ()
    """`score` gets a `RowsAnswer`, with the attention `weights` or `outputs` of all heads in the
    rows that decided the tokens of the answer."""

    def __init__(self, lm: LanguageModel, config: DetectConfig):
        self.lm, self.config = lm, config

    @classmethod
    def defined(cls, definition: str) -> type[ScoreKind]:
        """Return the kind by one of its definitions, if it has several."""
        return cls

    def cases(self, haystacks: Sequence[Haystack], needles: Sequence[Needle]) -> list[NiahCase]:
        """Return all cases of the grid."""
        return NiahBuilder(self.lm, haystacks).grid(
            needles, self.config.lengths, self.config.depths)

    def stop_ids(self) -> set[int]:
        """Return the tokens that end an answer."""
        return self.lm.stop_ids

    def answers(self, cases: list[NiahCase], watch: answering.Watch | None) -> answering.Answered:
        """Answer cases, in any order, and yield what `score` needs of each: an `Answer`, whose
        `tokens` alone are read elsewhere. `watch` is how a variant of attention answers one."""
        how: dict[str, Any] = {"max_new_tokens": self.config.max_new_tokens,
                               "stop_ids": self.stop_ids()}
        if self.watched:
            self.refuse_variant(watch)
            return answering.batched(self.lm, cases, partial(answering.watched_rows, self.lm,
                                                             self.watched, **how),
                           max_new_tokens=self.config.max_new_tokens)
        return answering.batched(self.lm, cases, **how) if watch is None else answering.one_by_one(
            cases, partial(watch, **how))

    def refuse_variant(self, watch: answering.Watch | None) -> None:
        """Refuse a variant of attention, for scores that only a model's own attention has."""
        if watch is not None:
            raise UserError(f"the score {self.config.score!r} is that of a model's own attention: "
                            f"it cannot be measured under a variant.")

    @staticmethod
    def recall(answer: str, response: str) -> tuple[float, answering.Unit]:
        """Return how much of an answer a response has, 0 to 1, and what is counted."""
        return answering.answer_recall(answer, response), answering.unit_of(answer)

    def needle_tokens(self, case: NiahCase) -> int:
        """Return the length of the needle in tokens."""
        return case.needle_span[1] - case.needle_span[0]

    @staticmethod
    def told(table: pd.DataFrame) -> str:
        """Return what whoever detects by this kind has to know of the cases, by default nothing."""
        return ""

    @abstractmethod
    def score(self, case: NiahCase, answer: Answer) -> Values:
        """Return the score of each head in one case, (layers, heads)."""

    def total(self, runs: Values, table: pd.DataFrame) -> HeadScores:
        """Sum `runs` (cases, layers, heads), failed cases included, up to scores of the model."""
        table = table.assign(success=table["success"] | (not self.only_found))
        success = table["success"].to_numpy(bool)
        return HeadScores(runs[success], self.lm.name, np.asarray(table["needle"])[success], table,
                          self.config.score)


def _by_head(kind: ScoreKind, found: Any) -> Values:
    """Refuse what is not a number for each head."""
    values, shape = np.asarray(found), kind.lm.shape
    if values.shape != shape or values.dtype.kind not in "biuf":
        raise UserError(f"the score {kind.config.score!r} returned {values.dtype} of the shape "
                        f"{values.shape}, and not numbers of the shape {shape}, layers and heads.")
    return values


@checked
def register_score(name: str, watched: What | tuple[What, ...] = ()) -> Callable[[Any], Any]:
    """Return a decorator that makes a function a kind of retrieval score, by a name.

    `DetectConfig(score=name)` asks for it. Cases are those of the paper's grid, and only those
    in which the needle is found count. If yours needs other cases or counts all of them, decorate a
    subclass of `rmutils.heads.score_kinds.ScoreKind` instead.

    Parameters
    ----------
    name : str
        The function is called with a case (`input_ids`, its P tokens; `needle_span`, where the
        answer begins and ends among them) and the model's answer (`tokens`, (T,); `positions`,
        (T, layers, heads), the prompt's token at which each head looked hardest). It returns the
        score of each head, (layers, heads).
    watched : {"weights", "outputs"}, or both
        What else the answer should have of the rows that decided its tokens: `weights`, (T, layers,
        heads, P + T - 1), the attention to each token; `outputs`, (T, layers, heads, head size),
        what each head hands to the output projection.

    Examples
    --------
    >>> from rmutils import DetectConfig, detect, load_model, register_score
    >>> @register_score("looks")  # how often a head looks at the needle, whatever is written
    ... def looks(case, answer):
    ...     start, end = case.needle_span
    ...     return ((start <= answer.positions) & (answer.positions < end)).mean(0)
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> scores = detect(lm, DetectConfig(score="looks", lengths=(256,), needles=2))
    >>> scores.shape
    (4, 16)
    >>> @register_score("mass", watched="weights")  # how much of its attention the needle gets
    ... def mass(case, answer):
    ...     return answer.weights[..., slice(*case.needle_span)].sum(-1).mean(0)
    >>> detect(lm, DetectConfig(score="mass", lengths=(256,), needles=2)).select(top_k=1)
    [(3, 7)]
    """
    more = (watched,) if isinstance(watched, str) else tuple(watched)

    def add(thing: Any) -> Any:
        kind: Any = thing if isinstance(thing, type) else type(name, (ScoreKind,), {
            "score": lambda self, case, answer: _by_head(self, thing(case, answer)),
            "__doc__": thing.__doc__, "__module__": thing.__module__})
        if more:
            kind.watched = more
        SCORES.add(name, kind)
        return thing

    return add
