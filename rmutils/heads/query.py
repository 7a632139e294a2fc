"""The query score of QRHead (arXiv 2506.09944): what the question looks at, and only it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from rmutils.attention.decoding import Answer, decode
from rmutils.corpora.niah import NiahCase
from rmutils.heads.answering import Answered, Watch, batched
from rmutils.heads.one_run import SpanRecorder, check_plain, in_all_layers
from rmutils.heads.score_kinds import SCORES, ScoreKind
from rmutils.heads.scores import Values
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import filled

NULL = "N/A"  # the question that asks nothing


@dataclass(frozen=True)
class _Read(Answer):
    """A question instead of an answer; `calibrated` is (layers, heads, tokens of the needle)."""

    calibrated: Values


@SCORES.register("query")
class QueryScore(ScoreKind):
    """Attention of the question to the inserted sentence, less that of the question "N/A"."""

    only_found = False

    def __init__(self, lm: LanguageModel, config: Any):
        super().__init__(lm, config)
        check_plain(lm, config.score)

    def answers(self, cases: list[NiahCase], watch: Watch | None) -> Answered:
        self.refuse_variant(watch)
        asked = {case.id: (case, [self._after(case, case.prompt), self._after(case, (
            NULL.join(case.prompt.rsplit(case.needle.question, 1))))]) for case in cases}

        @torch.inference_mode()
        def read(batch: Sequence[NiahCase], cache: DynamicCache) -> list[Answer]:
            """Two questions about the same contexts."""
            columns, model = max(len(case.input_ids) for case in batch), self.lm.model
            spans = [(columns - len(case.input_ids) + case.inserted_span[0], columns
                      - len(case.input_ids) + case.inserted_span[1]) for case in batch]
            seen = []
            for which in (0, 1):
                recorder = SpanRecorder(spans, model.device)
                decode(model, recorder, [case.input_ids for case in batch],
                       [filled(cache, columns - 1)],
                       forced=[asked[case.id][1][which] for case in batch])
                seen.append([in_all_layers(self.lm, recorder.of(row)[0].mean(2), 0)
                             for row in range(len(batch))])
            return [_Read(np.array([], int), np.zeros((0, *self.lm.shape), int),
                          (own - null)[..., : case.inserted_span[1] - case.inserted_span[0]])
                    for case, own, null in zip(batch, *seen, strict=True)]

        room = max((len(rest) for _, both in asked.values() for rest in both), default=0)
        contexts = [replace(case, input_ids=case.input_ids[: case.context_span[1] + 1])
                    for case in cases]
        for case, answer, seconds in batched(self.lm, contexts, read, max_new_tokens=room):
            yield asked[case.id][0], answer, seconds

    def _after(self, case: NiahCase, prompt: str) -> list[int]:
        """The tokens behind the first of a question, and one more, which nobody reads."""
        before, after = self.lm.user_turn() if self.lm.chat else ("", "")
        text = prompt.removeprefix(before).removesuffix(after)
        ids = self.lm.encode_framed(before, text, after, begin=not self.lm.chat).ids
        return [*ids[case.context_span[1] + 1 :], 0]

    def score(self, case: NiahCase, answer: Answer) -> Values:
        assert isinstance(answer, _Read)
        each = answer.calibrated
        if each.shape[-1] == 1:
            return np.asarray(each[..., 0])
        least = each.mean(-1, keepdims=True) - 2 * each.std(-1, ddof=1, keepdims=True)
        return np.asarray(np.where(each > least, each, 0).sum(-1))
