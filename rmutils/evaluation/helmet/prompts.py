"""An evaluation's configuration, and its prompts: instruction, demonstrations, text, question."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, field_validator

from rmutils.attention.variants import AttachedModel, Plain, Variant
from rmutils.core.config import Config, added
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.registry import Offers
from rmutils.core.validation import FrozenHeads
from rmutils.corpora.world.samples import DRAWS, Count, TooShort
from rmutils.corpora.world.writing import Chronicle, Question
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.suite import DATASETS, SUITE, SUITES, Dataset
from rmutils.heads.masking import Ablation, mask_heads
from rmutils.models import LanguageModel
from rmutils.models.language_model import MARGIN

FEW_SAMPLES = 20  # with so many, even ten questions about each text are about two texts


class EvaluateConfig(Config):
    """An evaluation. The paper names HELMET and takes its settings (section 4.1, appendix A).

    Examples
    --------
    >>> from rmutils import EvaluateConfig
    >>> EvaluateConfig(datasets=("Recall",), lengths=(512,))
    EvaluateConfig(datasets=('needle_rivals', 'needle_values', 'key_value'), lengths=(512,))
    """

    datasets: Annotated[tuple[str, ...], Field(min_length=1), Offers(DATASETS)] = SUITES["helmet"]
    """Data sets, or categories: Recall, RAG, Re-rank, ICL, Cite, LongQA, Summ; RULER. A suite
    (`helmet`) or a category stands for its data sets: one of HELMET's categories for those of the
    suite, another one for all that are registered."""
    lengths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (512, 2048)
    """Tokens of prompt and answer together. Section 4.1: "five context lengths ranging from 8K to
    128K tokens"; ours are for models with smaller windows."""
    samples: Annotated[int, Field(ge=1)] = 50
    """Questions of each data set at each length. HELMET: 100, and 500 in ICL."""
    seed: int = 42
    """Seed of the texts, questions and demonstrations. 42 in HELMET."""
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
    variant: Variant = added(Plain())
    """The attention that the model answers with, or a way of decoding."""
    masked: FrozenHeads = added(())
    """Heads that are switched off, such as 18-6,18-7. None: none are."""
    how: Ablation = added("zero")
    """What masked heads do: nothing, as in the paper; what they do on average; look everywhere
    alike."""
    per_text: Annotated[int, Field(ge=1)] | None = added(None)
    """Most questions about one text. None: five, ten in ICL, so that the text is read once for all
    of them. With one each, answers are independent."""
    spread: bool | None = added(None)
    """Whether each text, the same as ever, is asked about once only, so that there are as many
    texts as samples. None: if there are fewer than 20 samples, which would else be about one or two
    texts: too few for an interval."""

    @field_validator("datasets")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        groups: dict[str, tuple[str, ...]] = {}
        for d in DATASETS.values():
            groups[d.category] = (*groups.get(d.category, ()), d.name)
        groups |= SUITE | SUITES
        if unknown := [name for name in names if name not in DATASETS and name not in groups]:
            raise ValueError(
                f"no data set or category is called {', '.join(map(repr, unknown))}."
                f"{did_you_mean(unknown[0], [*groups, *DATASETS])} Categories: "
                f"{', '.join(name for name in groups if name not in SUITES)}. Data sets: "
                f"{', '.join(DATASETS)}")
        chosen = {one for name in names for one in groups.get(name, (name,))}
        return tuple(name for name in DATASETS if name in chosen)

    @field_validator("lengths")
    @classmethod
    def _in_order(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({*lengths}))

    @property
    def spread_out(self) -> bool:
        """`spread`, or what is in force without it."""
        return self.samples < FEW_SAMPLES and not self.per_text if self.spread is None \
            else self.spread

    def identity(self) -> dict[str, Any]:
        """All values, and `spread` where it is in force: without it, samples are as ever."""
        values = super().identity() | {"spread": True}
        return values if self.spread_out else {k: v for k, v in values.items() if k != "spread"}

    def outside(self) -> dict[str, str]:
        """Return the code outside this project that registered data sets and their metrics."""
        return super().outside() | METRICS.origins(
            metric for name in self.datasets for metric in DATASETS[name].metrics)

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        """Put variant and masks on a model; on exit it is as before."""
        with self.variant.attached(lm) as model, mask_heads(lm, self.masked, self.how):
            yield model

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


NEWLINES = ("\n", "\n\n", "Ċ", "ĊĊ", "<0x0A>")
"""Names that tokenizers give to the tokens at which HELMET ends an answer of one line."""
NO_TEXT = "[text]"
MORE = 24  # tokens of a demonstration's text beside what its answer needs


class Demonstrated(Chronicle):
    """A world for demonstrations: names and phrases that no question has, its wordings."""

    def wording(self, wordings: Sequence[str]) -> str:
        return wordings[-1]


