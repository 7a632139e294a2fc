"""Prompts of HELMET's shape: instruction, demonstrations, text, question.

A model of this project's own training has never seen an instruction of HELMET's kind, a
demonstration, or a prompt without its chat template. It gets the text and the question in its chat
template and nothing else, unless demonstrations or a bare prompt are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from rmutils.corpora.world.fitting import Count, TooShort
from rmutils.corpora.world.names import Split
from rmutils.corpora.world.questions import Chronicle, Question
from rmutils.errors import UserError
from rmutils.evaluation.longcontext.suite import Dataset
from rmutils.models import LanguageModel

MARGIN = 8
"""Tokens that are left free: pieces of text side by side can have more tokens than each alone."""
NEWLINES = ("\n", "Ċ", "ĊĊ", "<0x0A>")
"""What tokenizers call the tokens at which HELMET ends an answer of one line."""
NO_TEXT = "[text]"
MORE = 24
"""Tokens of a demonstration's text beside what its answer needs."""
PHRASES = ("substring_exact_match", "recall", "rougeL_f1", "answer_score")
"""Metrics to which a phrase is a right answer."""


class Demonstrated(Chronicle):
    """A world for demonstrations: names and phrases that no question has, its wordings."""

    def __init__(self, seed: str, split: Split = "train"):
        super().__init__(seed, split)

    def wording(self, wordings: Sequence[str]) -> str:
        return wordings[-1]


def counter(lm: LanguageModel) -> Count:
    """Number of tokens of a text for a model."""
    return lru_cache(maxsize=100_000)(
        lambda text: len(lm.tokenizer(text, add_special_tokens=False)["input_ids"]))


@dataclass(frozen=True)
class Prompter:
    """Writes the prompts of a data set for a model.

    Attributes
    ----------
    lm : LanguageModel
    dataset : Dataset
    length : int
        Tokens of prompt and answer together, as in HELMET: the prompt with its demonstrations and
        its template has at most this less `Dataset.max_new_tokens`.
    shots : int
        Demonstrations, which are the same in all prompts. HELMET draws others for each sample.
    chat : bool
        Whether the chat template is used. If not, the prompt ends with the answer's prefix.
    thinking : bool
        As for `LanguageModel.render`.
    count : callable
        Tokens of a text.
    seed : int
        Of the demonstrations.
    """

    lm: LanguageModel
    dataset: Dataset
    length: int
    shots: int
    chat: bool
    thinking: bool
    count: Count
    seed: int

    @cached_property
    def opening(self) -> str:
        """Instruction and demonstrations."""
        told = "" if self.lm.corpus == "world" else f"{self.dataset.instruction}\n\n"
        return told + "".join(self._demonstration(i) for i in range(self.shots))

    def _demonstration(self, index: int) -> str:
        d = self.dataset
        seed = f"{self.seed} {d.name} {index}"
        try:
            example, = d.make(Demonstrated(seed), 1, self.count, 1)
        except TooShort as error:  # which says what would do
            example, = d.make(Demonstrated(seed), error.least + MORE, self.count, 1)
        text = example.context if d.shown else NO_TEXT
        return f"{example.before}{text}{example.after}\n{d.prefix} {_shortly(d, example)}\n\n"

    @cached_property
    def room(self) -> int:
        """Most tokens of a sample's own text and question."""
        empty = Question("", "", "")
        return self.length - self.dataset.max_new_tokens - len(self.ids(empty)) - MARGIN

    def ids(self, sample: Question) -> list[int]:
        """Token ids of a prompt, however long."""
        text = self.opening + sample.prompt
        if self.chat:
            return list(self.lm.render(text, thinking=self.thinking))
        return self.lm.tokenizer(f"{text}\n{self.dataset.prefix}")["input_ids"]

    def fitted(self, sample: Question) -> list[int]:
        """Token ids of a prompt; one that is too long loses the end of its context, nothing else.

        Raises
        ------
        UserError
            It is too long without its context, too.
        """
        most = self.length - self.dataset.max_new_tokens
        while (surplus := len(ids := self.ids(sample)) - most) > 0:
            ends = self.lm.tokenizer(sample.context, add_special_tokens=False,
                                     return_offsets_mapping=True)["offset_mapping"]
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


def draw(
    dataset: Dataset, world: Callable[[], Chronicle], room: int, count: Count, questions: int
) -> list[Question]:
    """Questions to one text: as many as are wanted, or as fit beside their text.

    Parameters
    ----------
    world : callable
        Makes the world anew.

    Raises
    ------
    TooShort
        There is no room for a single one.
    """
    for number in range(questions, 1, -1):
        try:
            return dataset.make(world(), room, count, number)
        except TooShort:
            pass
    return dataset.make(world(), room, count, 1)


def _shortly(dataset: Dataset, sample: Question) -> str:
    """The answer of a demonstration: as short as HELMET's, where a phrase is enough."""
    if dataset.metrics[0] in PHRASES:
        return ", ".join(sample.golds)
    return sample.answer.removeprefix(f"{dataset.prefix} ")
