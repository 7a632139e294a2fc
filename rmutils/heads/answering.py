"""Cases answered, with where each head looked: together, or one by one."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from rmutils.attention.retrieval_capture import ArgMaxRecorder, capturing
from rmutils.corpora.niah import NiahCase
from rmutils.heads.decoding import Answer, decode
from rmutils.models import LanguageModel
from rmutils.models.memory import in_batches
from rmutils.models.prefixes import Trunk, common_prefix

BATCH_TOKENS = {"cpu": 5120, "cuda": 65_536}
"""Prompt tokens decoded together by kind of device: it bounds the memory. On an accelerator a step
for many texts takes hardly longer than for one; the keys and values of so many tokens are 8 GiB in
Llama-3.1-8B."""
Watch = Callable[..., Answer]
"""Answers a prompt (token ids) with `max_new_tokens` and `stop_ids` as of `decode`, and tells where
each head looked: for an attention that takes one text at a time."""
Answered = Iterator[tuple[NiahCase, Answer, float]]
"""Cases, what is answered, and the seconds that it took."""


def tokens_together(lm: LanguageModel, longest: int) -> int:
    """How many prompt tokens a model decodes together where it is, if the longest prompt has so
    many.

    It is two of the longest at least, unless one alone is longer than the bound: each step reads
    all weights, and half as often for two. The memory that these need is there for short ones, too.
    """
    bound = BATCH_TOKENS.get(lm.model.device.type, BATCH_TOKENS["cpu"])
    return max(bound, 2 * longest if longest <= bound else longest)


def one_by_one(cases: list[NiahCase], watch: Watch) -> Answered:
    """Run the cases in their order, each by itself."""
    for case in cases:
        started = time.perf_counter()
        answer = watch(case.input_ids)
        yield case, answer, time.perf_counter() - started


def together(lm: LanguageModel, cases: list[NiahCase], **how) -> Answered:
    """Run the cases haystack by haystack, in batches; what they share is read once.

    Further arguments are those of `rmutils.heads.decoding.decode`.
    """
    trunk = None
    tokens = tokens_together(lm, max((len(case.input_ids) for case in cases), default=0))
    with capturing(lm.model) as recorder:
        for ids, alike in _shared(cases):
            started = time.perf_counter()
            trunk = Trunk(lm.model, ids, before=trunk)
            decoded = partial(_decoded, lm, recorder, trunk, how)
            for part in _parts(alike, tokens):
                for batch, answers in in_batches(part, len(part), decoded, "case"):
                    seconds = (time.perf_counter() - started) / len(batch)
                    yield from zip(batch, answers, [seconds] * len(batch), strict=True)
                    started = time.perf_counter()


def _shared(cases: list[NiahCase]) -> Iterator[tuple[tuple[int, ...], list[NiahCase]]]:
    """Beginnings of prompts, and the cases that begin so, short ones first.

    Where a needle stands at one place in texts of several lengths, they share what follows it, too.
    Those places come first, in their order, as each shares what is before it with the next one. All
    other cases share the text up to their needles.
    """
    for _, part in groupby(sorted(cases, key=lambda c: (c.haystack, c.length)),
                           key=lambda c: c.haystack):
        places = defaultdict(list)
        for case in part:
            places[case.inserted_span[0], case.needle_index].append(case)
        for place in sorted(place for place in places if len(places[place]) > 1):
            alike = places.pop(place)
            second, longest = alike[-2].input_ids, alike[-1].input_ids
            yield longest[: common_prefix(second, longest)], alike
        if alone := [case for (case,) in places.values()]:
            deepest = max(alone, key=lambda c: c.inserted_span[0])
            yield deepest.input_ids[: deepest.inserted_span[0]], sorted(
                alone, key=lambda c: c.length)


def _parts(cases: list[NiahCase], tokens: int) -> Iterator[list[NiahCase]]:
    """Cases, short ones first, in parts of at most so many tokens, if all are as long as the
    longest one."""
    part: list[NiahCase] = []
    for case in cases:
        if (len(part) + 1) * len(case.input_ids) > tokens:
            yield part
            part = []
        part.append(case)
    yield part


def _decoded(
    lm: LanguageModel, recorder: ArgMaxRecorder, trunk: Trunk, how: dict, cases: Sequence[NiahCase]
) -> list[Answer]:
    prompts = [case.input_ids for case in cases]
    cache = trunk.read_rows(prompts, room=how["max_new_tokens"])
    return decode(lm.model, recorder, prompts, [cache], **how)
