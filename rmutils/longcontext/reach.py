"""How far a model reaches: facts found again in long texts, and the loss by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from rmutils.core.config import Config
from rmutils.core.validation import Count
from rmutils.corpora.world.facts import Fact
from rmutils.corpora.world.lookups import FRAMES
from rmutils.corpora.world.samples import padding, paragraphs
from rmutils.corpora.world.tasks import ASKED
from rmutils.corpora.world.writing import Chronicle
from rmutils.longcontext.context_parallel import WINDOW_BLOCKS
from rmutils.models import LanguageModel
from rmutils.models.changes import using

ROOM = 96  # tokens that are kept free for template, question and answer


class ReachConfig(Config):
    """The questions; all values are ours. RULER, in the Olmo 3 recipe, asks at 4,096 to 65,536."""

    lengths: tuple[Annotated[int, Field(ge=256)], ...] = (320, 640, 1280, 2560, 5120)
    """Tokens of text, question and answer."""
    texts: Count = 24
    """Texts of held-out names, for each length."""
    questions: Count = 8
    """To each text: about facts at as many depths, evenly from its start to its end."""
    seed: int = 1
    """Seed of the texts. Trials read other ones."""
    bins: Count = 10
    """Stretches of the longest texts for which the loss is told."""


@dataclass(frozen=True)
class Reading:
    """A text and questions about it, as token ids."""

    shared: list[int]  # what all questions stand behind: the text, and what stands before it
    turns: list[list[int]]  # question and answer
    values: list[tuple[int, int]]  # the value in each turn: first and last-plus-one token
    depths: list[float]  # where the fact stands in the text, from 0 to 1


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
    """Say whether each fact is found; the loss of each token of the text but the first, in nats."""
    values, loss = guess(lm, reading)
    return [said == right for said, right in values], loss


def guess(lm: LanguageModel,
          reading: Reading) -> tuple[list[tuple[list[int], list[int]]], Tensor]:
    """Return the tokens that a model would write for each value, and the value; and the loss."""
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
    values = []
    for row, wrote, (start, end) in zip(turns, said, reading.values, strict=True):
        start, end = start + len(rest), end + len(rest)
        values.append((wrote[start - 1:end - 1].tolist(), row[start:end].tolist()))
    return values, cross_entropy(logits[0, :-1].float(), text[0, 1:], reduction="none")


def reach(lm: LanguageModel, config: ReachConfig = ReachConfig(),
          done: Callable[[float], object] = lambda texts: None) -> tuple[list[dict], list[dict]]:
    """Read all texts of all lengths."""
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


def _at_even_depths(told: Sequence[tuple[float, Fact]], count: int) -> list[tuple[float, Fact]]:
    """The facts nearest to the middles of as many stretches of the text, none twice."""
    left = list(told)
    chosen = []
    for i in range(min(count, len(left))):
        chosen.append(min(left, key=lambda one: abs(one[0] - (i + 0.5) / count)))
        left.remove(chosen[-1])
    return sorted(chosen, key=lambda one: one[0])
