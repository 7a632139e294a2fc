"""Cases answered, with where each head looked: together, or one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from rmutils.attention.retrieval_capture import ArgMaxRecorder, capturing
from rmutils.corpora.niah import NiahCase
from rmutils.heads.decoding import Answer, decode
from rmutils.models import LanguageModel
from rmutils.models.memory import in_batches
from rmutils.models.prefixes import Trunk

BATCH_TOKENS = {"cpu": 4096, "cuda": 65_536}
"""Prompt tokens decoded together by kind of device, in one case at least: it bounds the memory. On
an accelerator a step for many texts takes hardly longer than for one; the keys and values of so
many tokens are 8 GiB in Llama-3.1-8B."""
Watch = Callable[..., Answer]
"""Answers a prompt (token ids) with `max_new_tokens` and `stop_ids` as of `decode`, and tells where
each head looked: for an attention that takes one text at a time."""
Answered = Iterator[tuple[NiahCase, Answer, float]]
"""Cases, what is answered, and the seconds that it took."""


def batch_tokens(lm: LanguageModel) -> int:
    """Prompt tokens that a model decodes together where it is."""
    return BATCH_TOKENS.get(lm.model.device.type, BATCH_TOKENS["cpu"])


def one_by_one(cases: list[NiahCase], watch: Watch) -> Answered:
    """Run the cases in their order, each by itself."""
    for case in cases:
        started = time.perf_counter()
        answer = watch(case.input_ids)
        yield case, answer, time.perf_counter() - started


def together(lm: LanguageModel, cases: list[NiahCase], **how) -> Answered:
    """Run the cases haystack by haystack, in batches of one length; what they share is read once.

    Further arguments are those of `rmutils.heads.decoding.decode`.
    """
    by_haystack = sorted(cases, key=lambda c: (c.haystack, c.length))
    with capturing(lm.model) as recorder:
        for _, part in groupby(by_haystack, key=lambda c: c.haystack):
            part = list(part)
            deepest = max(part, key=lambda c: c.inserted_span[0])
            trunk = Trunk(lm.model, deepest.input_ids[: deepest.inserted_span[0]])
            decoded = partial(_decoded, lm, recorder, trunk, how)
            for _, alike in groupby(part, key=lambda c: c.length):
                alike = list(alike)
                size = max(batch_tokens(lm) // len(alike[0].input_ids), 1)
                started = time.perf_counter()
                for batch, answers in in_batches(alike, size, decoded, "case"):
                    seconds = (time.perf_counter() - started) / len(batch)
                    yield from zip(batch, answers, [seconds] * len(batch), strict=True)
                    started = time.perf_counter()


def _decoded(
    lm: LanguageModel, recorder: ArgMaxRecorder, trunk: Trunk, how: dict, cases: Sequence[NiahCase]
) -> list[Answer]:
    prompts = [case.input_ids for case in cases]
    return decode(lm.model, recorder, prompts, [trunk.read(p) for p in prompts], **how)
