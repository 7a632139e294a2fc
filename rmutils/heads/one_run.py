"""One run of the grid, several scores: what each head looks at and writes while it answers.

A head h writes W_O^h (sum_j a_tj v_j) in row t, and with it adds u (n W_O^h a_tj v_j) from each key
j to the logit of the token y_t. u is that token's row of the output matrix, times what the family
multiplies logits by; n is what stands between the heads and the residual stream, nothing in most
families (`rmutils.heads.residual`). The model's last norm and a cap on its logits are not applied,
as in LOCOS. The sum over all keys is what attention computes anyway; that over the needle is taken
beside it, in the same pass.

`attention` and `locos` compare keys of the needle with all others, as published with LOCOS (arXiv
2607.01002); `dla` is direct logit attribution; `anchor` looks at the prompt's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rmutils.attention.decoding import ALIKE, Answer, ArgMaxRecorder, decode
from rmutils.core.errors import UserError
from rmutils.corpora.niah import NiahCase, places_of
from rmutils.heads.answering import Answered, Watch, batched
from rmutils.heads.residual import read_back
from rmutils.heads.score_kinds import SCORES, ScoreKind
from rmutils.heads.scores import Values
from rmutils.models import LanguageModel
from rmutils.models.families import needs_eager
from rmutils.models.head_blocks import before_each, projections
from rmutils.models.known_models import check

TOGETHER = "copy", "attention", "dla", "locos", "anchor"
"""Kinds of score that one run of the grid gives."""
ANCHOR = 8  # last tokens of a prompt that are watched: the observation window of HeadKV and SnapKV


class SpanRecorder(ArgMaxRecorder):
    """Also collects attention to a span of keys, and what heads read from it and from all keys."""

    def __init__(self, spans: Sequence[tuple[int, int]], device: torch.device, before: int = 0):
        super().__init__()
        self.before = before
        place = torch.arange(max(end - start for start, end in spans), device=device)
        starts, ends = torch.tensor(spans, device=device).T[..., None]
        self.columns = (starts + place).minimum(ends - 1)
        self.real = starts + place < ends
        self._pass: dict[int, tuple[Tensor, ...]] = {}
        self._kept: list[list[tuple[Tensor, ...]]] = [[] for _ in spans]
        self.last: Tensor | None = None
        """(texts, layers, heads, before + 1): attention to the span from the prompt's last tokens.
        """

    def see(self, layer: int, products: Tensor, weights: Tensor, value: Tensor,
            output: Tensor) -> None:
        super().see(layer, products, weights, value, output)
        within = weights.take_along_dim(self.columns[:, None, None, None], -1)
        within = within * self.real[:, None, None, None]
        values = value.take_along_dim(self.columns[:, None, :, None], 2).float()
        read = (within.flatten(2, 3) @ values).unflatten(2, within.shape[2:4])
        self._pass[layer] = (within.flatten(1, 2), read.flatten(1, 2),
                             output.transpose(1, 2).float())

    @contextmanager
    def reaching(self, model: PreTrainedModel) -> Iterator[None]:
        """Also see what comes to the output projections: gates may have scaled it (Qwen3-Next)."""
        def look(layer: int, module: Any, given: tuple[Tensor]) -> None:
            if layer not in self._pass:  # nobody watches this pass
                return
            within, read, output = self._pass[layer]
            newest = given[0][:, -self.rows :]
            came = newest.view(*newest.shape[:2], output.shape[1], -1).transpose(1, 2).float()
            gates = torch.where(output == 0, 1, came / output)
            self._pass[layer] = within, read * gates, came

        with before_each(projections(model), look):
            yield

    def keep(self, decided: Sequence[slice]) -> None:
        layers = [self._pass[layer] for layer in sorted(self._pass)]
        parts = [torch.stack(part, 1) for part in zip(*layers, strict=True)]
        if self.last is None:
            self.last = parts[0][:, :, :, : self.before + 1].sum(-1)
        for row, (kept, columns) in enumerate(zip(self._kept, decided, strict=True)):
            kept.append(tuple(part[row, :, :, columns] for part in parts))
        self._pass.clear()

    def of(self, text: int) -> list[Tensor]:
        """Return a text's attention to the span, (layers, heads, T, span), and what each head reads
        from the span and from all keys, (layers, heads, T, head size) each."""
        return [torch.cat(part, 2) for part in zip(*self._kept[text], strict=True)]


@dataclass(frozen=True)
class WatchedAnswer(Answer):
    """An answer with what each head did in the rows that decided the needle's answer."""

    steps: list[int]  # the S steps that write the needle's answer (`answer_steps`)
    attention: Values  # (S, layers, heads): attention to the needle, 0 to 1
    # (S, layers, heads): what the head adds to the logit of the token that is written, from keys of
    # the needle
    from_needle: Values
    from_all: Values  # and from all keys
    anchor: Values  # (tokens, layers, heads): attention to the needle from the prompt's end
    outputs: Tensor  # (S, layers, heads, head size): handed to the output projection


