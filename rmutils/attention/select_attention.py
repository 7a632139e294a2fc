"""Select-Attention: at each step one layer chooses the tokens that all later layers see."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from rmutils.attention import decoding
from rmutils.attention.rope import layers_of, position_embeddings
from rmutils.attention.share_attention import Shared, read_sharing, share_attention, shared_layers
from rmutils.attention.sharing_plans import Sharing
from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant, Done, PromptView
from rmutils.core.config import added
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached

NAME = "select_attention"
Options = dict[str, Any]
Hooked = tuple[tuple[Tensor, ...], Options]  # arguments of a layer, as a hook changes them


@VARIANTS.register("select")
class Select(AttentionVariant):
    """Select-Attention: one layer chooses the tokens that all later layers see."""

    kind: Literal["select"] = "select"
    label = "Select-Attention"

    filter_layer: Annotated[int, Field(ge=0)] = 15
    """Section 4.2: layer 15 "is the most suitable" for Llama 3 with 32 layers."""
    p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Tokens are taken, the highest scores first, until they have this share of all. 0.91 to 0.99
    in section 5."""
    at_prefill: bool | Annotated[float, Field(gt=0, lt=1)] = False
    """Whether the prompt's tokens are chosen, too, when it is read (Table 3 has both): by p, or by
    a share of their own. Section 5 expects most of a large one here and a small p after it."""
    sharing: Annotated[Sharing, BeforeValidator(read_sharing)] = added({})
    """Heads that share their weights besides (Figure 8), as in
    `rmutils.attention.share_attention.GivenSharing`. Those of the filter layer do not: all of them
    score tokens."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        yield SelectingModel(lm, variant=self)

    def by_layer(self, layers: int) -> dict[int, AttentionVariant]:
        return {i: self.model_copy(update={"filter_layer": i}) for i in range(layers - 1)}


@dataclass
class Selection:
    """State kept between steps."""

    config: Select
    # (1, tokens, hidden size): behind the filter layer; empty before the first pass
    hidden: Tensor = field(default_factory=lambda: torch.empty(0))
    # (tokens,): the newest token's attention in the filter layer, mean over heads
    scores: Tensor = field(default_factory=lambda: torch.empty(0))
    # for each pass, the indices of the tokens that later layers saw
    chosen: list[Tensor] = field(default_factory=list)
    # for each pass, if that is recorded, where each head looked most, (layers, heads)
    looked: list[Tensor] = field(default_factory=list)


def top_p(scores: Tensor, p: float) -> Tensor:
    """Fewest tokens whose scores add up to a share p of all, in their order, and the newest."""
    highest, order = scores.sort(descending=True, stable=True)
    before = highest.cumsum(0) - highest
    kept = order[before < p * scores.sum()] if p < 1 else order
    newest = torch.tensor([len(scores) - 1], device=scores.device)
    found: Tensor = torch.unique(torch.cat([kept, newest]))
    return found


def select_attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
                     attention_mask: Tensor | None, *, scaling: float, given: Selection | Shared,
                     **kwargs: Any) -> tuple[Tensor, None]:
    """SDPA of the filter layer, which keeps the scores of the newest token (batch 1)."""
    if isinstance(given, Shared):
        return share_attention(module, query, key, value, attention_mask, scaling=scaling,
                               given=given, **kwargs)
    products = decoding.newest_products(query, key, attention_mask, scaling)
    given.scores = products[0, :, :, 0].softmax(-1).mean((0, 1))
    return decoding.retrieval_capture(module, query, key, value, attention_mask, scaling=scaling,
                                      **kwargs)


@contextmanager
def selecting(model: PreTrainedModel, config: Select) -> Iterator[Selection]:
    """Switch a model to Select-Attention, for one text; on exit its own attention comes back."""
    layers = layers_of(model)
    first = config.filter_layer + 1
    if first >= len(layers):
        raise UserError(f"no layer follows filter layer {config.filter_layer}: the model has 0 to "
                        f"{len(layers) - 1}. Set filter_layer.")
    selection = Selection(config)

    def choose(layer: nn.Module, args: tuple[Tensor], kwargs: Options) -> Hooked:
        (new,) = args
        kept = selection.hidden
        selection.hidden = torch.cat([kept, new], dim=1) if kept.numel() else new
        total = selection.hidden.shape[1]
        share = config.at_prefill if new.shape[1] > 1 else True
        selection.chosen.append(
            torch.arange(total, device=new.device) if share is False else
            top_p(selection.scores, config.p if share is True else share))
        return later(layer, (selection.hidden[:, selection.chosen[-1]],), kwargs)

    def later(layer: Any, args: tuple[Tensor], kwargs: Options) -> Hooked:
        places, number = selection.chosen[-1], layer.self_attn.layer_idx
        seen = places[:, None] >= places
        if window := getattr(layer.self_attn, "sliding_window", None):
            seen &= places[:, None] - places < window
        if (recorder := kwargs.get("recorder")) is not None:
            kwargs = kwargs | {"recorder": recorder.among(places)}
        return args, kwargs | {
            "attention_mask": seen[None, None], "past_key_values": None,
            "position_embeddings": position_embeddings(model, number, args[0], places[None])}

    hooks = [layer.register_forward_pre_hook(later if i else choose, with_kwargs=True)
             for i, layer in enumerate(layers[first:])]
    try:
        with attached(model, NAME, {**shared_layers(model, config.sharing),
                                    config.filter_layer: selection}):
            yield selection
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def answer_selecting(
    lm: LanguageModel, prompt: Sequence[int], config: Select, *, max_new_tokens: int,
    stop_ids: Collection[int] | None = None, recorder: decoding.ArgMaxRecorder | None = None,
) -> tuple[list[int], Selection]:
    """Answer a prompt greedily; also return what was chosen."""
    cache, ids = DynamicCache(), list(prompt)
    said: list[int] = []
    stop_ids = lm.stop_ids if stop_ids is None else stop_ids
    with selecting(lm.model, config) as selection:
        while len(said) < max_new_tokens:
            logits = lm.model(torch.tensor([ids], device=lm.model.device), past_key_values=cache,
                              logits_to_keep=1, recorder=recorder).logits
            if recorder is not None:
                selection.looked.append(recorder.take()[0, ..., 0])
            ids = [int(logits.argmax())]
            if ids[0] in stop_ids:
                break
            said += ids
    return said, selection


@dataclass(frozen=True)
class SelectedView(PromptView):
    """A prompt that is read whole, with what later layers see of it."""

    _: KW_ONLY
    selection: Selection

    def kept(self) -> float:
        """Mean share of tokens that later layers saw after the prompt; NaN without such a step."""
        shares = [len(places) / (len(self.ids) + i)
                  for i, places in enumerate(self.selection.chosen)]
        return float(np.mean(shares[1:])) if len(shares) > 1 else float("nan")

    def hidden_bytes(self) -> int:
        """Bytes of the hidden states in place of later keys and values; the paper counts none."""
        return self.selection.hidden.nbytes


@dataclass(frozen=True)
class SelectingModel(AttachedModel):
    """Reads a prompt whole, and what follows token by token."""

    _: KW_ONLY
    variant: Select
    batched = False

    @contextmanager
    def viewing(self, prompt: Sequence[int]) -> Iterator[SelectedView]:
        with selecting(self.lm.model, self.variant) as selection:
            yield SelectedView(prompt, selection=selection)

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, done: Done,
               stop_ids: Collection[int] | None = None) -> None:
        for i, prompt in enumerate(prompts):
            tokens, selection = answer_selecting(
                self.lm, prompt, self.variant, max_new_tokens=max_new_tokens, stop_ids=stop_ids)
            done(i, tokens, SelectedView(prompt, selection=selection).kept())

    @torch.inference_mode()
    def next_logits(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        cache, rows = DynamicCache(), []
        parts = [text[:known], *([token] for token in text[known:-1])]
        with self.viewing(text[:known]) as view:
            for part in parts:
                rows.append(self.lm.model(torch.tensor([part], device=self.lm.model.device),
                                          past_key_values=cache, logits_to_keep=1).logits[0])
        return torch.cat(rows).float().cpu(), view.kept()

    def watch(self, prompt: Sequence[int], *, max_new_tokens: int,
              stop_ids: Collection[int]) -> decoding.Answer:
        """Positions are those in the text: the recorder looks them up among the selected tokens."""
        said, selection = answer_selecting(
            self.lm, prompt, self.variant, max_new_tokens=max_new_tokens, stop_ids=stop_ids,
            recorder=decoding.ArgMaxRecorder())
        looked = torch.stack(selection.looked)[: len(said)]
        return decoding.Answer(np.array(said, dtype=int), looked.cpu().numpy())


decoding.recording_by_layer(NAME, select_attention)
