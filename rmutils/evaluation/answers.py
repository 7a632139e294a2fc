"""Greedy answers to many prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from rmutils.models import LanguageModel


def render(lm: LanguageModel, user_turn: str, *, thinking: bool = False) -> list[int]:
    """Token ids of a chat with one user turn, up to where the answer begins.

    Parameters
    ----------
    thinking : bool
        Whether the answer may begin with a chain of thought; without effect where the chat template
        does not know the switch.
    """
    return lm.tokenizer.apply_chat_template(
        [{"role": "user", "content": user_turn}], add_generation_prompt=True,
        return_dict=False, enable_thinking=thinking,
    )


def answer(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    batch_tokens: int = 16384,
) -> list[str]:
    """Greedy answers, in the order of the prompts.

    An answer depends on its own prompt only, but for the last bits of floating-point numbers.

    Parameters
    ----------
    prompts : sequence of sequences of int
        Token ids, chat template included, as from `render`.
    max_new_tokens : int
    batch_tokens : int
        Tokens answered together, in one prompt at least: it bounds the memory.
    """
    answers = [""] * len(prompts)
    for batch in _batches([len(p) + max_new_tokens for p in prompts], batch_tokens):
        tokens = _generate(lm, [prompts[i] for i in batch], max_new_tokens)
        for i, row in zip(batch, tokens, strict=True):
            answers[i] = lm.tokenizer.decode(row, skip_special_tokens=True).strip()
    return answers


def _batches(lengths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Indices of items of similar length, longest first; a batch is at most `room`, padded."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    while order:
        count = max(room // lengths[order[0]], 1)
        yield order[:count]
        order = order[count:]


@torch.inference_mode()
def _generate(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], max_new_tokens: int
) -> list[list[int]]:
    """New tokens of each prompt, up to its stop token."""
    longest = max(map(len, prompts))
    pads = [longest - len(p) for p in prompts]
    ids = torch.tensor([[0] * pad + [*p] for pad, p in zip(pads, prompts, strict=True)])
    visible = (torch.arange(longest) >= torch.tensor(pads)[:, None]).long()
    stop_ids = lm.stop_ids
    # The neutral values keep a model's own sampling settings out.
    new = lm.model.generate(
        ids.to(lm.model.device), attention_mask=visible.to(lm.model.device),
        max_new_tokens=max_new_tokens, do_sample=False, num_beams=1, repetition_penalty=1.0,
        temperature=1.0, top_p=1.0, top_k=50,
        eos_token_id=sorted(stop_ids) or None, pad_token_id=min(stop_ids, default=0),
    )[:, longest:].tolist()
    return [row[: next((i for i, t in enumerate(row) if t in stop_ids), None)] for row in new]
