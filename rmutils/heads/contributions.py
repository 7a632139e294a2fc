"""Scores by what a head does while it writes the answer: where it looks, and what it adds.

A head h adds W_O^h (sum_j a_tj v_j) to the residual stream in row t, and with it u (W_O^h a_tj v_j)
from each key j to the logit of the token y_t, u being that token's row of the output matrix; no
norm is applied in between. `attention` and `locos` compare keys of the needle with all others, as
published with LOCOS (arXiv 2607.01002); `dla` is direct logit attribution.

The rows are those of one more pass over the finished answer, with keys and values as they are: it
takes about as long as a single step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention.decoding import ALIKE, Answer, ArgMaxRecorder, decode
from rmutils.attention.rope import layers_of
from rmutils.core.errors import UserError
from rmutils.corpora.niah import NiahCase
from rmutils.heads.answering import Answered, Watch, batched
from rmutils.heads.score_kinds import SCORES, ScoreKind
from rmutils.heads.scores import Values
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import filled
from rmutils.models.families import needs_eager
from rmutils.models.known_models import check


class _SpanRecorder(ArgMaxRecorder):
    """Also collects the attention to a span of keys, and the values that each head sums up.

    Parameters
    ----------
    inside : Tensor
        (batch, keys) bool.
    """

    def __init__(self, inside: Tensor):
        super().__init__()
        self.inside = inside
        self.seen: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def see(self, layer: int, products: Tensor, value: Tensor) -> None:
        super().see(layer, products, value)
        weights = products.softmax(-1)
        within = weights * self.inside[:, None, None, None, : weights.shape[-1]]
        sums = (part.flatten(2, 3) @ value.float() for part in (within, weights))
        whole, of_span = (len(weights), -1, weights.shape[3]), within.sum(-1)
        inner, outer = (part.view(*whole, value.shape[-1]) for part in sums)
        self.seen[layer] = of_span.flatten(1, 2), inner, outer


@dataclass(frozen=True)
class Written(Answer):
    """An answer with what each head did in the row that decided each token.

    Attributes
    ----------
    attention : ndarray
        (T, layers, heads): attention to the needle, 0 to 1.
    from_needle, from_all : ndarray
        (T, layers, heads): what the head adds to the logit of the token that is written, from keys
        of the needle, and from all.
    """

    attention: Values
    from_needle: Values
    from_all: Values


def answer_steps(case: NiahCase, tokens: Sequence[int], text_of: Any) -> list[int]:
    """Find the steps that write the needle's answer.

    They are the first run of its very tokens; else those of its text; else, as an answer may count
    as found in other words, all.

    Parameters
    ----------
    text_of : callable
        Token ids -> text.
    """
    start, end = case.needle_span
    wanted, said = list(case.input_ids[start:end]), list(tokens)
    for i in range(len(said) - len(wanted) + 1):
        if said[i : i + len(wanted)] == wanted:
            return list(range(i, i + len(wanted)))
    place = text_of(said).find(case.needle.real_needle)
    if place < 0:
        return list(range(len(said)))
    ends = [len(text_of(said[: i + 1])) for i in range(len(said))]
    return [i for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False))
            if b > place and a < place + len(case.needle.real_needle)]


class _Contribution(ScoreKind):
    """Base of the scores here: a mean over the steps that write the needle's answer."""

    def __init__(self, lm: LanguageModel, config: Any):
        super().__init__(lm, config)
        check(lm)
        if lm.model.config._attn_implementation not in ALIKE or needs_eager(lm.model):
            raise UserError(f"the attention of {lm.name} is not the plain one, so what its heads "
                            f"write cannot be told. Choose the definition 'paper' or 'wu'.")

    def answers(self, cases: list[NiahCase], watch: Watch | None) -> Answered:
        if watch is not None:
            raise UserError(f"the definition {self.config.definition!r} is that of a model's own "
                            f"attention: it cannot be measured under a variant.")
        return batched(self.lm, cases, look=self._written, stop_ids=self.stop_ids(),
                       max_new_tokens=self.config.max_new_tokens)

    @torch.inference_mode()
    def _written(self, cases: Sequence[NiahCase], cache: DynamicCache,
                 answers: list[Answer]) -> list[Answer]:
        """One pass along finished answers, whose prompts the cache begins with."""
        model: Any = self.lm.model
        layers: Any = layers_of(model)
        prompts = [case.input_ids for case in cases]
        longest, steps = max(map(len, prompts)), max(len(answer.tokens) for answer in answers)
        if not steps:
            return answers
        columns = torch.arange(longest + steps)
        starts, ends = (torch.tensor([longest - len(case.input_ids) + case.needle_span[i]
                                      for case in cases])[:, None] for i in (0, 1))
        recorder = _SpanRecorder(((columns >= starts) & (columns < ends)).to(model.device))
        decode(model, recorder, prompts, [filled(cache, longest - 1)],
               forced=[answer.tokens.tolist() for answer in answers])
        heads, found = self.lm.shape[1], list[Answer]()
        for row, answer in enumerate(answers):
            count, parts = len(answer.tokens), []
            unembedding = model.get_output_embeddings().weight[
                torch.as_tensor(answer.tokens, device=model.device)].float()
            for i, layer in enumerate(layers):
                attention, *sums = (part[row, :, :count] for part in recorder.seen[i])
                read = (unembedding @ layer.self_attn.o_proj.weight.float()).view(count, heads, -1)
                parts.append([attention.T, *((read * part.transpose(0, 1)).sum(-1)
                                             for part in sums)])
            found.append(Written(answer.tokens, answer.positions, *(
                torch.stack(part, 1).double().cpu().numpy()
                for part in zip(*parts, strict=True))))
        return found

    def score(self, case: NiahCase, answer: Answer) -> Values:
        steps = answer_steps(case, answer.tokens.tolist(), self.lm.tokenizer.decode)
        if not isinstance(answer, Written) or not steps:
            return np.zeros(self.lm.shape)
        needle = self.needle_tokens(case)
        keys = len(case.input_ids) + np.array(steps)
        weight = (needle / (keys - needle))[:, None, None]
        return np.asarray(self.by_step(answer, steps, weight).mean(0))

    def by_step(self, answer: Written, steps: list[int], weight: NDArray[np.float64]) -> Values:
        """Return the score in each step, (steps, layers, heads); `weight` is that of other keys."""
        raise NotImplementedError


@SCORES.register("attention")
class AttentionContrast(_Contribution):
    """Attention to the needle, less that to as many other tokens."""

    def by_step(self, answer: Written, steps: list[int], weight: NDArray[np.float64]) -> Values:
        on = answer.attention[steps]
        return np.asarray(on - weight * (1 - on))


@SCORES.register("dla")
class LogitAttribution(_Contribution):
    """The head's contribution to the logit of the token that is written."""

    def by_step(self, answer: Written, steps: list[int], weight: NDArray[np.float64]) -> Values:
        return answer.from_all[steps]


@SCORES.register("locos")
class Locos(_Contribution):
    """The head's contribution to the logit from the needle, less that from as many others."""

    def by_step(self, answer: Written, steps: list[int], weight: NDArray[np.float64]) -> Values:
        on = answer.from_needle[steps]
        return np.asarray(on - weight * (answer.from_all[steps] - on))
