"""Rotary positions (RoPE): changed after the model has applied its own, or reaching further."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

import torch
from pydantic import Field
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.validation import Count
from rmutils.models.engine.implementations import attached, register_by_layer
from rmutils.models.head_blocks import check_attention_alone

NAME = "watch_turns"
FULL = "full_attention"
FAR = 100  # position at which a token is looked at, besides 0
TOLERANCE = 0.05
"""Largest relative difference to what is expected: more than the rounding of bfloat16, less than
that of a layer which turns otherwise."""
_CHECKED: WeakKeyDictionary[PreTrainedModel, set[int]] = WeakKeyDictionary()


def inverse_frequencies(model: PreTrainedModel, layer: int) -> Tensor:
    """Angle per position of each pair of dimensions in a layer, (head size / 2,)."""
    rope = getattr(model.base_model, "rotary_emb", None)
    found: Tensor | None = getattr(rope, f"{_kind(model, layer)}_inv_freq",
                                   getattr(rope, "inv_freq", None))
    size = getattr(model.config, "head_dim", None) or (
        model.config.hidden_size // model.config.num_attention_heads)
    if found is None or 2 * len(found) != size:
        raise UserError(f"{model.config.model_type}: layer {layer} has no rotary positions (RoPE) "
                        f"over whole heads, so there are none to rescale.")
    return found


def _kind(model: PreTrainedModel, layer: int) -> str:
    """Name what a layer sees, where layers differ; in other models all see everything."""
    kinds = getattr(model.config, "layer_types", None)
    return str(kinds[layer]) if kinds else FULL


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """Return the decoder's layers; UserError where the model is built in another way."""
    layers: nn.ModuleList | None = getattr(model.base_model, "layers", None)
    if layers is None:
        raise UserError(f"{model.config.model_type}: its layers are not where those of Llama, "
                        f"Qwen3 and Olmo 3 are, so its attention cannot be changed here.")
    check_attention_alone(model)
    return layers


def check_turns(model: PreTrainedModel, layers: Iterable[int]) -> None:
    """Make sure that these layers turn queries as `turn` does."""
    known = _CHECKED.setdefault(model, set())
    frequencies = {i: inverse_frequencies(model, i) for i in layers if i not in known}
    if not frequencies:
        return
    ids = torch.arange(8, device=model.device)[:, None]  # one of them may be the padding
    found = [turned_states(model, frequencies, ids, torch.full_like(ids, place))
             for place in (0, FAR)]
    for i in frequencies:
        (near, _), (far, _) = (states[i] for states in found)
        moved = turn(near, torch.tensor([FAR], device=near.device), frequencies[i])
        if (moved - far).float().norm() > TOLERANCE * far.float().norm():
            raise UserError(f"{model.config.model_type}: layer {i} does not turn its queries by "
                            f"rotary positions (RoPE) as Llama does, so they cannot be rescaled.")
        known.add(i)


def turned_states(model: PreTrainedModel, layers: Iterable[int], ids: Tensor,
                  positions: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """Queries and keys, turned by the model, when it reads `ids` (texts, tokens) at `positions`."""
    seen: dict[int, list[tuple[Tensor, Tensor]]] = {i: [] for i in layers}
    with torch.inference_mode(), attached(model, NAME, seen):
        model(ids, position_ids=positions, use_cache=False)
    return {i: states for i, (states,) in seen.items()}


def _watch(module: nn.Module, query: Tensor, key: Tensor, *args: Any,
           given: list[tuple[Tensor, Tensor]], **kwargs: Any) -> tuple[Tensor, None]:
    given.append((query, key))
    return sdpa_attention_forward(module, query, key, *args, **kwargs)


register_by_layer(NAME, _watch)


def position_embeddings(model: PreTrainedModel, layer: int, hidden: Tensor,
                        positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines, as the model computes them, that a layer turns `positions` by."""
    rope: Any = model.base_model.rotary_emb
    kind = _kind(model, layer)
    by_kind = hasattr(rope, f"{kind}_inv_freq")
    turns: tuple[Tensor, Tensor] = rope(hidden, positions, *([kind] if by_kind else []))
    return turns


def turn(states: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Turn `states` (batch, heads, tokens, head size) by so many `positions` more."""
    angles = positions[..., None].float() * frequencies.float().to(positions.device)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (angles.cos(), angles.sin()))
    first, second = states.float().chunk(2, dim=-1)
    return (states.float() * cos + torch.cat([-second, first], dim=-1) * sin).to(states.dtype)


class RopeExtension(Config):
    """How far positions are to reach, and by which method."""

    method: Literal["yarn", "interpolation", "ntk", "base"] = "yarn"
    """`interpolation`: positions divided by the factor. `ntk`: the base raised so that the slowest
    pair is. `yarn`: fast pairs stay, slow ones are interpolated. `base`: another base, `theta`.
    Olmo 3 takes YaRN."""
    factor: Annotated[float, Field(ge=1)] = 8
    """Window wanted over window trained. Olmo 3: 65,536 over 8,192."""
    trained: Count | None = None
    """Window trained, in tokens; None: what the model's configuration says, 8,192 in Olmo 3. A
    teaching model's says more than it was trained with."""
    theta: Annotated[float, Field(gt=0)] | None = None
    """The new base, for the method `base`; None: the old one times the factor."""
    beta_fast: float = 32
    """Pairs that turn at least so often within the trained window stay as they are (YaRN). 32 in
    Olmo 3."""
    beta_slow: float = 1
    """Pairs that turn at most so often are interpolated (YaRN). 1 in Olmo 3."""
    layers: Literal["full", "all"] = "full"
    """Where a model has layers with a window, whether these keep their positions, as in Olmo 3."""


def extended_frequencies(frequencies: Tensor, base: float, trained: int,
                         how: RopeExtension) -> tuple[Tensor, float]:
    """Inverse frequencies after an extension, (pairs,), and the factor on queries and keys. Chen et
    al. (2023), "Positional Interpolation"; Peng et al. (2023), "YaRN", equations 17 to 23, whose
    appendix has the NTK-aware base."""
    pairs = len(frequencies)
    places = torch.arange(pairs, device=frequencies.device)
    if how.method == "interpolation":
        return frequencies / how.factor, 1.0
    if how.method in ("ntk", "base"):
        return new_base(base, 2 * pairs, how) ** -(places / pairs), 1.0
    # The pair that turns r times within the window: base^(-i / pairs) * trained = 2 pi r.
    first, last = (pairs * math.log(trained / (2 * math.pi * turns)) / math.log(base)
                   for turns in (how.beta_fast, how.beta_slow))
    first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * pairs - 1)
    slow = ((places - first) / max(last - first, 1e-3)).clamp(0, 1)
    return frequencies * (1 - slow) + frequencies / how.factor * slow, \
        0.1 * math.log(how.factor) + 1


