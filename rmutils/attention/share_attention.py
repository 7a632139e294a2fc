"""Share-Attention: heads of a layer that look alike are given the weights of one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from transformers import PreTrainedModel

from rmutils.attention import sharing_plans
from rmutils.attention.decoding import ArgMaxRecorder, newest_products, recording_by_layer
from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant
from rmutils.core.errors import UserError
from rmutils.core.validation import Count
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached

NAME = "share_attention"


class _Calibrated(AttentionVariant):
    """Share-Attention whose plan comes from the attention maps of some prompts."""

    prompts: Count = 4
    """Questions to documents whose attention maps say which heads share. Section 4.1 takes those of
    a benchmark; how many, it does not say. Ours are about other worlds than what is asked later."""
    tokens: Count = 512
    """Most tokens of each; memory grows with their square."""

    def plan(self, lm: LanguageModel) -> sharing_plans.Sharing:
        """Find which heads of a model share."""
        raise NotImplementedError

    def distances(self, lm: LanguageModel) -> sharing_plans.Distances:
        """Mean distances of all heads, (layers, heads, heads)."""
        prompts = sharing_plans.calibration_prompts(lm, self.prompts, self.tokens)
        return sharing_plans.mean_distances(lm.model, prompts)

    def prepared(self, lm: LanguageModel) -> GivenSharing:
        return GivenSharing(sharing=self.plan(lm))

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        with self.prepared(lm).attached(lm) as model:
            yield model


@VARIANTS.register("share")
class Share(_Calibrated):
    """Share-Attention: heads of a layer that look alike are given the weights of one of them."""

    kind: Literal["share"] = "share"
    label = "Share-Attention"
    threshold: float | tuple[float, ...] = 0.18
    """Largest distance (Equation 9) of heads that share, of all layers or layer by layer. Taniguchi
    et al., section 3.1: "th = 0.18" in the example of layer 13."""
    at_random: int | None = None
    """A seed: as many heads share as are alike, but random ones. For comparison; ours."""

    def plan(self, lm: LanguageModel) -> sharing_plans.Sharing:
        sharing = sharing_plans.sharing_at(self.distances(lm), self.threshold)
        return sharing if self.at_random is None else sharing_plans.shuffled(sharing,
                                                                             self.at_random)

    def by_layer(self, layers: int) -> dict[int, AttentionVariant]:
        """The threshold in one layer, and 0 in all others."""
        return {i: self.model_copy(update={"threshold": tuple(
            self.threshold if i == j else 0.0 for j in range(layers))}) for i in range(layers)}


@VARIANTS.register("retain")
class Retain(_Calibrated):
    """Share-Attention with as many heads sharing as are wanted, at whatever threshold."""

    kind: Literal["retain"] = "retain"
    label = "Share-Attention, by retention rate"
    kept: Annotated[float, Field(gt=0, le=1)] = 0.691
    """Most heads that still compute weights, as a share of all (retention rate). Taniguchi et al.,
    Table 1, have 81.6 and 69.1 percent."""

    def plan(self, lm: LanguageModel) -> sharing_plans.Sharing:
        apart = self.distances(lm)
        return sharing_plans.sharing_at(apart, sharing_plans.threshold_for(apart, self.kept))


def read_sharing(value: object) -> object:
    """Read a plan if a path is given in its place."""
    return sharing_plans.load_sharing(Path(value)) if isinstance(value, str) else value


@VARIANTS.register("given-sharing")
class GivenSharing(AttentionVariant):
    """Share-Attention by a given plan."""

    kind: Literal["given-sharing"] = "given-sharing"
    label = "Share-Attention, by a given plan"
    sharing: Annotated[sharing_plans.Sharing, BeforeValidator(read_sharing)] = {}
    """The plan, or the path of a file of `rmutils.attention.sharing_plans.sharing_json`; empty: no
    head shares."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        with sharing_heads(lm.model, self.sharing):
            yield AttachedModel(lm, sharing_plans.retention(self.sharing))


