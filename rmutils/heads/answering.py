"""Answers to the cases of a detection, with where each head looked: batched, or one by one."""

from __future__ import annotations

import re
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import groupby
from typing import Any, Literal

from transformers import DynamicCache

from rmutils.attention.decoding import Answer, capturing, decode
from rmutils.attention.watching import RowsAnswer, RowsRecorder, What, head_outputs
from rmutils.corpora.niah import NiahCase
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, common_prefix, read_rows
from rmutils.models.engine.generation import in_batches, suiting
from rmutils.models.head_blocks import keeps_states

BATCH_TOKENS = {"cpu": 5120, "cuda": 65_536}
"""Prompt tokens decoded together by kind of device: it bounds the memory. The keys and values of so
many tokens are 8 GiB in Llama-3.1-8B."""
Watch = Callable[..., Answer]
"""Answers one prompt (token ids), given `max_new_tokens` and `stop_ids` as `decode` takes them, and
tells where each head looked: for an attention that takes one text at a time."""
Decode = Callable[[Sequence[NiahCase], DynamicCache], Sequence[Answer]]
"""Answers the cases of a batch, given the keys and values of their prompts."""
Beginning = tuple[tuple[int, ...], NiahCase]
"""The beginning of a prompt that neighbours share, and its case."""
Answered = Iterator[tuple[NiahCase, Answer, float]]
"""Cases, their answers, and the seconds that each took."""


def tokens_together(lm: LanguageModel, longest: int) -> int:
    """Return how many prompt tokens a model decodes in one batch on its device."""
    bound = suiting(lm, BATCH_TOKENS)
    return max(bound, 2 * longest if longest <= bound else longest)


def watched_rows(lm: LanguageModel, what: Collection[What], cases: Sequence[NiahCase],
                 cache: DynamicCache, *, max_new_tokens: int,
                 stop_ids: Collection[int]) -> list[RowsAnswer]:
    """Answer the cases of a batch, and keep the rows that decide the tokens of the answers."""
    prompts, recorder = [case.input_ids for case in cases], RowsRecorder(what, len(cases))
    layers = range(lm.shape[0]) if "outputs" in what else ()
    with head_outputs(lm, layers, recorder.see_output):
        answers = decode(lm.model, recorder, prompts, [cache], max_new_tokens=max_new_tokens,
                         stop_ids=stop_ids)
    longest = max(map(len, prompts))
    return [recorder.answer(text, answer, len(prompt), longest)
            for text, (answer, prompt) in enumerate(zip(answers, prompts, strict=True))]


def one_by_one(cases: list[NiahCase], watch: Watch) -> Answered:
    """Answer the cases in their order, each by itself."""
    for case in cases:
        started = time.perf_counter()
        answer = watch(case.input_ids)
        yield case, answer, time.perf_counter() - started


def batched(lm: LanguageModel, cases: list[NiahCase], decoded: Decode | None = None, *,
            max_new_tokens: int, stop_ids: Collection[int] = ()) -> Answered:
    """Answer the cases haystack by haystack, in batches; text that they share is read once."""
    alone = keeps_states(lm.model)  # each text is read by itself
    trunk = None if alone else Trunk(lm.model, [])

    def trunks(beginnings: Sequence[tuple[int, ...]]) -> Iterator[Trunk]:
        nonlocal trunk
        for ids in beginnings:
            trunk = trunk if trunk and ids == trunk.ids else Trunk(lm.model, ids, before=trunk)
            yield trunk

    def answers_to(batch: Sequence[Beginning]) -> Sequence[Answer]:
        beginnings, alike = zip(*batch, strict=True)
        prompts = [case.input_ids for case in alike]
        cache = DynamicCache() if alone else read_rows(
            lm.model, trunks(beginnings), prompts, max_new_tokens)
        if decoded is not None:
            return decoded(alike, cache)
        return decode(lm.model, recorder, prompts, [cache], max_new_tokens=max_new_tokens,
                      stop_ids=stop_ids)

    longest = max((len(case.input_ids) for case in cases), default=0)
    tokens = 1 if alone else tokens_together(lm, longest)
    with capturing(lm.model) as recorder:
        for part in _parts(_shared(cases), tokens):
            started = time.perf_counter()
            for batch, answers in in_batches(part, len(part), answers_to, "case"):
                seconds = (time.perf_counter() - started) / len(batch)
                for (_, case), answer in zip(batch, answers, strict=True):
                    yield case, answer, seconds
                started = time.perf_counter()