def answer_steps(case: NiahCase, tokens: Sequence[int], text_of: Any) -> list[int]:
    """Find the steps that write the needle's answer: its tokens, else its text, else all."""
    start, end = case.needle_span
    wanted, said = list(case.input_ids[start:end]), list(tokens)
    for i in range(len(said) - len(wanted) + 1):
        if said[i : i + len(wanted)] == wanted:
            return list(range(i, i + len(wanted)))
    places = places_of(case.needle.real_needle, text_of(said))
    if not places:
        return list(range(len(said)))
    first, last = places[0]
    ends = [len(text_of(said[: i + 1])) for i in range(len(said))]
    return [i for i, (a, b) in enumerate(zip([0, *ends], ends, strict=False))
            if b > first and a < last]


def check_plain(lm: LanguageModel, score: str) -> None:
    """Check that a model computes what `retrieval_capture` watches, and has an output matrix."""
    check(lm)
    own = lm.model.config._attn_implementation
    if own not in ALIKE or needs_eager(lm.model) and own != "eager":
        raise UserError(f"the attention of {lm.name} is not the plain one, so the score {score!r} "
                        f"cannot be computed. Choose the score 'copy'.")
    if len({part.in_features for part in projections(lm.model).values()}) > 1:  # as of Gemma 4
        raise UserError(f"the heads of {lm.name} differ in size from layer to layer, so the score "
                        f"{score!r} cannot be computed. Choose the score 'copy'.")
    model: Any = lm.model
    if model.get_output_embeddings() is None:
        raise UserError(f"{lm.name} has no output matrix, so the score {score!r} cannot be "
                        f"computed. Choose the score 'copy'.")


def in_all_layers(lm: LanguageModel, part: Tensor, axis: int) -> Values:
    """Return what was seen in the layers that have heads, with zeros in all others (of hybrids)."""
    seen = part.double().cpu().numpy()
    found = np.zeros((*seen.shape[:axis], lm.shape[0], *seen.shape[axis + 1 :]))
    found[(slice(None),) * axis + (lm.layers,)] = seen
    return found


