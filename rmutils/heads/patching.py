"""The patching score of LOCOS (arXiv 2607.01002): the answer that one head brings back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention.decoding import Answer
from rmutils.attention.rope import layers_of
from rmutils.core.errors import UserError
from rmutils.corpora.niah import Haystack, Needle, NiahCase
from rmutils.heads.answering import Answered, Watch, tokens_together
from rmutils.heads.one_run import OneRunScore, WatchedAnswer
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import Values
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, filled, stack_caches
from rmutils.models.head_blocks import before_each, check_attention_alone, projections


def without_needle(case: NiahCase) -> list[int]:
    """Return a case's prompt with as many tokens of other text instead of the needle."""
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
    """An answer with what each head brings back of it."""

    # (steps, layers, heads), in nats: the log-probability of each token of the needle's answer with
    # the head restored, less that without
    recovered: Values


@SCORES.register("patching")
class PatchingScore(OneRunScore):
    """log P(answer | no needle, one head restored) - log P(answer | no needle), in nats."""

    together = ()

    def __init__(self, lm: LanguageModel, config: Any):
        super().__init__(lm, config)
        check_attention_alone(lm.model)

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


class GivenAnswer:
    """A prompt whose answer is given: the rows that decide it can be read with heads exchanged."""

    @torch.inference_mode()
    def __init__(self, lm: LanguageModel, prompt: Sequence[int], answer: WatchedAnswer):
        text = [*prompt, *answer.tokens.tolist()]
        self.lm, self.length, self.count = lm, len(text), len(answer.steps)
        self.first = len(prompt) - 1 + answer.steps[0]
        self.ids, self.wanted = torch.tensor(
            [text[i:][: self.count] for i in (self.first, self.first + 1)],
            device=lm.model.device)
        self._read: Any = Trunk(lm.model, text[: self.first]).cache.layers
        self._entering: list[Tensor] = []

    @torch.inference_mode()
    def outputs(self) -> Tensor:
        """Return what the heads hand to `o_proj`: (steps, layers, heads, head size)."""
        seen: list[Tensor] = []
        with before_each(projections(self.lm.model),
                         lambda layer, module, given: seen.append(given[0][0])):
            self._logits(self._cache(1), 1)
        return torch.stack(seen, 1).view(self.count, *self.lm.shape, -1)

    @torch.inference_mode()
    def exchanged(self, outputs: Tensor, chosen: NDArray[np.bool_]) -> tuple[Values, Values]:
        """Read with the `outputs` (steps, layers, heads, head size) of the heads that are `chosen`
        (choices, steps or 1, layers, heads). (choices, steps): log-probability of each token of the
        answer, in nats, and 1 where it is the model's first choice, else 0."""
        together = max(1, tokens_together(self.lm, self.length) // self.length)
        size = -(-len(chosen) // -(-len(chosen) // together))  # as few passes, evenly filled
        touched = np.any(chosen, axis=(1, 3))  # below the lowest layer nothing changes
        lowest = np.where(touched.any(1), touched.argmax(1), touched.shape[1] - 1)
        order = np.argsort(lowest, kind="stable")
        cache, found = self._cache(size), np.empty((2, len(chosen), self.count))
        for rows in np.split(order, range(size, len(order), size)):
            part = np.zeros((size, *chosen.shape[1:]), bool)
            part[: len(rows)] = chosen[rows]
            with ExitStack() as hooks:
                self._begin_at(int(lowest[rows[0]]), size, hooks)
                self._exchange(outputs, torch.tensor(part, device=outputs.device), hooks)
                logits = self._logits(cache, size)
            odds = logits.log_softmax(-1)[:, torch.arange(self.count), self.wanted]
            found[:, rows] = torch.stack([odds, logits.argmax(-1) == self.wanted])[
                :, : len(rows)].double().cpu().numpy()
        return found[0], found[1]

    def _begin_at(self, first: int, rows: int, hooks: ExitStack) -> None:
        """Give a layer what enters it without an exchange, and leave out those below it."""
        layers: Any = layers_of(self.lm.model)
        if not self._entering:
            with before_each(dict(enumerate(layers)),
                             lambda number, layer, given: self._entering.append(given[0])):
                self._logits(self._cache(1), 1)
        for layer in layers[:first]:
            hooks.enter_context(patch.object(layer, "forward", lambda hidden, **_: hidden))
        entering = self._entering[first].expand(rows, -1, -1)
        hooks.enter_context(before_each(
            {first: layers[first]}, lambda number, layer, given: (entering, *given[1:])))

    def _exchange(self, outputs: Tensor, chosen: Tensor, hooks: ExitStack) -> None:
        def exchange(layer: int, module: Any, given: tuple[Tensor]) -> tuple[Tensor]:
            each = given[0].view(*given[0].shape[:2], *outputs.shape[2:])
            other = outputs[:, layer].to(each.dtype)
            return (torch.where(chosen[:, :, layer, :, None], other, each).flatten(2),)

        hooks.enter_context(before_each(
            {layer: projection for layer, projection in projections(self.lm.model).items()
             if chosen[:, :, layer].any()}, exchange))

    def _cache(self, rows: int) -> DynamicCache:
        return stack_caches([DynamicCache([
            (layer.keys.expand(rows, -1, -1, -1), layer.values.expand(rows, -1, -1, -1))
            for layer in self._read])], self.count)

    def _logits(self, cache: DynamicCache, rows: int) -> Tensor:
        model: Any = self.lm.model
        places = torch.arange(self.first, self.first + self.count, device=model.device)
        logits: Tensor = model(
            input_ids=self.ids.expand(rows, -1), past_key_values=filled(cache, self.first),
            use_cache=True, position_ids=places[None]).logits
        return logits.float()


def single_heads(lm: LanguageModel) -> NDArray[np.bool_]:
    """Return no head, then each head by itself, as `GivenAnswer.exchanged` takes choices."""
    count = lm.shape[0] * lm.shape[1]
    return np.eye(1 + count, count, -1, bool).reshape(-1, 1, *lm.shape)


def recovered(lm: LanguageModel, case: NiahCase, answer: WatchedAnswer) -> Values:
    """Restore each head by itself in the run without the needle; see `PatchedAnswer`."""
    if not answer.steps:
        return np.zeros((0, *lm.shape))
    odds, _ = GivenAnswer(lm, without_needle(case), answer).exchanged(
        answer.outputs, single_heads(lm))
    return np.asarray((odds[1:] - odds[0]).T.reshape(-1, *lm.shape))