def _shared(cases: list[NiahCase]) -> Iterator[Beginning]:
    """The cases, each with the beginning of its prompt that neighbours share."""
    for _, part in groupby(sorted(cases, key=lambda c: (c.haystack, c.length)),
                           key=lambda c: c.haystack):
        places = defaultdict(list)
        for case in part:
            places[case.inserted_span[0], case.needle_index].append(case)
        for place in sorted(place for place in places if len(places[place]) > 1):
            alike = places.pop(place)
            second, longest = alike[-2].input_ids, alike[-1].input_ids
            beginning = longest[: common_prefix(second, longest)]
            yield from ((beginning, case) for case in alike)
        if alone := [case for (case,) in places.values()]:
            deepest = max(alone, key=lambda c: c.inserted_span[0])
            beginning = deepest.input_ids[: deepest.inserted_span[0]]
            yield from ((beginning, case) for case in sorted(alone, key=lambda c: c.length))


def _parts(cases: Iterable[Beginning], tokens: int) -> Iterator[list[Beginning]]:
    """The cases in parts of at most so many tokens, if all of a part are as long as its longest."""
    part: list[Beginning] = []
    longest = 0
    for beginning, case in cases:
        longest = max(longest, len(case.input_ids))
        if part and (len(part) + 1 + (beginning is not part[0][0])) * longest > tokens:
            yield part
            part, longest = [], len(case.input_ids)
        part.append((beginning, case))
    if part:
        yield part


SUCCESS_ROUGE = 0.5
"""A case counts if the recall of the answer is above it (`retrieval_head_detection.py`: 50)."""

Unit = Literal["ROUGE-1", "words", "character pairs"]  # units that a recall counts

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao; Tibetan; Burmese; Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # Chinese characters
"""Letters of scripts that put no spaces between words."""


@lru_cache(maxsize=4096)  # each look-up of a detection asks it of all needles
def rouge_recall(answer: str, response: str) -> float:
    """Return the ROUGE-1 recall of `answer` in `response`, 0 to 1: of words of a to z and digits,
    without their endings, and no others."""
    return float(rouge_scorer("rouge1").score(answer, response)["rouge1"].recall)


@cache
def rouge_scorer(kind: str) -> Any:
    """Return what scores by one of the kinds of ROUGE, with stemming."""
    from rouge_score.rouge_scorer import RougeScorer  # with nltk and scipy, which takes its time

    return RougeScorer([kind], use_stemmer=True)


def unit_of(answer: str) -> Unit:
    """Return what the recall of an answer counts, which its letters decide."""
    letters = "".join(_words(answer))
    if letters.isascii():
        return "ROUGE-1"
    return "character pairs" if _UNSPACED.search(letters) else "words"


def answer_recall(answer: str, response: str) -> float:
    """Return the share of an answer that a response has, 0 to 1, in the units of `unit_of`."""
    unit = unit_of(answer)
    if unit == "ROUGE-1":
        return rouge_recall(answer, response)
    parts: Callable[[str], list[str]] = _words
    if unit == "character pairs":
        size = min(2, len("".join(_words(answer))))
        parts = partial(_neighbours, size=size)
    wanted, found = Counter(parts(answer)), Counter(parts(response))
    return (wanted & found).total() / wanted.total()


def _words(text: str) -> list[str]:
    """Runs of letters, marks and digits, without differences of case and width."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in plain).split()


def _neighbours(text: str, size: int) -> list[str]:
    letters = "".join(_words(text))
    return [letters[i : i + size] for i in range(len(letters) - size + 1)]