def ramp_in_turns(frequencies: Tensor, trained: int, how: RopeExtension) -> Tensor:
    """Inverse frequencies after YaRN as Peng et al. print it (equations 17 to 23)."""
    turns = trained * frequencies / (2 * math.pi)
    slow = 1 - ((turns - how.beta_slow) / (how.beta_fast - how.beta_slow)).clamp(0, 1)
    return frequencies * (1 - slow) + frequencies / how.factor * slow


def new_base(base: float, size: int, how: RopeExtension) -> float:
    """The base of the methods `ntk` (for heads of this size) and `base`."""
    if how.method == "base":
        return how.theta or base * how.factor
    return float(base * how.factor ** (size / (size - 2)))


def wavelengths(frequencies: Tensor) -> Tensor:
    """Positions after which each pair has turned once."""
    return 2 * math.pi / frequencies


def extend(model: PreTrainedModel, how: RopeExtension = RopeExtension()) -> PreTrainedModel:
    """Make a model's positions reach further, in place; its configuration tells transformers."""
    config = model.config
    trained = how.trained or config.max_position_embeddings
    before = [inverse_frequencies(model, i).clone() for i in range(config.num_hidden_layers)]
    by_kind = FULL in config.rope_parameters
    # Beside those of each kind of layer, a saved configuration can have keys that count for none.
    own = {kind: given for kind, given in config.rope_parameters.items()
           if isinstance(given, dict)} if by_kind else {FULL: config.rope_parameters}
    changed = {kind for kind in own if kind == FULL or how.layers == "all"}
    for kind in changed:
        if own[kind]["rope_type"] != "default":
            raise UserError(f"the positions of this {config.model_type} are extended already "
                            f"({own[kind]['rope_type']}). Begin with the model as it was trained.")
    new = own | {kind: _parameters(own[kind]["rope_theta"], 2 * len(before[0]), trained, how)
                 for kind in changed}
    config.rope_parameters = new if by_kind else new[FULL]
    config.max_position_embeddings = round(trained * how.factor)
    model.base_model.rotary_emb = type(model.base_model.rotary_emb)(config).to(model.device)
    for i, frequencies in enumerate(before):
        kind = config.layer_types[i] if by_kind else FULL
        wanted = frequencies if kind not in changed else extended_frequencies(
            frequencies, own[kind]["rope_theta"], trained, how)[0]
        if not torch.allclose(inverse_frequencies(model, i), wanted, rtol=1e-4):
            raise UserError(f"transformers turns layer {i} ({kind}) of this {config.model_type} "
                            f"in another way than {how.method} on {how.layers} layers asks "
                            "for. Install the version that this project pins.")
    return model


def _parameters(theta: float, size: int, trained: int, how: RopeExtension) -> dict[str, Any]:
    """Describe an extension in transformers' own terms."""
    if how.method == "yarn":
        return {"rope_type": "yarn", "rope_theta": theta, "factor": how.factor,
                "beta_fast": how.beta_fast, "beta_slow": how.beta_slow,
                "original_max_position_embeddings": trained}
    if how.method == "interpolation":
        return {"rope_type": "linear", "rope_theta": theta, "factor": how.factor}
    return {"rope_type": "default", "rope_theta": new_base(theta, size, how)}
