"""Families of models: what the project knows of an architecture, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from transformers import PreTrainedModel

from rmutils.core.errors import UserError
from rmutils.core.registry import Registry
from rmutils.core.validation import checked
from rmutils.models.head_blocks import attentions, lacking

TAU = 0.1
"""For models of no known family. The paper is silent on them; it tunes tau "from {0.05, 0.10} for
each model" (appendix A)."""


@dataclass(frozen=True)
class Family:
    """A family of models: one architecture of transformers, and how the paper treats it."""

    title: str  # as the paper writes it
    tau: float = TAU  # threshold of a retrieval head
    tau_source: str = ""  # the sentence of the paper that sets it; empty where the paper is silent
    nearest: str = ""  # the family whose threshold is taken where the paper is silent
    config: str = ""  # transformers' configuration class; empty: no teaching model can be built
    norms: int = 2  # norms of a layer over the hidden size
    # norms of queries and keys: none, of each head by itself, or of all of a layer
    query_norm: Literal["", "head", "layer"] = ""
    # the template knows `enable_thinking`, and a teaching model learns to think
    thinking: bool = False
    # `TeachingRecipe`'s fields that are not the defaults; None: no teaching model
    teaching: Mapping[str, Any] | None = field(default=None, hash=False)
    replicates: tuple[int, ...] = ()  # further seeds with which the teaching model is trained

    def lacks(self, model: PreTrainedModel) -> str:
        """Say what a model lacks for its heads to be watched and masked; empty if nothing."""
        hybrid = len(attentions(model)) < model.config.num_hidden_layers
        if not hybrid and getattr(model.base_model, "rotary_emb", None) is None:
            return lacking(model) or "rotary positions"
        return lacking(model)

    def query_output(self, attention: nn.Module) -> nn.Module:
        """Return the module of an attention behind which a head's queries can be zeroed alone, as
        zeros before a norm over all heads would change the others; UserError without one."""
        projection = getattr(attention, "q_proj", None) or getattr(attention, "q_b_proj", None)
        if projection is None:  # q_b_proj is DeepSeek's
            raise UserError(f"the family {self.title} computes queries, keys and values in one "
                            f"projection, so that its queries cannot be zeroed alone.")
        config: Any = getattr(attention, "config", None)
        size = getattr(attention, "head_dim", 0)  # gates as in Qwen3-Next
        if size and config and projection.out_features == 2 * config.num_attention_heads * size:
            raise UserError(f"the family {self.title} computes queries and gates of heads in one "
                            f"projection, so that its queries cannot be zeroed alone.")
        norm = getattr(attention, "q_norm", None)
        together = norm is not None and norm.weight.numel() == projection.out_features
        return norm if together else projection


EXAMINED = (
    "Models can be examined whose layers have rotary positions and an attention with an output "
    "projection `o_proj`, as in Llama, Qwen3, Olmo 3, Gemma, Mistral, DeepSeek-V2 and "
    "GPT-OSS, and hybrids with some such layers, as Qwen3-Next, Jamba, LFM2 and Falcon-H1. GPT-2, "
    "GPT-NeoX and Mamba are built in another way.")
"""Which models this project works with, in messages and pages."""


def needs_eager(model: PreTrainedModel) -> bool:
    """Return True if attention is more than SDPA: scores that are capped (Gemma 2), or sinks."""
    capped = getattr(model.config, "attn_logit_softcapping", None) is not None
    return capped or not getattr(model, "_supports_sdpa", True)


FAMILIES: Registry[Family] = Registry("model family", "rmutils.families")
"""Families by transformers' `model_type`."""

_OTHERS = 'section 4.1: "tau = 0.05 for Qwen3 and Olmo-3"'
FAMILIES.add("llama", Family(
    "Llama", 0.1, 'section 4.1: "threshold tau = 0.1 for Llama-3.1"', config="LlamaConfig",
    teaching={"steps": 5000}, replicates=(1, 2)))  # without QK-norm it learns more slowly
FAMILIES.add("qwen3", Family(
    "Qwen3", 0.05, _OTHERS, config="Qwen3Config", query_norm="head", thinking=True, teaching={},
    replicates=(1,)))
FAMILIES.add("olmo3", Family(
    "Olmo-3", 0.05, _OTHERS, config="Olmo3Config", query_norm="layer",
    teaching={"steps": 4200, "sliding_window": 64}, replicates=(1,)))
FAMILIES.add("gemma3_text", Family(
    "Gemma 3", 0.05, nearest="Olmo-3", config="Gemma3TextConfig", norms=4, query_norm="head"))
FAMILIES.add("qwen2", Family("Qwen2"))


@checked
def register_family(model_type: str, title: str, **fields: Any) -> Family:
    """Add a family of models, for what the project should know of an architecture.

    Models that are built like Llama work without it, with the threshold 0.1.

    Parameters
    ----------
    model_type : str
        transformers' name of the architecture, as in a model's `config.json`.
    title : str
        The name for readers.
    **fields
        Further fields of `rmutils.models.families.Family`: `tau`, the threshold of a retrieval
        head; `thinking`, if the chat template knows `enable_thinking`; and others.

    Returns
    -------
    Family

    Raises
    ------
    UserError
        There is a family of that name already.

    Examples
    --------
    >>> from rmutils import register_family
    >>> register_family("mistral", "Mistral", tau=0.07).tau
    0.07
    """
    return FAMILIES.add(model_type, Family(title, **fields))


def family_of(model_type: str) -> Family:
    """Return a family by transformers' `model_type`, or one with the defaults."""
    return FAMILIES[model_type] if model_type in FAMILIES else Family(model_type)