@VARIANTS.register("unshared")
class Unshared(AttentionVariant):
    """Share-Attention's kernel in which no head shares: tells what sharing alone saves."""

    kind: Literal["unshared"] = "unshared"
    label = "Share-Attention's code without sharing"

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        layers, heads = lm.shape
        own = Shared(torch.arange(heads), torch.arange(heads), Workspace())
        with attached(lm.model, NAME, dict.fromkeys(range(layers), own)):
            yield AttachedModel(lm)


@dataclass
class Workspace:
    """Memory for one layer's weights, reused: fresh memory costs more time than the products."""

    room: Tensor = field(default_factory=lambda: torch.empty(0))

    def products(self, query: Tensor, key: Tensor) -> Tensor:
        """Return query times key, (batch, heads, queries, keys), until the next call."""
        shape = (*query.shape[:3], key.shape[2])
        size = math.prod(shape)
        if self.room.numel() < size or (self.room.dtype, self.room.device) != (
                query.dtype, query.device):
            self.room = query.new_empty(size)
        return torch.matmul(query, key.transpose(2, 3), out=self.room[:size].view(shape))


@dataclass(frozen=True)
class Shared:
    """Inputs of the attention of one layer."""

    essential: Tensor  # (essential heads,): their numbers
    source: Tensor  # (heads,): place in `essential` of the head whose weights each head takes
    workspace: Workspace  # the same one for all layers of a model


def share_attention(module: Any, query: Tensor, key: Tensor, value: Tensor,
                    attention_mask: Tensor | None, *, scaling: float, given: Shared,
                    recorder: ArgMaxRecorder | None = None, **kwargs: Any) -> tuple[Tensor, None]:
    """Attention whose weights are computed for essential heads only; the others take theirs."""
    group = query.shape[1] // key.shape[1]
    essential, keys = query[:, given.essential], key[:, given.essential // group]
    if recorder is not None:
        newest = newest_products(essential, keys, attention_mask, scaling, recorder.rows)
        recorder.record(module.layer_idx, newest.argmax(-1)[:, given.source, 0])
    products = given.workspace.products(essential, keys).mul_(scaling)
    if attention_mask is None and query.shape[2] > 1:
        attention_mask = torch.ones(products.shape[2:], dtype=torch.bool,
                                    device=query.device).tril()
    if attention_mask is not None:
        products.masked_fill_(~attention_mask, torch.finfo(products.dtype).min)
    weights = (torch.softmax(products, -1, out=products) if products.dtype == torch.float32 else
               products.softmax(-1, dtype=torch.float32).to(value.dtype))
    output = torch.empty_like(query)
    for head, place in enumerate(given.source.tolist()):
        torch.matmul(weights[:, place], value[:, head // group], out=output[:, head])
    return output.transpose(1, 2), None


def shared_layers(model: PreTrainedModel, sharing: sharing_plans.Sharing) -> dict[int, Shared]:
    """Return what the attention of each layer is given in which heads share."""
    layers, count = model.config.num_hidden_layers, model.config.num_attention_heads
    shared, workspace = {}, Workspace()
    for i, layer in sharing.items():
        source = {head: place for place, (essential, others) in enumerate(layer.items())
                  for head in (essential, *others)}
        if not 0 <= i < layers or sorted(source) != list(range(count)):
            raise UserError(f"layer {i} of the sharing is not one of this model, which has "
                            f"{layers} layers of {count} heads. Find another for this model.")
        if len(layer) < count:
            shared[i] = Shared(torch.tensor(list(layer)),
                               torch.tensor([source[head] for head in range(count)]), workspace)
    return shared


@contextmanager
def sharing_heads(model: PreTrainedModel, sharing: sharing_plans.Sharing) -> Iterator[None]:
    """Switch a model to Share-Attention; on exit its own comes back, also after an error."""
    with attached(model, NAME, shared_layers(model, sharing)):
        yield


recording_by_layer(NAME, share_attention)
