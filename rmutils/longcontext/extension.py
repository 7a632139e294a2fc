"""How far a model reaches: facts found again in long texts, and the loss by position.

The right answer is given to the model word by word, and a fact counts as found if each token of its
value is what the model would have said. A text is read once for all of its questions.

A window made longer: one method for its positions, then a short fine-tune on long documents.

The Olmo 3 recipe in small. Documents are packed by best fit, none sees another, and the model is
asked for facts at all lengths, before the fine-tune and along it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from rmutils.attention.rope import RopeExtension, extend
from rmutils.core.config import Config
from rmutils.corpora.world.facts import Fact
from rmutils.corpora.world.lookups import FRAMES
from rmutils.corpora.world.questions import Chronicle
from rmutils.corpora.world.samples import padding, paragraphs
from rmutils.corpora.world.tasks import ASKED
from rmutils.longcontext.context_parallel import WINDOW_BLOCKS
from rmutils.longcontext.documents import NO_LABEL, packed_inputs
from rmutils.longcontext.extension_texts import Document, Texts
from rmutils.longcontext.packing import best_fit
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import using
from rmutils.models.teaching import TeachingRecipe
from rmutils.models.teaching.pretraining import losses

ROOM = 96
"""Tokens that are kept free for template, question and answer."""


class ReachConfig(Config):
    """What is asked; all values are ours. RULER, which the Olmo 3 recipe takes, asks at 4,096 to
    65,536 tokens."""

    lengths: tuple[Annotated[int, Field(ge=256)], ...] = (320, 640, 1280, 2560, 5120)
    """Tokens of text, question and answer."""
    texts: Annotated[int, Field(ge=1)] = 24
    """Texts of held-out names, for each length."""
    questions: Annotated[int, Field(ge=1)] = 8
    """To each text: about facts at as many depths, evenly from its start to its end."""
    seed: int = 1
    """Of the texts. Trials while this was written read other ones."""
    bins: Annotated[int, Field(ge=1)] = 10
    """Stretches of the longest texts for which the loss is told."""


@dataclass(frozen=True)
class Reading:
    """A text and questions about it, as token ids.

    Attributes
    ----------
    shared : list of int
        What all questions stand behind: the text, and what stands before it.
    turns : list of (list of int)
        Question and answer.
    values : list of (int, int)
        Where the value stands in each turn: first and last-plus-one token.
    depths : list of float
        Where the fact stands in the text, from 0 to 1.
    """

    shared: list[int]
    turns: list[list[int]]
    values: list[tuple[int, int]]
    depths: list[float]


def readings(lm: LanguageModel, config: ReachConfig, length: int) -> Iterator[Reading]:
    """The texts of one length, always the same for the same seed."""
    def count(text: str) -> int:
        return len(encode(lm, text))

    for number in range(config.texts):
        world = Chronicle(f"reach {config.seed} {length} {number}")
        lines = padding(world, length - ROOM, count)
        before, after = FRAMES["one"][0]
        told = [(i / len(lines), world.lines[line]) for i, line in enumerate(lines)
                if line in world.lines and world.lines[line].relation in ASKED]
        chosen = _at_even_depths(told, config.questions)
        turns, values = zip(*(_turn(lm, after.format(q=world.ask(fact)), fact)
                              for _, fact in chosen), strict=True)
        start, _ = lm.user_turn()
        yield Reading(encode(lm, start + before + paragraphs(lines)), list(turns), list(values),
                      [depth for depth, _ in chosen])


def read(lm: LanguageModel, reading: Reading) -> tuple[list[bool], Tensor]:
    """Whether each fact is found, and the loss of each token of the text but its first, in nats."""
    window = getattr(lm.model.config, "sliding_window", None) or 1
    whole = len(reading.shared) // window * window  # so many can be read in blocks
    rest = reading.shared[whole:]
    device, cache = lm.model.device, DynamicCache(config=lm.model.config)
    text = torch.tensor([reading.shared[:whole]], device=device)
    turns = pad_sequence([torch.tensor(rest + turn) for turn in reading.turns], batch_first=True,
                         padding_value=lm.tokenizer.pad_token_id).to(device)
    with torch.inference_mode():
        with using(lm.model, WINDOW_BLOCKS):
            logits = lm.model(text, past_key_values=cache).logits
        cache.batch_repeat_interleave(len(turns))
        said = lm.model(turns, past_key_values=cache).logits.argmax(-1)
    found = []
    for row, guess, (start, end) in zip(turns, said, reading.values, strict=True):
        start, end = start + len(rest), end + len(rest)
        found.append(bool((guess[start - 1:end - 1] == row[start:end]).all()))
    return found, cross_entropy(logits[0, :-1].float(), text[0, 1:], reduction="none")


def reach(
    lm: LanguageModel, config: ReachConfig = ReachConfig(),
    done: Callable[[float], None] = lambda texts: None,
) -> tuple[list[dict], list[dict]]:
    """Read all texts of all lengths.

    Parameters
    ----------
    done : callable
        Is told of each text that has been read.

    Returns
    -------
    list of dict
        For each question: `length`, `text` (number, unique within a length), `depth`, `found`.
    list of dict
        For each text of the largest length and each stretch of it: `text`, `position` (the middle
        of the stretch), `loss` (mean, nats per token).
    """
    answers, losses = [], []
    for length in config.lengths:
        for number, reading in enumerate(readings(lm, config, length)):
            found, loss = read(lm, reading)
            answers += [{"length": length, "text": number, "depth": depth, "found": hit}
                        for depth, hit in zip(reading.depths, found, strict=True)]
            if length == max(config.lengths):
                size = (length - ROOM) // config.bins
                losses += [{"text": number, "position": size * i + size // 2,
                            "loss": float(part.mean())}
                           for i, part in enumerate(loss.split(size)[:config.bins])]
            done(1)
    return answers, losses


def encode(lm: LanguageModel, text: str) -> list[int]:
    """Token ids of a text, which may hold parts of the chat template."""
    return lm.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def _turn(lm: LanguageModel, question: str, fact: Fact) -> tuple[list[int], tuple[int, int]]:
    """The rest of the user turn with the answer, and where the value stands."""
    _, middle = lm.user_turn()
    head, tail = fact.answer.rsplit(fact.value, 1)
    ids = encode(lm, question + middle + head.rstrip())
    value = encode(lm, " " + fact.value)
    return ids + value + encode(lm, tail), (len(ids), len(ids) + len(value))


def _at_even_depths(
    told: Sequence[tuple[float, Fact]], count: int
) -> list[tuple[float, Fact]]:
    """The facts nearest to the middles of as many stretches of the text, none twice."""
    left = list(told)
    chosen = []
    for i in range(min(count, len(left))):
        chosen.append(min(left, key=lambda one: abs(one[0] - (i + 0.5) / count)))
        left.remove(chosen[-1])
    return sorted(chosen, key=lambda one: one[0])


NONE = "no extension"
METHODS: dict[str, dict | None] = {
    "YaRN, full layers": {},
    "YaRN, all layers": {"layers": "all"},
    "interpolation": {"method": "interpolation"},
    "NTK-aware": {"method": "ntk"},
    "larger base": {"method": "base", "theta": 8e6},
    NONE: None,
}
"""What each changes in `RopeExtension`; all but the second on full layers. The new base is that of
the Olmo 3 recipe, 8 x 10^6; the old one is the same, too, 5 x 10^5."""


class ExtensionConfig(Config):
    """A comparison of methods. All values but the factor and `long` are ours."""

    methods: Annotated[tuple[str, ...], Field(min_length=1)] = tuple(METHODS)
    """Keys of `METHODS`."""
    factor: Annotated[float, Field(ge=1)] = 8.0
    """Window wanted over window trained. Olmo 3: 8,192 to 65,536."""
    steps: Annotated[int, Field(ge=0)] = 48
    """One instance each, as long as the window wanted."""
    long: Annotated[float, Field(ge=0, le=1)] = 0.34
    """Share of the tokens that lie in documents longer than the window trained. Olmo 3: 34 %
    long, 66 % short."""
    synthetic: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the long documents with questions of CWE or REX."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak rate of AdamW; up over the first tenth of the steps, then down to 0 in a line."""
    checkpoints: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.125, 0.25, 0.5)
    """Shares of the steps after which the model is asked, too, besides before and after."""
    studied: tuple[str, ...] = ("YaRN, full layers", NONE)
    """Methods for which it is asked at the checkpoints: the token budget."""
    seed: int = 0
    """Of the documents and their order."""
    reach: ReachConfig = ReachConfig()

    @field_validator("methods", "studied")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in METHODS]:
            raise ValueError(f"no method is called {', '.join(unknown)}. Methods: "
                             f"{', '.join(METHODS)}")
        return names

    def asked_after(self, method: str) -> list[int]:
        """Steps after which a method is asked, in their order."""
        between = self.checkpoints if method in self.studied else ()
        return sorted({0, self.steps, *(round(share * self.steps) for share in between)})

    def rate(self, step: int) -> float:
        """Learning rate of a step."""
        warm = max(self.steps // 10, 1)
        return self.learning_rate * min((step + 1) / warm, 1, (self.steps - step) / (
            self.steps - warm + 1))


def extended(
    lm: LanguageModel, method: str, factor: float, recipe: TeachingRecipe
) -> LanguageModel:
    """A model with its positions extended by a method, in place."""
    if (changes := METHODS[method]) is not None:
        extend(lm.model, RopeExtension(factor=factor, trained=trained_window(recipe), **changes))
    return lm


def trained_window(recipe: TeachingRecipe) -> int:
    """Tokens of the longest rows that a teaching model was trained with."""
    return max(length for _, length in recipe.curriculum)


def instances(
    lm: LanguageModel, recipe: TeachingRecipe, config: ExtensionConfig
) -> list[list[Document]]:
    """The documents of each step, packed by best fit; the same for all methods."""
    trained = trained_window(recipe)
    capacity = round(trained * config.factor)
    documents = Texts(lm, recipe, config.seed).mixture(
        config.steps * capacity, trained, capacity, config.long, config.synthetic)
    packing = best_fit([len(document.ids) for document in documents], capacity)
    packed: list[list[Document]] = [[] for _ in range(packing.instances)]
    for document, instance in zip(packing.document, packing.instance, strict=True):
        packed[instance].append(documents[document])
    # There may be an instance more than steps; what is left out is the emptiest.
    packed.sort(key=lambda held: -sum(len(document.ids) for document in held))
    packed = packed[:config.steps]
    random.Random(f"instances {config.seed}").shuffle(packed)
    return packed


def fine_tune(
    lm: LanguageModel, packed: list[list[Document]], length: int, rate: Callable[[int], float]
) -> Iterator[float]:
    """Train a model in place, an instance of packed documents for each step.

    Parameters
    ----------
    length : int
        Tokens of an instance.
    rate : callable
        Learning rate of a step.

    Yields
    ------
    float
        The mean loss on answers, before each step's change.
    """
    model = lm.model
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    for step, documents in enumerate(packed):
        inputs = packed_inputs(model, [[document.ids for document in documents]], length=length,
                               pad_id=lm.tokenizer.pad_token_id)
        ids, labels = inputs["input_ids"], inputs.pop("labels")
        weights = weights_of(documents, labels).to(ids.device)
        with using(model, WINDOW_BLOCKS):
            logits = model(**inputs, use_cache=False).logits
        loss, answers, _ = losses(logits[:, :-1], ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad()
        yield answers


def weights_of(documents: list[Document], labels: Tensor) -> Tensor:
    """Weights in the loss like `labels`, (1, length); 0 where there is no label."""
    weights = torch.zeros(labels.shape)
    given = [weight for document in documents for weight in document.weights]
    weights[0, :len(given)] = torch.tensor(given)
    return weights.masked_fill(labels.cpu() == NO_LABEL, 0)
