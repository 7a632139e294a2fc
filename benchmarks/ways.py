"""Ways to find out what a detection wants to know: the answer, and what each head copied.

Each takes a model, cases, the number of new tokens and the stop tokens, and yields a `Run` per
case. `two_phase` is the algorithm of the published code (Wu et al.), written plainly.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, StoppingCriteria

from rmutils.corpora.niah import NiahCase
from rmutils.heads import answering
from rmutils.heads.copy_score import copy_counts
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import using

Rows = Sequence[Tensor]
"""A layer each: (heads, keys), the attention of the token that is read."""


@dataclass(frozen=True)
class Run:
    """One case: its answer, needle tokens that each head copied, seconds, and steps made.

    `copied` is None where heads were not looked at. `passes`, where drafts are verified, is the
    case's share of the passes of its batch, and of those that steps of one token would take.
    """

    said: list[int]
    copied: dict[str, int] | None
    prefill: float
    decode: float
    steps: int
    passes: tuple[float, float] | None = None


@torch.inference_mode()
def step_by_step(
    case: NiahCase, read: Callable[[Tensor], Any],
    step: Callable[[Tensor, Any], tuple[Tensor, Rows, Any]],
    new_tokens: int, stop_ids: Collection[int], *, ends: bool,
) -> Run:
    """Read all of the prompt but its last token, then go on token by token and look at each head.

    Parameters
    ----------
    read : callable
        Token ids (1, n) -> whatever `step` wants to know of them.
    step : callable
        A token (1, 1) and what came before -> logits, attention, what came before the next one.
    ends : bool
        False: after a stop token steps go on, as in the published code; their tokens and what heads
        do in them do not count.
    """
    prompt = torch.tensor([case.input_ids])
    started = time.perf_counter()
    before = read(prompt[:, :-1])
    between = time.perf_counter()
    token, said, copied, ended, steps = prompt[:, -1:], [], defaultdict(set), False, 0
    start, end = case.needle_span
    while steps < new_tokens and not (ended and ends):
        logits, rows, before = step(token, before)
        token = logits[:, -1].argmax(-1, keepdim=True)
        steps += 1
        ended = ended or token.item() in stop_ids
        if not ended:
            said.append(token.item())
        for layer, heads in enumerate(rows):
            for head in range(len(heads)):
                place = heads[head].argmax().item()
                if start <= place < end and case.input_ids[place] == token.item() and not ended:
                    copied[f"{layer}-{head}"].add(place)
    counts = {head: len(places) for head, places in copied.items()}
    return Run(said, counts, between - started, time.perf_counter() - between, steps)


def reader(lm: LanguageModel) -> Callable[[Tensor], DynamicCache]:
    """Prefill by SDPA. Logits of all tokens, which the published code computes, are left out."""
    def read(ids: Tensor) -> DynamicCache:
        with using(lm.model, "sdpa"):
            return lm.model(ids, use_cache=True, logits_to_keep=1).past_key_values

    return read


def two_phase(lm: LanguageModel, cases: Iterable[NiahCase], *how) -> Iterator[Run]:
    """Prefill without a look at the heads, then steps with their attention, one case at a time."""
    def step(token: Tensor, cache: DynamicCache):
        out = lm.model(token, past_key_values=cache, use_cache=True, output_attentions=True)
        return out.logits, [layer[0, :, -1] for layer in out.attentions], cache

    with using(lm.model, "eager"):
        for case in cases:
            yield step_by_step(case, reader(lm), step, *how, ends=False)


class _Clock(StoppingCriteria):
    """Keeps the time of the first token; stops nothing."""

    first: float | None = None

    def __call__(self, ids: Tensor, scores: Any, **_) -> Tensor:
        self.first = self.first or time.perf_counter()
        return torch.zeros(len(ids), dtype=torch.bool)


def _generate(lm: LanguageModel, case: NiahCase, new_tokens: int, stop_ids: Collection[int],
              **options) -> tuple[list[int], Any, float, float]:
    """transformers' `generate`; the tokens, all that it returns, and seconds to the first token and
    after it."""
    prompt, clock = torch.tensor([case.input_ids]), _Clock()
    started = time.perf_counter()
    out = lm.model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, pad_token_id=0,
        max_new_tokens=new_tokens, eos_token_id=sorted(stop_ids) or None,
        stopping_criteria=[clock], return_dict_in_generate=True, **options)
    ended = time.perf_counter()
    written = out.sequences[0, prompt.shape[1]:].tolist()
    return written, out, clock.first - started, ended - clock.first


def generate(lm: LanguageModel, cases: Iterable[NiahCase], *how) -> Iterator[Run]:
    """Plain generation: no look at any head."""
    for case in cases:
        written, _, prefill, decode = _generate(lm, case, *how)
        said = [token for token in written if token not in how[1]]
        yield Run(said, None, prefill, decode, len(written))


def all_attentions(lm: LanguageModel, cases: Iterable[NiahCase], *how) -> Iterator[Run]:
    """`generate(output_attentions=True)`, which keeps all attention of the prompt, too."""
    with using(lm.model, "eager"):
        for case in cases:
            written, out, prefill, decode = _generate(lm, case, *how, output_attentions=True)
            given = iter(zip(written, out.attentions, strict=True))

            def step(token: Tensor, _: None, given=given, size=lm.model.config.vocab_size):
                said, layers = next(given)
                logits = torch.nn.functional.one_hot(torch.tensor([[said]]), size)
                return logits, [layer[0, :, -1] for layer in layers], None

            looked = step_by_step(case, lambda ids: None, step, len(written), how[1], ends=True)
            yield Run(looked.said, looked.copied, prefill, decode + looked.decode, looked.steps)
            del out, given, step


@contextmanager
def passes_of(lm: LanguageModel) -> Iterator[list[int]]:
    """Fills in how many tokens of a row each pass of the whole model reads; reading a prompt is
    none."""
    passes: list[int] = []
    hook = lm.model.register_forward_pre_hook(
        lambda _, args, kwargs: passes.append(kwargs["input_ids"].shape[1]), with_kwargs=True)
    try:
        yield passes
    finally:
        hook.remove()


def ours(lm: LanguageModel, cases: Iterable[NiahCase], new_tokens: int,
         stop_ids: Collection[int]) -> Iterator[Run]:
    """The detection of this project: all cases together. Of seconds each case has its share."""
    cases, spent, decode, shares = list(cases), [], answering.decode, {}

    def timed(*args, **kwargs):
        started = time.perf_counter()
        with passes_of(lm) as passes:
            answers = decode(*args, **kwargs)
        spent.append(time.perf_counter() - started)
        steps = max(min(len(answer.tokens) + 1, new_tokens) for answer in answers)
        shares.update({id(answer): (len(passes) / len(answers), steps / len(answers))
                       for answer in answers})
        return answers

    started = time.perf_counter()
    with patch.object(answering, "decode", timed):
        answers = {case.id: answer for case, answer, _ in answering.batched(
            lm, cases, max_new_tokens=new_tokens, stop_ids=stop_ids)}
    seconds = time.perf_counter() - started
    for case in cases:
        answer = answers[case.id]
        counts = copy_counts(answer, case.input_ids, case.needle_span)
        copied = {f"{i}-{j}": int(counts[i, j]) for i, j in zip(*np.nonzero(counts), strict=True)}
        yield Run(answer.tokens.tolist(), copied, (seconds - sum(spent)) / len(cases),
                  sum(spent) / len(cases), len(answer.tokens), shares[id(answer)])
