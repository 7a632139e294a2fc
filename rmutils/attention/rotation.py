"""Rotary positions (RoPE), turned on after the model has turned queries and keys by its own.

A rotation by the angle of one position, then one by a difference of angles, is a rotation by the
sum: so positions can be changed in the attention, and no model file has to be. Attention depends on
differences of positions only, hence indices of the keys may stand for positions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rmutils.errors import UserError


def inverse_frequencies(model: PreTrainedModel, layer: int) -> Tensor:
    """Angle per position of each pair of dimensions in a layer, (head size / 2,).

    Raises
    ------
    UserError
        The model has no rotary positions, or turns a part of each head only.
    """
    rope = getattr(model.base_model, "rotary_emb", None)
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"] * (layer + 1)
    found = getattr(rope, f"{kinds[layer]}_inv_freq", getattr(rope, "inv_freq", None))
    size = getattr(model.config, "head_dim", None) or (
        model.config.hidden_size // model.config.num_attention_heads)
    if found is None or 2 * len(found) != size:
        raise UserError(f"{model.config.model_type}: layer {layer} has no rotary positions (RoPE) "
                        f"over whole heads, so there is none to be rescaled.")
    return found


def position_embeddings(
    model: PreTrainedModel, layer: int, hidden: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Cosines and sines that a layer of the model turns by, as the model itself computes them.

    Parameters
    ----------
    hidden : Tensor
        (batch, tokens, hidden size): for its kind of numbers.
    positions : Tensor
        (batch, tokens).
    """
    rope, kinds = model.base_model.rotary_emb, getattr(model.config, "layer_types", None)
    by_kind = kinds and hasattr(rope, f"{kinds[layer]}_inv_freq")
    return rope(hidden, positions, kinds[layer]) if by_kind else rope(hidden, positions)


def turn(states: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Turn queries or keys by so many positions more.

    Parameters
    ----------
    states : Tensor
        (batch, heads, tokens, head size), already turned by the model or not at all.
    positions : Tensor
        (heads, tokens) or (tokens,): not necessarily whole numbers.
    frequencies : Tensor
        (head size / 2,), as from `inverse_frequencies`.

    Returns
    -------
    Tensor
        Like `states`.
    """
    angles = positions[..., None].float() * frequencies.float().to(positions.device)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    first, second = states.float().chunk(2, dim=-1)
    return (states.float() * cos + torch.cat([-second, first], dim=-1) * sin).to(states.dtype)
