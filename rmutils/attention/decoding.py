"""Greedy answers, decoded in batches, with the key at which each head looks hardest.

Prefill is done before (`rmutils.models.engine.caches`): the cases of one haystack share the text up
to the needle, which is read once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from rmutils.attention.capture import ArgMaxRecorder
from rmutils.models.engine.caches import stack_caches

NOTHING = -1
"""Stands for a token behind the end of a forced answer."""


@dataclass(frozen=True)
class Answer:
    """An answer of T tokens: the model's greedy one, or one that was forced on it.

    Attributes
    ----------
    tokens : ndarray
        (T,) token ids, without the stop token.
    positions : ndarray
        (T, layers, heads): prompt position at which the head looked hardest in the row that decided
        the token.
    """

    tokens: np.ndarray
    positions: np.ndarray


@torch.inference_mode()
def decode(
    model: PreTrainedModel,
    recorder: ArgMaxRecorder,
    prompts: Sequence[Sequence[int]],
    caches: list[DynamicCache],
    *,
    max_new_tokens: int = 0,
    stop_ids: Collection[int] = (),
    forced: Sequence[Sequence[int]] | None = None,
) -> list[Answer]:
    """Decode greedily, or along given answers, in one batch.

    Parameters
    ----------
    prompts : sequence of sequences of int
        B prompts of any length.
    caches : list of DynamicCache
        Their prefilled caches (all tokens but the last), one for each prompt or for all, padded on
        the left. They are emptied, to save memory.
    stop_ids : collection of int
        Tokens that end an answer; empty: every answer has `max_new_tokens` tokens.
    forced : sequence of sequences of int, optional
        B answers, of any length, to be written in place of the model's own choice (teacher
        forcing). The other two parameters are then ignored.
    """
    if forced is not None:
        max_new_tokens, stop_ids = max(map(len, forced)), {NOTHING}
        given = torch.tensor([*zip_longest(*forced, fillvalue=NOTHING)], device=model.device)
    cache = stack_caches(caches, room=max_new_tokens)
    step = torch.tensor([[p[-1]] for p in prompts], device=model.device)
    longest = cache.get_seq_length()
    pads = [longest + 1 - len(prompt) for prompt in prompts]
    columns = torch.arange(longest + max_new_tokens, device=model.device)
    visible = (columns >= torch.tensor(pads, device=model.device)[:, None]).long()
    position = torch.tensor([[len(p) - 1] for p in prompts], device=model.device)
    tokens, looked = [], []
    ended = np.zeros(len(prompts), dtype=bool)
    for t in range(max_new_tokens):
        logits = model(
            input_ids=step, attention_mask=visible[:, : longest + t + 1], position_ids=position + t,
            past_key_values=cache, use_cache=True, recorder=recorder,
        ).logits
        chosen = logits[:, -1].argmax(-1) if forced is None else given[t]
        tokens.append(chosen.cpu().numpy())
        step = chosen.clamp(min=0)[:, None]  # behind its end an answer is fed anything
        looked.append(recorder.take().cpu().numpy())
        ended |= np.isin(tokens[-1], list(stop_ids))
        if ended.all():
            break
    return _answers(np.stack(tokens, 1), np.stack(looked, 1), pads, stop_ids)


def _answers(
    tokens: np.ndarray, looked: np.ndarray, pads: list[int], stop_ids: Collection[int]
) -> list[Answer]:
    """Cut each row of the batch at its first stop token; indices become prompt positions."""
    answers = []
    for row, seen, pad in zip(tokens, looked, pads, strict=True):
        stops = np.flatnonzero(np.isin(row, list(stop_ids)))
        end = stops[0] if len(stops) else len(row)
        answers.append(Answer(row[:end], seen[:end] - pad))
    return answers