@dataclass(frozen=True)
class Prompter:
    """Writes the prompts of a data set for a model."""

    lm: LanguageModel
    dataset: Dataset
    # Tokens of prompt and answer together, as in HELMET: the prompt with its demonstrations and its
    # template has at most this less `Dataset.max_new_tokens`.
    length: int
    shots: int  # Demonstrations, the same in all prompts. HELMET draws others for each sample.
    chat: bool  # The chat template is used. If not, the prompt ends with the answer's prefix.
    thinking: bool  # as for `LanguageModel.render`
    count: Count  # tokens of a text
    seed: int  # of the demonstrations
    spread: bool = False  # each text is asked about once only

    @cached_property
    def opening(self) -> str:
        """Instruction and demonstrations."""
        instruction = self.dataset.instruction
        told = f"{instruction}\n\n" if instruction and self.lm.corpus != "world" else ""
        return told + "".join(self._demonstration(i) for i in range(self.shots))

    def _demonstration(self, index: int) -> str:
        d = self.dataset
        seed = f"{self.seed} {d.name} {index}"
        try:
            example, = d.make(Demonstrated(seed, "train"), 1, self.count, 1)
        except TooShort as error:  # which says what would do
            example, = d.make(Demonstrated(seed, "train"), error.least + MORE, self.count, 1)
        text = example.context if d.shown else NO_TEXT
        return (f"{example.before}{text}{example.after}\n"
                f"{d.begins(example)} {_shortly(d, example)}\n\n")

    @cached_property
    def room(self) -> int:
        """Most tokens of a sample's own text and question."""
        empty = Question("", "", "")
        return self.length - self.dataset.max_new_tokens - len(self.ids(empty)) - MARGIN

    def ids(self, sample: Question) -> list[int]:
        """Token ids of a prompt, however long."""
        text = self.opening + sample.prompt
        if self.chat:
            return self.lm.render(text, thinking=self.thinking)
        return self.lm.encode(f"{text}\n{self.dataset.begins(sample)}", begin=True)

    def fitted(self, sample: Question) -> list[int]:
        """Token ids of a prompt; one that is too long loses the end of its context only."""
        most = self.length - self.dataset.max_new_tokens
        while (surplus := len(ids := self.ids(sample)) - most) > 0:
            ends = self.lm.encode_framed("", sample.context, "").offsets
            if not ends:
                raise UserError(
                    f"{self.dataset.name}: question and demonstrations have {len(ids)} tokens, and "
                    f"{most} are left for them in {self.length}. Take longer prompts, or fewer "
                    f"demonstrations (shots).")
            cut = ends[-surplus][0] if surplus <= len(ends) else 0
            sample = replace(sample, context=sample.context[:cut])
        return ids

    @cached_property
    def stop_ids(self) -> set[int]:
        """Tokens that end an answer."""
        stop_ids = set(self.lm.stop_ids)
        if self.dataset.newline_ends and not self.chat:
            vocabulary = self.lm.tokenizer.get_vocab()
            stop_ids |= {vocabulary[name] for name in NEWLINES if name in vocabulary}
        return stop_ids


def draw(dataset: Dataset, world: Callable[[], Chronicle], room: int, count: Count,
         questions: int) -> list[Question]:
    """Questions about one text: as many as are wanted, or as fit beside their text."""
    for number in range(questions, 1, -1):
        try:
            return dataset.make(world(), room, count, number)
        except TooShort:
            pass
    return dataset.make(world(), room, count, 1)


def _shortly(dataset: Dataset, sample: Question) -> str:
    """The answer of a demonstration: as short as HELMET's, where a phrase is enough."""
    if dataset.short:
        return ", ".join(sample.golds)
    return sample.answer.removeprefix(f"{dataset.prefix} ")


@dataclass(frozen=True)
class Asked:
    sample: int  # its number
    cluster: int  # number of the text; questions to the same one are resampled together
    question: Question
    prompt: Sequence[int]  # token ids


def prompter_of(lm: LanguageModel, dataset: Dataset, length: int, config: EvaluateConfig,
                count: Count) -> Prompter:
    """The prompts of a data set, in the form that suits the model where it is not prescribed."""
    own = lm.corpus == "world"
    if config.per_text:
        dataset = replace(dataset, questions=min(dataset.questions, config.per_text))
    chat = lm.chat and (own or config.thinking or dataset.chat)
    shots = 0 if own else dataset.shots
    return Prompter(lm, dataset, length, shots if config.shots is None else config.shots,
                    chat if config.chat is None else config.chat, config.thinking, count,
                    config.seed, config.spread_out)


def questions(prompter: Prompter, samples: int) -> list[Asked]:
    """The first samples of a data set: those of a longer run, too, if both are spread or not."""
    drawn = zip(range(samples), _endless(prompter), strict=False)
    return [Asked(i, cluster, question, prompter.fitted(question))
            for i, (cluster, question) in drawn]


def _endless(prompter: Prompter) -> Iterator[tuple[int, Question]]:
    """Questions with the numbers of their texts, each of a world of its own that fits."""
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
        yield from ((cluster, question) for question in drawn[: 1 if prompter.spread else None])