class OneRunScore(ScoreKind):
    """Base of the scores that come from one run of the grid, together."""

    together: ClassVar[tuple[str, ...]] = TOGETHER

    def __init__(self, lm: LanguageModel, config: Any):
        super().__init__(lm, config)
        check_plain(lm, config.score)

    def answers(self, cases: list[NiahCase], watch: Watch | None) -> Answered:
        self.refuse_variant(watch)
        return batched(self.lm, cases, self._watched, max_new_tokens=self.config.max_new_tokens)

    @torch.inference_mode()
    def _watched(self, cases: Sequence[NiahCase], cache: DynamicCache) -> list[WatchedAnswer]:
        model: Any = self.lm.model
        prompts = [case.input_ids for case in cases]
        longest = max(map(len, prompts))
        spans = [(longest - len(ids) + case.needle_span[0], longest - len(ids)
                  + case.needle_span[1]) for ids, case in zip(prompts, cases, strict=True)]
        recorder = SpanRecorder(spans, model.device, min(ANCHOR, *map(len, prompts)) - 1)
        with recorder.reaching(model):
            answers = decode(model, recorder, prompts, [cache], stop_ids=self.stop_ids(),
                             max_new_tokens=self.config.max_new_tokens)
        steps = [answer_steps(case, answer.tokens.tolist(), self.lm.tokenizer.decode)
                 for case, answer in zip(cases, answers, strict=True)]
        seen = [[part[:, :, when] for part in recorder.of(row)] for row, when in enumerate(steps)]
        attention, inner, outer = (torch.cat(part, 2) for part in zip(*seen, strict=True))
        added = self._added([int(answer.tokens[step]) for answer, when in zip(
            answers, steps, strict=True) for step in when], inner, whole=outer)
        assert recorder.last is not None
        measured = [in_all_layers(self.lm, part, 1) for part in (
            attention.sum(-1).permute(2, 0, 1), *added)]
        anchors = in_all_layers(self.lm, recorder.last.permute(0, 3, 1, 2), 2)
        ends = np.cumsum([0, *map(len, steps)])
        own = [[part[start:end] for part in measured]
               for start, end in zip(ends, ends[1:], strict=False)]
        return [WatchedAnswer(
            answer.tokens, answer.positions, steps[row], attention=own[row][0],
            from_needle=own[row][1], from_all=own[row][2], anchor=anchors[row],
            outputs=seen[row][2].permute(2, 0, 1, 3)) for row, answer in enumerate(answers)]

    def _added(self, tokens: list[int], *others: Tensor, whole: Tensor) -> list[Tensor]:
        """Return what parts of heads' outputs and the whole add to the logits of S tokens."""
        model: Any = self.lm.model
        rows = model.get_output_embeddings().weight[
            torch.tensor(tokens, dtype=torch.long, device=model.device)].float()
        parts = []
        for i, layer in enumerate(projections(model)):
            read = read_back(model, layer, rows, whole[i])
            parts.append([(read * part[i].transpose(0, 1)).sum(-1) for part in (*others, whole)])
        return [torch.stack(part, 1) for part in zip(*parts, strict=True)]


class _Contribution(OneRunScore):
    """Base of scores that are a mean over the steps that write the needle's answer."""

    def score(self, case: NiahCase, answer: Answer) -> Values:
        assert isinstance(answer, WatchedAnswer)
        if not answer.steps:
            return np.zeros(self.lm.shape)
        needle = self.needle_tokens(case)
        keys = len(case.input_ids) + np.array(answer.steps)
        weight = (needle / (keys - needle))[:, None, None]
        return np.asarray(self.by_step(answer, weight).mean(0))

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        """Return the score in each step, (steps, layers, heads); `weight` is that of other keys."""
        raise NotImplementedError


@SCORES.register("attention")
class AttentionContrast(_Contribution):
    """Attention to the needle, less that to as many other tokens."""

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        return np.asarray(answer.attention - weight * (1 - answer.attention))


@SCORES.register("dla")
class LogitAttribution(_Contribution):
    """The head's contribution to the logit of the token that is written."""

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        return answer.from_all


@SCORES.register("locos")
class Locos(_Contribution):
    """The head's contribution to the logit from the needle, minus that from as much other text."""

    def by_step(self, answer: WatchedAnswer, weight: NDArray[np.float64]) -> Values:
        on = answer.from_needle
        return np.asarray(on - weight * (answer.from_all - on))


@SCORES.register("anchor")
class AnchorScore(OneRunScore):
    """The largest attention to the needle from the prompt's last 8 tokens (arXiv 2410.19258)."""

    only_found = False

    def score(self, case: NiahCase, answer: Answer) -> Values:
        assert isinstance(answer, WatchedAnswer)
        return np.asarray(answer.anchor.max(0))
