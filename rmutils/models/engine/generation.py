"""Answers to many prompts, greedy or sampled, each with a seed of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rmutils.core.errors import UserError
from rmutils.core.validation import checked
from rmutils.models.engine.caches import Trunk, common_prefix, families, stack_caches
from rmutils.models.engine.contrastive_decoding import COPIES, ContrastiveDecoding
from rmutils.models.engine.implementations import writing
from rmutils.models.head_blocks import check_attention_alone, keeps_states
from rmutils.models.language_model import LanguageModel
from rmutils.models.loading import ModelRef

BATCH_TOKENS = {"cpu": 16_384, "cuda": 131_072}
"""Tokens of prompts and answers held at once by kind of device: it bounds the memory. The keys and
values of so many tokens are 16 GiB in Llama-3.1-8B."""
NO_MEMORY = "can't allocate memory"
"""In the message of the error that PyTorch raises on a CPU; accelerators have a type for it."""


def suiting(lm: LanguageModel, sizes: Mapping[str, int]) -> int:
    """Return the size for the kind of device that a model is on; that of a CPU for other kinds."""
    return sizes.get(lm.model.device.type, sizes["cpu"])


def halve(error: RuntimeError, at_once: int, what: str) -> int:
    """Say, after an error in a batch, how many to take at once from now on."""
    if not (isinstance(error, torch.OutOfMemoryError) or NO_MEMORY in str(error)):
        raise error
    if at_once == 1:
        raise UserError(
            f"out of memory with a single {what}. What is done so far is kept. End other programs, "
            "or choose shorter texts or a smaller model: `rmutils doctor` says what this machine "
            "has.") from error
    print(f"Out of memory with {at_once} {what}s at once. Going on with {at_once // 2}.",
          file=sys.stderr, flush=True)
    return at_once // 2


def in_batches(items: Sequence, size: int, act: Callable[[Sequence], Any],
               what: str) -> Iterator[tuple[Sequence, Any]]:
    """Call `act` on batches of a size, and on smaller ones once memory does not suffice."""
    start = 0
    while start < len(items):
        batch = items[start : start + size]
        try:
            made = act(batch)
        except RuntimeError as error:
            size = halve(error, len(batch), what)
        else:
            yield batch, made
            start += len(batch)


ROOM = 128  # tokens for which room is made at once
IDLE = 0.25, 0.5
"""Share of the rows that may have ended before the batch is rebuilt: while prompts wait, and when
none does."""


@dataclass
class _Row:
    """A prompt that is being answered; so many of its first tokens are those of its family."""

    index: int
    prompt: Sequence[int]
    shared: int
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

    @property
    def last(self) -> int:
        """Its last token, which the cache does not hold yet."""
        return self.said[-1] if self.said else self.prompt[-1]

    def say(self, token: int, stop_ids: Collection[int]) -> None:
        """Append a token, unless it is a stop token or the row has ended."""
        if not self.ended:
            if token not in stop_ids:
                self.said.append(token)
            self.ended = token in stop_ids or len(self.said) == self.room


@checked
@torch.inference_mode()
def generate(lm: LanguageModel | str | Path, prompts: str | Sequence[str] | Sequence[Sequence[int]],
             *, max_new_tokens: int, temperature: float = 0.0, top_p: float = 1.0,
             seeds: Sequence[int] | None = None, stop_ids: Collection[int] | None = None,
             contrast: ContrastiveDecoding | None = None, batch_tokens: int | None = None,
             done: Callable[[int, list[int]], None] | None = None) -> Any:
    """Answer each prompt: a text with a text, token ids with token ids.

    An answer depends on its prompt and seed only, not on the other prompts or their order, except
    for the last bits of floating-point numbers: for each token one uniform number is drawn from the
    seed, and the token is where the cumulative probability exceeds it.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, or the name or folder of one.
    prompts : str, sequence of str, or sequence of sequences of int
        A text or several, each a user turn that the chat template is put around where there is
        one; or token ids, at least one each, as they are.
    max_new_tokens : int
    temperature : float
        0: greedy.
    top_p : float
        Sample from the fewest tokens whose probabilities sum up to at least this.
    seeds : sequence of int, optional
        One per prompt. Default: its number. Without effect if the temperature is 0.
    stop_ids : collection of int, optional
        Tokens that end an answer; default: the model's.
    contrast : ContrastiveDecoding, optional
        Choose tokens from the contrast with a masked model. Both share the prompt, all but its last
        token, as the whole model reads it; from then on each has keys and values of its own.
    batch_tokens : int, optional
        Tokens of prompts and answers held at once, in one row at least; default: as many as suit
        the device. If memory runs out all the same, unfinished answers are written again in smaller
        batches.
    done : callable, optional
        Called with the index and the tokens of each answer when it has ended.

    Returns
    -------
    str, list of str, or list of lists of int
        As the prompts. Texts have no special tokens; token ids are the new ones, without the stop
        token. An answer that never stopped has `max_new_tokens`.

    Raises
    ------
    UserError
        Memory does not suffice for a single row; no token is asked for.

    Examples
    --------
    >>> from rmutils import generate, load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> generate(lm, "Repeat: the old mill.", max_new_tokens=3)
    'The old mill'
    >>> generate(lm, [lm.render("Repeat: the old mill.")], max_new_tokens=3)  # token ids
    [[366, 761, 1093]]
    """
    lm = ModelRef(lm).load()
    if isinstance(prompts, str) or any(isinstance(prompt, str) for prompt in prompts):
        texts = [prompts] if isinstance(prompts, str) else prompts
        ids = [lm.render(text) if lm.chat else lm.encode(text, begin=True) for text in texts]
        said = lm.tokenizer.batch_decode(generate(
            lm, ids, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p,
            seeds=seeds, stop_ids=stop_ids, contrast=contrast, batch_tokens=batch_tokens,
            done=done),
            skip_special_tokens=True)
        return said[0] if isinstance(prompts, str) else said
    seeds = range(len(prompts)) if seeds is None else seeds
    if max_new_tokens < 1:
        raise UserError(f"max_new_tokens is {max_new_tokens}: an answer has one token at least.")
    if keeps_states(lm.model):
        return _one_by_one(lm, prompts, seeds, max_new_tokens, contrast, done, partial(
            _choose, temperature=temperature, top_p=top_p),
            lm.stop_ids if stop_ids is None else stop_ids)
    if batch_tokens is None:
        batch_tokens = suiting(lm, BATCH_TOKENS)
    waiting = [(i, shared) for family, shared in families(prompts) for i in family][::-1]
    answers: list[list[int]] = [[] for _ in prompts]
    empty = partial(_Batch, lm.model, lm.stop_ids if stop_ids is None else stop_ids, temperature,
                    top_p, contrast)
    batch = empty()
    while waiting or batch.rows:
        new: list[_Row] = []
        while waiting:
            i, shared = waiting[-1]
            uniforms = _uniforms(seeds[i], max_new_tokens) if temperature else []
            row = _Row(i, prompts[i], shared, max_new_tokens, uniforms)
            rows = [*batch.rows, *new, row]
            widest = max(r.width for r in rows)
            if len(rows) > 1 and batch.copies * len(rows) * widest > batch_tokens:
                break
            new.append(row)
            waiting.pop()
        held = [*batch.rows, *new]
        try:
            batch.join(new)
            batch.write(IDLE[not waiting])
            ended = batch.retire()
        except RuntimeError as error:
            size = halve(error, len(held), "answer")
            batch_tokens = batch.copies * size * max(row.width for row in held)
            batch = empty()
            ended = [row for row in held if row.ended]
            waiting += [(row.index, row.shared) for row in held[::-1] if not row.ended]
        for row in ended:
            answers[row.index] = row.said
            if done:
                done(row.index, row.said)
    return answers


def _uniforms(seed: int, count: int) -> list[float]:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed),
                      dtype=torch.float64).tolist()


class _Batch:
    """Rows of different age, padded on the left; the cache holds a row but for its last token."""

    def __init__(self, model: PreTrainedModel, stop_ids: Collection[int], temperature: float,
                 top_p: float, contrast: ContrastiveDecoding | None = None):
        self.contrast, self.copies = contrast, COPIES if contrast else 1
        self.model, self.stop_ids = model, stop_ids
        self.temperature, self.top_p = temperature, top_p
        self.rows: list[_Row] = []
        self.caches: list[DynamicCache] = []  # one, but for a moment in `join`
        self.room = 0
        self.trunk = Trunk(model, [])  # of the family that was read last

    def join(self, new: list[_Row]) -> None:
        """Read the prompts of new rows, and make room for what they will say."""
        for beginning, family in groupby(new, lambda row: tuple(row.prompt[: row.shared])):
            if len(beginning) > common_prefix(beginning, self.trunk.ids):
                self.trunk = Trunk(self.model, beginning, self.trunk)
            family = [*family]
            self.caches += self.trunk.read_all([row.prompt for row in family], self.copies)
            self.rows += family
        self.room = min(max(row.width - len(row) for row in self.rows), ROOM)
        self.caches = [stack_caches(self.caches, self.room)]

    def write(self, idle: float) -> None:
        """Write until there is no more room, or more than a share of the rows has ended."""
        columns = self.caches[0].get_seq_length()
        pads = [columns + 1 - len(row) for row in self.rows]
        masking = self.contrast.masking(self.model) if self.contrast else nullcontext()
        with writing(self.model), masking:
            for _ in range(self.room):
                if sum(row.ended for row in self.rows) > idle * len(self.rows):
                    break
                self._step(pads, self.caches[0])

    def retire(self) -> list[_Row]:
        """Take out the rows that have ended, and the columns that only they needed."""
        ended = [row for row in self.rows if row.ended]
        if ended:
            kept = [i for i, row in enumerate(self.rows) if not row.ended]
            self.rows = [self.rows[i] for i in kept]
            cache = self.caches.pop()
            if self.rows:
                columns = max(map(len, self.rows)) - 1
                rows = [self.copies * i + copy for i in kept for copy in range(self.copies)]
                self.caches.append(DynamicCache([
                    (layer.keys[rows, :, -columns:], layer.values[rows, :, -columns:])
                    for layer in cache.layers]))
        return ended

    def _step(self, pads: list[int], cache: DynamicCache) -> None:
        """Read the last token of each row, and let it say one more."""
        device, before = self.model.device, cache.get_seq_length()
        start = torch.tensor(pads, device=device).repeat_interleave(self.copies)[:, None]
        last = torch.tensor([row.last for row in self.rows], device=device)
        columns = torch.arange(before + 1, device=device)
        logits = self.model(
            input_ids=last.repeat_interleave(self.copies)[:, None],
            attention_mask=(columns >= start).long(), position_ids=before - start,
            past_key_values=cache, use_cache=True,
        ).logits[:, -1]
        if self.contrast:
            logits = self.contrast.combine(logits)
        chosen = _choose(logits, self.rows, temperature=self.temperature, top_p=self.top_p)
        for row, token in zip(self.rows, chosen, strict=True):
            row.say(token, self.stop_ids)


def _choose(logits: Tensor, rows: list[_Row], *, temperature: float, top_p: float) -> list[int]:
    """The token that each row says next."""
    if not temperature:
        return logits.argmax(-1).tolist()
    odds = (logits.float() / temperature).softmax(-1).double()
    if top_p < 1:
        odds = _nucleus(odds, top_p)
    sums = odds.cumsum(-1)
    uniforms = [row.uniforms[min(len(row.said), row.room - 1)] for row in rows]
    whole = sums[:, -1:]
    drawn = torch.tensor(uniforms, device=sums.device)[:, None] * whole
    # A number that rounds to 1 would be behind the last token.
    drawn = torch.minimum(drawn, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, drawn.to(sums), right=True)[:, 0].tolist()


def steps(model: PreTrainedModel, ids: Sequence[int]) -> Generator[Tensor, int]:
    """Read a text whole, then each token sent; yield the logits of the next, (vocabulary,)."""
    cache = None
    while True:
        read = model(input_ids=torch.tensor([[*ids]], device=model.device), past_key_values=cache,
                     use_cache=True)
        cache = read.past_key_values
        ids = [(yield read.logits[0, -1])]


def _one_by_one(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], seeds: Sequence[int], room: int,
    contrast: ContrastiveDecoding | None, done: Callable[[int, list[int]], None] | None,
    choose: Callable[[Tensor, list[_Row]], list[int]], stop_ids: Collection[int],
) -> list[list[int]]:
    """The answers of a hybrid."""
    if contrast:
        check_attention_alone(lm.model)
    answers = []
    for i, prompt in enumerate(prompts):
        row = _Row(i, prompt, 0, room, _uniforms(seeds[i], room))
        reader = steps(lm.model, prompt)
        logits = next(reader)
        while True:
            (token,) = choose(logits[None], [row])
            row.say(token, stop_ids)
            if row.ended:
                break
            logits = reader.send(token)
        answers.append(row.said)
        if done:
            done(i, row.said)
    return answers


def _nucleus(odds: Tensor, top_p: float) -> Tensor:
    """Probabilities without those that the most probable ones before them make needless."""
    ordered, order = odds.sort(-1, descending=True)
    needless = ordered.cumsum(-1) - ordered >= top_p
    return odds.masked_fill(torch.zeros_like(needless).scatter(-1, order, needless), 0)


@torch.inference_mode()
def next_token_logits(lm: LanguageModel, ids: Sequence[int]) -> Tensor:
    """Return a text's logits, (tokens, vocabulary), float32 on the CPU: row i is about i + 1."""
    return lm.model(torch.tensor([ids], device=lm.model.device),
                    use_cache=False).logits[0].float().cpu()
