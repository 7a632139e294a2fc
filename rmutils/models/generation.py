"""Answers to many prompts, greedy or sampled, each with a seed of its own.

A row of the batch that has ended makes room for the next prompt, so short answers never wait for
long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rmutils.models.attention import writing
from rmutils.models.caches import stack_caches
from rmutils.models.language_model import LanguageModel

ROOM = 128
"""Tokens for which room is made at once."""
IDLE = 0.25, 0.5
"""Share of the rows that may have ended before the batch is made anew: while prompts wait, and
when none does."""


@dataclass
class _Row:
    """A prompt that is being answered."""

    index: int
    prompt: Sequence[int]
    room: int
    uniforms: list[float]
    said: list[int] = field(default_factory=list)
    ended: bool = False

    def __len__(self) -> int:
        return len(self.prompt) + len(self.said)

    @property
    def width(self) -> int:
        """Tokens that it can grow to."""
        return len(self.prompt) + self.room

    def say(self, token: int, stop_ids: Collection[int]) -> None:
        """Append a token, unless it is a stop token or the row has ended."""
        if not self.ended:
            if token not in stop_ids:
                self.said.append(token)
            self.ended = token in stop_ids or len(self.said) == self.room


@torch.inference_mode()
def generate(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seeds: Sequence[int] | None = None,
    stop_ids: Collection[int] | None = None,
    batch_tokens: int = 16384,
    done: Callable[[int, list[int]], None] = lambda index, tokens: None,
) -> list[list[int]]:
    """Continue each prompt.

    What is written depends on prompt and seed only, not on the other prompts or their order, but
    for the last bits of floating-point numbers: for each token one uniform number is drawn from the
    seed, and the token is where the cumulative probability exceeds it.

    Parameters
    ----------
    prompts : sequence of sequences of int
        Token ids, at least one each.
    max_new_tokens : int
    temperature : float
        0: greedy.
    top_p : float
        Sample from the fewest tokens whose probabilities sum up to at least this.
    seeds : sequence of int, optional
        One per prompt; needed if the temperature is above 0.
    stop_ids : collection of int, optional
        Tokens that end an answer; default: the model's.
    batch_tokens : int
        Tokens of prompts and answers held at once, in one row at least: it bounds the memory.
    done : callable
        Called with the index and the tokens of each answer when it has ended.

    Returns
    -------
    list of lists of int
        New token ids, without the stop token; an answer that never stopped has `max_new_tokens`.
    """
    waiting = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # the longest goes first
    answers: list[list[int]] = [[] for _ in prompts]
    batch = _Batch(lm.model, lm.stop_ids if stop_ids is None else stop_ids, temperature, top_p)
    with writing(lm.model):
        while waiting or batch.rows:
            new: list[_Row] = []
            while waiting:
                i = waiting[-1]
                uniforms = _uniforms(seeds[i], max_new_tokens) if temperature else []
                row = _Row(i, prompts[i], max_new_tokens, uniforms)
                rows = [*batch.rows, *new, row]
                if len(rows) > 1 and len(rows) * max(r.width for r in rows) > batch_tokens:
                    break
                new.append(row)
                waiting.pop()
            batch.join(new)
            batch.write(IDLE[not waiting])
            for row in batch.retire():
                answers[row.index] = row.said
                done(row.index, row.said)
    return answers


def _uniforms(seed: int, count: int) -> list[float]:
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=draw, dtype=torch.float64).tolist()


class _Batch:
    """Rows of different age, padded on the left; the cache holds all of a row but its last token.
    """

    def __init__(self, model: PreTrainedModel, stop_ids: Collection[int], temperature: float,
                 top_p: float):
        self.model, self.stop_ids = model, stop_ids
        self.temperature, self.top_p = temperature, top_p
        self.rows: list[_Row] = []
        self.caches: list[DynamicCache] = []  # one, but for a moment in `join`
        self.room = 0

    def join(self, new: list[_Row]) -> None:
        """Read the prompts of new rows, choose their first tokens, and make room for more."""
        if new:
            longest = max(len(row.prompt) for row in new)
            ids = [[0] * (longest - len(row.prompt)) + [*row.prompt] for row in new]
            cache = DynamicCache()
            self._read(new, ids, [longest - len(row.prompt) for row in new], cache)
            self.caches.append(cache)
            self.rows += new
        self.room = min(max(row.width - len(row) for row in self.rows), ROOM)
        self.caches = [stack_caches(self.caches, self.room)[1]]

    def write(self, idle: float) -> None:
        """Write until there is no more room, or more than a share of the rows has ended."""
        columns = self.caches[0].get_seq_length()
        pads = [columns + 1 - len(row) for row in self.rows]
        for _ in range(self.room):
            if sum(row.ended for row in self.rows) > idle * len(self.rows):
                break
            last = [[row.said[-1] if row.said else 0] for row in self.rows]
            self._read(self.rows, last, pads, self.caches[0])

    def retire(self) -> list[_Row]:
        """Take out the rows that have ended, and the columns that only they needed."""
        ended = [row for row in self.rows if row.ended]
        if ended:
            kept = [i for i, row in enumerate(self.rows) if not row.ended]
            self.rows = [self.rows[i] for i in kept]
            cache = self.caches.pop()
            if self.rows:
                columns = max(map(len, self.rows)) - 1
                self.caches.append(DynamicCache([
                    (layer.keys[kept, :, -columns:], layer.values[kept, :, -columns:])
                    for layer in cache.layers]))
        return ended

    def _read(self, rows: list[_Row], ids: list[list[int]], pads: list[int],
              cache: DynamicCache) -> None:
        """Read more tokens of each row, and let it say one more."""
        device = self.model.device
        start = torch.tensor(pads, device=device)[:, None]
        before = cache.get_seq_length()
        columns = torch.arange(before + len(ids[0]), device=device)
        logits = self.model(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=(columns >= start).long(),
            position_ids=(columns[before:] - start).clamp(min=0),
            past_key_values=cache, use_cache=True, logits_to_keep=1,
        ).logits[:, -1]
        for row, token in zip(rows, self._choose(logits, rows), strict=True):
            row.say(token, self.stop_ids)

    def _choose(self, logits: Tensor, rows: list[_Row]) -> list[int]:
        """The token that each row says next."""
        if not self.temperature:
            return logits.argmax(-1).tolist()
        odds = (logits.float() / self.temperature).softmax(-1).double()
        if self.top_p < 1:
            odds = _nucleus(odds, self.top_p)
        sums = odds.cumsum(-1)
        uniforms = [row.uniforms[min(len(row.said), row.room - 1)] for row in rows]
        drawn = torch.tensor(uniforms, device=sums.device)[:, None] * sums[:, -1:]
        return torch.searchsorted(sums, drawn.to(sums), right=True)[:, 0].tolist()


def _nucleus(odds: Tensor, top_p: float) -> Tensor:
    """Probabilities without those that the most probable ones before them make needless."""
    ordered, order = odds.sort(-1, descending=True)
    needless = ordered.cumsum(-1) - ordered >= top_p
    return odds.masked_fill(torch.zeros_like(needless).scatter(-1, order, needless), 0)
