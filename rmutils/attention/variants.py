"""Variants of a model's attention under one roof."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rmutils.attention.gemfilter import GemFilterConfig
from rmutils.attention.ms_poe import MsPoeConfig
from rmutils.attention.rope import RopeExtension
from rmutils.attention.select_attention import SelectConfig
from rmutils.core.config import Config


class Plain(Config):
    """The attention that the model was trained with."""

    kind: Literal["plain"] = "plain"


class MsPoe(MsPoeConfig):
    """Ms-PoE: each head reads positions on a scale of its own."""

    kind: Literal["ms-poe"] = "ms-poe"


class Share(Config):
    """Share-Attention: heads of a layer that look alike are given the weights of one of them."""

    kind: Literal["share"] = "share"
    threshold: float | tuple[float, ...] = 0.18
    """Largest distance (Equation 9) of heads that share, of all layers or layer by layer. Taniguchi
    et al., section 3.1: "th = 0.18" in the example of layer 13."""
    prompts: Annotated[int, Field(ge=1)] = 4
    """Questions to documents whose attention maps say which heads share. Section 4.1 takes those of
    a benchmark; how many, it does not say. Ours are about other worlds than what is asked later."""
    tokens: Annotated[int, Field(ge=1)] = 512
    """Most tokens of each; memory grows with their square."""
    at_random: int | None = None
    """A seed: as many heads share as are alike, but which ones is drawn. For comparison; ours."""


class Retain(Config):
    """Share-Attention with as many heads sharing as are wanted, at whatever threshold."""

    kind: Literal["retain"] = "retain"
    kept: Annotated[float, Field(gt=0, le=1)] = 0.691
    """Most heads that still compute weights, as a share of all (retention rate). Taniguchi et al.,
    Table 1, have 81.6 and 69.1 percent."""
    prompts: Annotated[int, Field(ge=1)] = 4
    """As of `Share`."""
    tokens: Annotated[int, Field(ge=1)] = 512
    """As of `Share`."""


class Select(SelectConfig):
    """Select-Attention: one layer chooses the tokens that all later layers see."""

    kind: Literal["select"] = "select"


class GemFilter(GemFilterConfig):
    """GemFilter: one layer chooses the tokens of the prompt that the model then reads."""

    kind: Literal["gemfilter"] = "gemfilter"


class Extended(RopeExtension):
    """Rotary positions that reach further, as Olmo 3's do."""

    kind: Literal["extended"] = "extended"
    fine_tune_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of `rmutils.longcontext.extension.fine_tune` behind it, of teaching models only; 0: no
    training."""


Variant = Annotated[Plain | MsPoe | Share | Retain | Select | GemFilter | Extended,
                    Field(discriminator="kind")]
"""Any of them; `kind` says which."""
