"""What an evaluation asks, how often, and in which form."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from rmutils.config import Config
from rmutils.errors import UserError
from rmutils.evaluation.longcontext.suite import CATEGORIES, DATASETS
from rmutils.models import LanguageModel


class EvaluateConfig(Config):
    """An evaluation. The paper names HELMET and takes its settings (section 4.1, appendix A)."""

    datasets: Annotated[tuple[str, ...], Field(min_length=1)] = tuple(DATASETS)
    """Names of data sets; the name of a category stands for all of its data sets."""
    lengths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (512, 2048)
    """Tokens of prompt and answer together. Section 4.1: "five context lengths ranging from 8K to
    128K tokens"; ours are for models with smaller windows."""
    samples: Annotated[int, Field(ge=1)] = 50
    """Of each data set at each length. HELMET: 100, and 500 in ICL."""
    seed: int = 42
    """Of the texts, questions and demonstrations. 42 in HELMET."""
    shots: Annotated[int, Field(ge=0)] | None = None
    """Demonstrations. None: HELMET's number, 2 but in ICL and needle tasks; 0 for models of this
    project's own training, which have never seen any."""
    chat: bool | None = None
    """Whether the chat template is used. None: in Cite, LongQA and Summ, as in HELMET; always by
    models of this project's own training and where a model is to think; never by models without
    one."""
    thinking: bool = False
    """Whether the answer may begin with a chain of thought, which is not scored. Section 4.1: "For
    Qwen3-8B, we enable reasoning during evaluation"."""
    thoughts: Annotated[int, Field(ge=1)] = 256
    """Most tokens of a chain of thought, beyond the length. HELMET: 32,768."""

    @field_validator("datasets")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in DATASETS and name not in CATEGORIES]:
            raise ValueError(
                f"no data set or category is called {', '.join(map(repr, unknown))}. Categories: "
                f"{', '.join(CATEGORIES)}. Data sets: {', '.join(DATASETS)}")
        return tuple(d.name for d in DATASETS.values() if {d.name, d.category} & {*names})

    @field_validator("lengths")
    @classmethod
    def _in_order(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({*lengths}))

    @property
    def parts(self) -> int:
        """Data sets at lengths. What is asked together is never more than one."""
        return len(self.datasets) * len(self.lengths)

    def check(self, lm: LanguageModel) -> None:
        """Raise `UserError` if the model cannot be asked like that."""
        longest = max(self.lengths) + self.thinking * self.thoughts
        if longest > lm.window:
            beside = f", of which thoughts take {self.thoughts}" * self.thinking
            raise UserError(f"length {max(self.lengths)}: the window of {lm.name} has {lm.window} "
                            f"tokens{beside}.")
        if self.chat and not lm.chat:
            raise UserError(f"{lm.name} has no chat template: leave chat out, or set it to false.")
