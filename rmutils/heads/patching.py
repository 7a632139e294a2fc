"""The patching score: how much of the answer one head brings back where the needle is missing.

The prompt is read without the needle, whose place other text of the haystack takes. In the rows
that decide the answer, one head's output (what it hands to `o_proj`) is then exchanged for that of
the run with the needle: causal retrieval importance, as published with LOCOS (arXiv 2607.01002).
There, the head's output is exchanged in the prompt's rows, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention.decoding import Answer
from rmutils.attention.rope import layers_of
from rmutils.core.errors import UserError
from rmutils.corpora.haystacks import Haystack, Needle
from rmutils.corpora.niah import NiahCase
from rmutils.heads.answering import Answered, Watch, tokens_together
from rmutils.heads.one_run import OneRunScore, WatchedAnswer
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import Head, Values
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, filled, stack_caches


def without_needle(case: NiahCase) -> list[int]:
    """Return a case's prompt with other text of its haystack in the place of the needle.

    It is from the far end of the longer side, as many tokens, so that everything else keeps its
    place.

    Raises
    ------
    UserError
        There is nothing but the needle.
    """
    ids = list(case.input_ids)
    (start, end), (first, last) = case.inserted_span, case.context_span
    before, after, size = ids[first:start], ids[end:last], end - start
    if not before and not after:
        raise UserError(f"length {case.length}: nothing stands beside the needle that could take "
                        f"its place. Choose a longer one.")
    filler = before[:size] if len(before) > len(after) else after[-size:]
    return [*ids[:start], *np.resize(filler, size).tolist(), *ids[end:]]


@dataclass(frozen=True)
class PatchedAnswer(Answer):
    """An answer with what each head brings back of it.

    Attributes
    ----------
    recovered : ndarray
        (steps, layers, heads), in nats: the log-probability of each token of the needle's answer
        with the head restored, less that without.
    """

    recovered: Values


@SCORES.register("patching")
class PatchingScore(OneRunScore):
    """log P(answer | no needle, one head restored) - log P(answer | no needle), in nats.

    The answer is the needle's part of what the model says when it finds it (`answer_steps`).
    """

    together = ()

    def cases(self, haystacks: Sequence[Haystack], needles: Sequence[Needle]) -> list[NiahCase]:
        cases = super().cases(haystacks, needles)
        for case in cases:
            without_needle(case)  # tells before anything runs
        return cases

    def answers(self, cases: list[NiahCase], watch: Watch | None) -> Answered:
        for case, answer, seconds in super().answers(cases, watch):
            assert isinstance(answer, WatchedAnswer)
            yield case, PatchedAnswer(answer.tokens, answer.positions, recovered(
                self.lm, case, answer)), seconds

    def score(self, case: NiahCase, answer: Answer) -> Values:
        assert isinstance(answer, PatchedAnswer)
        return np.asarray(answer.recovered.sum(0))


@torch.inference_mode()
def recovered(lm: LanguageModel, case: NiahCase, answer: WatchedAnswer) -> Values:
    """Restore each head by itself in the run without the needle; see `PatchedAnswer`."""
    model: Any = lm.model
    if not answer.steps:
        return np.zeros((0, *lm.shape))
    text = [*without_needle(case), *answer.tokens.tolist()]
    count = len(answer.steps)
    first = len(case.input_ids) - 1 + answer.steps[0]
    heads: list[Head | None] = [None, *np.ndindex(*lm.shape)]
    passes = -(-len(heads) // max(1, tokens_together(lm, len(text)) // len(text)))
    size = -(-len(heads) // passes)
    heads += [None] * (passes * size - len(heads))
    read: Any = Trunk(model, text[:first]).cache.layers
    cache = stack_caches([DynamicCache([
        (layer.keys.expand(size, -1, -1, -1), layer.values.expand(size, -1, -1, -1))
        for layer in read])], count)
    ids = torch.tensor([text[first : first + count]] * size, device=model.device)
    wanted = torch.tensor(text[first + 1 : first + 1 + count], device=model.device)
    found = []
    for start in range(0, len(heads), size):
        with ExitStack() as hooks:
            _restore(model, answer.outputs, heads[start : start + size], hooks)
            logits = model(
                input_ids=ids, past_key_values=filled(cache, first), use_cache=True,
                position_ids=torch.arange(first, first + count, device=model.device)[None],
            ).logits.float().log_softmax(-1)
        found.append(logits[:, torch.arange(count), wanted])
    odds = torch.cat(found)[: 1 + lm.shape[0] * lm.shape[1]].double().cpu().numpy()
    return np.asarray((odds[1:] - odds[0]).T.reshape(count, *lm.shape))


def _restore(model: Any, outputs: Tensor, heads: Sequence[Head | None], hooks: ExitStack) -> None:
    """Exchange one head's output in each row of the batch, or none."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for row, head in enumerate(heads):
        if head is not None:
            rows.setdefault(head[0], []).append((row, head[1]))

    def hook_of(layer: int) -> Any:
        def hook(module: Any, given: tuple[Tensor]) -> tuple[Tensor]:
            each = given[0].view(*given[0].shape[:2], *outputs.shape[2:]).clone()
            for row, head in rows[layer]:
                each[row, :, head] = outputs[:, layer, head].to(each.dtype)
            return (each.flatten(2),)

        return hook

    layers: Any = layers_of(model)
    for layer in rows:
        projection = layers[layer].self_attn.o_proj
        hooks.callback(projection.register_forward_pre_hook(hook_of(layer)).remove)
