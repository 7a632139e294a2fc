"""What a teaching model reads while its window is extended: long documents among short ones.

A long document is a text about the invented world with questions behind it, because these models
learn from answers only: plain questions about its facts, and before them, where it is drawn,
questions of CWE or a retelling of REX. A short one is a row as the model was trained on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from rmutils.corpora.world.lookups import FRAMES
from rmutils.corpora.world.questions import Chronicle
from rmutils.corpora.world.samples import Sample, padding, paragraphs
from rmutils.longcontext.cwe import TfIdf, cwe, name_counts, noun_counts
from rmutils.longcontext.rex import rex
from rmutils.models import LanguageModel
from rmutils.models.teaching import TeachingRecipe
from rmutils.models.teaching.stream import Stream

REFERENCES = 24
"""Other texts that TF-IDF compares with."""
TEXT_SHARE = 0.6, 0.9
"""Share of a long document that is text; the rest are questions and answers. As in the rows that
the models are trained on."""


@dataclass(frozen=True)
class Document:
    """Token ids with the weight of each in the loss."""

    kind: str
    ids: list[int]
    weights: list[float]


class Texts:
    """Documents of a seed.

    Parameters
    ----------
    lm : LanguageModel
    recipe : TeachingRecipe
        How the model was trained.
    seed : int
    """

    def __init__(self, lm: LanguageModel, recipe: TeachingRecipe, seed: int):
        self.lm, self.recipe, self.seed = lm, recipe, seed
        inner = lm.tokenizer.backend_tokenizer
        self.count = lru_cache(maxsize=200_000)(lambda text: len(inner.encode(text).ids))
        self.encode: Callable[[str], list[int]] = lambda text: inner.encode(text).ids
        others = [paragraphs(padding(Chronicle(f"reference {seed} {i}", "train"), 2000, self.count))
                  for i in range(REFERENCES)]
        self.nouns, self.names = (TfIdf(others, counts) for counts in (noun_counts, name_counts))

    def long(self, number: int, length: int, kind: str) -> Document:
        """A document of this number and so many tokens, of kind `questions`, `cwe` or `rex`."""
        world = Chronicle(f"extension {self.seed} {number}", "train")
        room = int(length * world.random.uniform(*TEXT_SHARE))
        lines = padding(world, room, self.count)
        text = paragraphs(lines)
        samples = [one for one in (rex(world, text, self.names),) if one] if kind == "rex" else (
            cwe(world, text, self.nouns) if kind == "cwe" else [])
        told = [world.lines[line] for line in lines if line in world.lines]
        world.random.shuffle(told)
        samples += [Sample("question", world.ask(fact), fact.answer) for fact in told]
        before, after = world.wording(FRAMES["one"])
        ids: list[int] = []
        weights: list[float] = []
        for i, sample in enumerate(samples):
            asked = sample.prompt if i else before + text + after.format(q=sample.prompt)
            self._add(ids, weights, asked, sample.answer)
            if len(ids) >= length:
                break
        return Document(kind, ids[:length], weights[:length])

    def short(self) -> Iterator[Document]:
        """Rows like the last of the training, but from another seed, without end."""
        stream = Stream(self.recipe.changed({"seed": 10_000 + self.seed}), self.lm.tokenizer)
        while True:
            for step in range(self.recipe.steps - 1, 0, -1):
                for ids, weights in zip(*stream.batch(step), strict=True):
                    kept = int((weights > 0).sum())
                    yield Document("short", ids[:kept].tolist(), weights[:kept].tolist())

    def mixture(
        self, tokens: int, shortest: int, longest: int, share: float, synthetic: float
    ) -> list[Document]:
        """Documents of so many tokens in all, in a random order.

        Parameters
        ----------
        shortest, longest : int
            Tokens of a long document; drawn evenly on a logarithmic scale.
        share : float
            Of the tokens, for long documents.
        synthetic : float
            Of the long documents, in equal parts for CWE and REX.
        """
        draw, found, held = random.Random(f"mixture {self.seed}"), [], 0
        while held < share * tokens:
            length = round(shortest * (longest / shortest) ** draw.random())
            kind = draw.choice(("cwe", "rex")) if draw.random() < synthetic else "questions"
            found.append(self.long(len(found), length, kind))
            held += len(found[-1].ids)
        for document in self.short():
            if held >= tokens:
                break
            found.append(document)
            held += len(document.ids)
        draw.shuffle(found)
        return found

    def _add(self, ids: list[int], weights: list[float], asked: str, answer: str) -> None:
        """Append a turn of user and assistant."""
        start, middle = self.lm.user_turn()
        prompt = self.encode(start + asked + middle)
        said = self.encode(answer + self.lm.tokenizer.eos_token)
        ids += prompt + said
        weights += [self.recipe.prompt_weight] * len(prompt) + [1.0] * len(said)
