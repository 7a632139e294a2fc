"""The copy score: Equation 1, and the published code's version of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmutils.attention.decoding import Answer
from rmutils.corpora.niah import FULL_STOPS, Haystack, Needle, NiahCase, PublishedNiahBuilder
from rmutils.heads.answering import Unit, rouge_recall
from rmutils.heads.score_kinds import SCORES, ScoreKind
from rmutils.heads.scores import Values

WU_OVERLAP = 0.9  # share of the needle's token set that the published search wants in a window


def copied(answer: Answer, prompt: Sequence[int], span: tuple[int, int]) -> NDArray[np.bool_]:
    """Find where each head copies a token out of `span`: its arg-max is on the token written. (T,
    layers, heads): y_t = x_j, j = arg max(a_t), j in I_k (section 2)."""
    start, end = span
    inside: NDArray[np.bool_] = (answer.positions >= start) & (answer.positions < end)
    looked_at = np.take(prompt, answer.positions, mode="clip")
    return np.asarray(inside & (looked_at == answer.tokens[:, None, None]))


def copy_counts(answer: Answer, prompt: Sequence[int], span: tuple[int, int], *,
                repeats: bool = False) -> NDArray[np.int_]:
    """Count the needle tokens that each head copies, (layers, heads): positions of the prompt, each
    once, as in Equation 1; with `repeats` every copy, as in the published code."""
    hits = copied(answer, prompt, span)
    if repeats:
        return np.asarray(hits.sum(0))
    once = [((answer.positions == j) & hits).any(0) for j in range(*span)]
    return np.asarray(np.sum(once, axis=0, dtype=int))


def wu_span(prompt: Sequence[int], needle: Sequence[int]) -> tuple[int, int]:
    """Find the needle as the published code does (`find_needle_idx` of RH): the first window of its
    length whose tokens cover more than 90 % of the needle's *set* of tokens, or `(-1, -1)`."""
    wanted, size = set(needle), len(needle)
    for i in range(len(prompt)):
        if len(wanted & set(prompt[i : i + size])) / len(wanted) > WU_OVERLAP:
            return i, i + size
    return -1, -1


@SCORES.register("copy")
class CopyScore(ScoreKind):
    """Equation 1: the share of the needle's tokens that a head copies, each position once."""

    @classmethod
    def defined(cls, definition: str) -> type[ScoreKind]:
        return {"paper": CopyScore, "wu": PublishedCopyScore}[definition]

    def score(self, case: NiahCase, answer: Answer) -> Values:
        return copy_counts(answer, case.input_ids, case.needle_span) / self.needle_tokens(case)


class PublishedCopyScore(CopyScore):
    """The score of the published code, on its cases (`PublishedNiahBuilder`): every copy counts, in
    a window that it searches for. An answer ends at a line break as Llama 2 writes it, or at token
    144, whatever that is."""

    version = 2

    def cases(self, haystacks: Sequence[Haystack], needles: Sequence[Needle]) -> list[NiahCase]:
        cases = PublishedNiahBuilder(self.lm, haystacks).grid(
            needles, self.config.lengths, self.config.depths)
        if all(wu_span(case.input_ids, self._needle(case))[0] < 0 for case in cases):
            warnings.warn(
                f"By the published definition every score of {self.lm.name} is 0 with these "
                f"needles: its script looks for a needle's tokens as they are without the text "
                f"around them, and finds them in none of the {len(cases)} prompts, because the "
                f"tokenizer splits them differently there. `--definition paper` finds them.",
                stacklevel=2)
        return cases

    def stop_ids(self) -> set[int]:
        vocabulary = self.lm.tokenizer.get_vocab()
        return {144} | {vocabulary[name] for name in ("<0x0A>",) if name in vocabulary}

    @staticmethod
    def told(table: pd.DataFrame) -> str:
        """Say at how many of the cases the needle stands where another depth has it, too."""
        places = table.groupby(["needle", "length"])["needle_start"]
        depths, different = int(places.size().max()), int(places.nunique().sum())
        if depths < 2 or different == len(table):
            return ""
        return (f"As in the published script, the needle's place is looked for by token ids of "
                f"Llama 2 (a full stop: {' or '.join(map(str, FULL_STOPS))}). Here the "
                f"{len(table)} cases have {different} different places, so the others are copies. "
                f"`--definition paper` puts needles at the depths asked for.")

    @staticmethod
    def recall(answer: str, response: str) -> tuple[float, Unit]:
        """ROUGE-1, whatever the script."""
        return rouge_recall(answer, response), "ROUGE-1"

    def _needle(self, case: NiahCase) -> list[int]:
        return self.lm.encode(case.needle.real_needle)

    def needle_tokens(self, case: NiahCase) -> int:
        return len(self._needle(case))

    def score(self, case: NiahCase, answer: Answer) -> Values:
        span = wu_span(case.input_ids, self._needle(case))
        return copy_counts(answer, case.input_ids, span, repeats=True) / self.needle_tokens(case)
