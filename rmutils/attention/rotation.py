"""Rotary positions (RoPE), turned on after the model has turned queries and keys by its own.

A rotation by the angle of one position, then one by a difference of angles, is a rotation by the
sum: so positions can be changed in the attention, and no model file has to be. Attention depends on
differences of positions only, hence indices of the keys may stand for positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rmutils.errors import UserError
from rmutils.models.attention import attached, register_by_layer

NAME = "watch_turns"
FAR = 100
"""Position at which a token is looked at, besides 0."""
TOLERANCE = 0.05
"""Of the difference to what is expected, as a share: more than bfloat16 takes, less than a layer
does that turns otherwise."""
_CHECKED: WeakKeyDictionary[PreTrainedModel, set[int]] = WeakKeyDictionary()


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


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """The decoder's layers. UserError where the model is built in another way."""
    if (layers := getattr(model.base_model, "layers", None)) is None:
        raise UserError(f"{model.config.model_type}: its layers are not where those of Llama, "
                        f"Qwen3 and Olmo 3 are, so its attention cannot be changed here.")
    return layers


def check_turns(model: PreTrainedModel, layers: Iterable[int]) -> None:
    """Make sure that these layers turn their queries as `turn` does.

    A text of one token gives the same hidden states wherever it stands, so its queries at two
    positions differ by the rotation alone.

    Raises
    ------
    UserError
        A layer has no rotary positions, or pairs other dimensions.
    """
    known = _CHECKED.setdefault(model, set())
    frequencies = {i: inverse_frequencies(model, i) for i in layers if i not in known}
    if not frequencies:
        return
    seen: dict[int, list[Tensor]] = {i: [] for i in frequencies}
    with torch.inference_mode(), attached(model, NAME, seen):
        ids = torch.arange(8, device=model.device)[:, None]  # one of them may be the padding
        for place in (0, FAR):
            model(ids, position_ids=torch.full_like(ids, place), use_cache=False)
    for i, (near, far) in seen.items():
        moved = turn(near, torch.tensor([FAR], device=near.device), frequencies[i])
        if (moved - far).float().norm() > TOLERANCE * far.float().norm():
            raise UserError(f"{model.config.model_type}: layer {i} does not turn its queries by "
                            f"rotary positions (RoPE) as Llama does, so they cannot be rescaled.")
        known.add(i)


def _watch(module, query, key, value, attention_mask, *, given: list[Tensor], **kwargs):
    given.append(query)
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


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


register_by_layer(NAME, _watch)
