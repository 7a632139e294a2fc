"""Rotary positions as a model's files ask for them, and whether the model in memory turns so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rmutils.core.errors import Refused, UserError

FULL = "full_attention"
USED = {
    "default": (), "linear": ("factor",), "dynamic": ("factor", "alpha"),
    "yarn": ("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
             "truncate"),
    "longrope": ("short_factor", "long_factor", "attention_factor", "factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"), "proportional": ("factor",)}
"""What each rule reads, besides what all do."""
REQUIRED = {
    "linear": ("factor",), "dynamic": ("factor",), "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor")}
"""What each rule cannot do without."""
ALL_USE = ("rope_type", "type", "rope_theta", "partial_rotary_factor",
           "original_max_position_embeddings", "finetuned")
OLD_NAMES = {"su": "longrope"}
TOLERANCE = 1e-4
"""Largest relative difference of an angle: more than rounding, less than any setting makes."""


def check_angles(model: PreTrainedModel, settings: Mapping[str, Any]) -> None:
    """Compare the angles of a model with those that its files ask for."""
    config, rope = model.config.get_text_config(), getattr(model.base_model, "rotary_emb", None)
    if rope is None:
        return
    for kind, wanted in asked(settings, config).items():
        found = getattr(rope, f"{kind}_inv_freq", getattr(rope, "inv_freq", None))
        if found is None:
            raise Refused(f"its rotary positions ({type(rope).__name__}) cannot be examined")
        scale = float(getattr(rope, f"{kind}_attention_scaling",
                              getattr(rope, "attention_scaling", 1.0)))
        if ((wanted.get("partial_rotary_factor") or 1) != 1
                and wanted["rope_type"] != "proportional" and not _turns_parts(rope, config, kind)):
            raise Refused(f"a {config.model_type} turns whole heads, and its files ask for a part "
                          f"of {wanted['partial_rotary_factor']}")
        angles, factor = angles_of(wanted, _size(settings, config, kind),
                                   config.max_position_embeddings)
        if (found.shape != angles.shape or not angles.isfinite().all()
                or not torch.allclose(found.double().cpu(), angles, rtol=TOLERANCE, atol=0)
                or not math.isclose(scale, factor, rel_tol=TOLERANCE)):
            raise Refused(
                f"its layers of the kind {kind} would turn by other angles than its files ask for "
                f"({_described(wanted)}): transformers does not apply these settings")


def _turns_parts(rope: nn.Module, config: PreTrainedConfig, kind: str) -> bool:
    """Return whether a family turns a part of each head, if asked to."""
    usual: Any = rope.compute_default_rope_parameters
    own = {"layer_type": kind} if hasattr(rope, f"{kind}_inv_freq") else {}
    return 2 * len(usual(config, **own)[0]) < _size({}, config)


def check_rules(settings: Mapping[str, Any]) -> None:
    """Refuse a rule that lacks a number, or has something else in its place."""
    for said in (settings.get("rope_parameters"), settings.get("rope_scaling")):
        for rope in [said, *said.values()] if isinstance(said, dict) else []:
            if not isinstance(rope, dict):
                continue
            kind = rope.get("rope_type", rope.get("type", "default"))
            if kind not in ("default", *OLD_NAMES, *ROPE_INIT_FUNCTIONS):
                raise Refused(f"there is no rule {kind!r:.60} of rotary positions")
            for key in REQUIRED.get(OLD_NAMES.get(kind, kind), ()):
                if rope.get(key) is None:
                    raise Refused(f"the rule {kind} of its rotary positions has no {key}")
            for key, value in rope.items():
                if key.endswith(("factor", "theta", "embeddings")) and not _is_number(value):
                    raise Refused(f"{key} of its rotary positions is {value!r:.60}")


def _is_number(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_number, value)) and bool(value)
    return value is None or type(value) in (int, float) and 0 < value < math.inf


def asked(settings: Mapping[str, Any], config: PreTrainedConfig) -> dict[str, dict[str, Any]]:
    """Return how each kind of layer is to turn: what the files say, completed by defaults."""
    known = getattr(config, "rope_parameters", None) or {}
    kinds = {kind: own for kind, own in known.items()
             if isinstance(own, dict) and kind in (getattr(config, "layer_types", None) or ())}
    new, old = settings.get("rope_parameters") or {}, settings.get("rope_scaling") or {}
    if new and old and new != old:
        raise Refused("its rope_parameters and its rope_scaling are not the same")
    said = new or old
    nested = {kind: own for kind, own in said.items() if isinstance(own, dict)}
    if strange := [kind for kind in nested if kind not in kinds]:
        raise Refused(f"it asks for rotary positions of {strange[0]}, and a {config.model_type} "
                         f"has no layers of that kind")
    found = {}
    for kind, own in (kinds or {FULL: known}).items():
        # The old layout, of one extension, is about the layers that see everything.
        here = nested.get(kind, {}) if nested else said if new or kind == FULL else {}
        found[kind] = _complete({**own, **_theta(settings, config, kind, here), **here},
                                here, settings, config)
    return found


def _theta(settings: Mapping[str, Any], config: PreTrainedConfig, kind: str,
           here: Mapping[str, Any]) -> dict[str, float]:
    """Return the base that the files name outside of the rule, if they do."""
    local = kind != FULL and isinstance(config.default_theta, dict)
    outside = settings.get("rope_local_base_freq" if local else "rope_theta")
    if outside is None:
        return {}
    if here.get("rope_theta", outside) != outside:
        raise Refused(f"it names two bases of its rotary positions, {here['rope_theta']} and "
                         f"{outside}")
    return {"rope_theta": outside}


def _complete(rope: dict[str, Any], here: Mapping[str, Any], settings: Mapping[str, Any],
              config: PreTrainedConfig) -> dict[str, Any]:
    """Return a rule with its name and the window that was trained; refuse what it does not read."""
    kind = here.get("rope_type", here.get("type", rope.get("rope_type", "default")))
    kind = OLD_NAMES.get(kind, kind)
    if kind not in USED:
        raise Refused(f"the rule {kind!r:.40} of its rotary positions is not known here")
    read = {*ALL_USE, *USED[kind], *(config.ignore_keys_at_rope_validation or ())}
    if unread := [key for key in here if key not in read]:
        raise Refused(f"the rule {kind} of its rotary positions does not read {unread[0]}")
    if "partial_rotary_factor" in settings and "partial_rotary_factor" not in here:
        rope["partial_rotary_factor"] = settings["partial_rotary_factor"]
    trained = {one["original_max_position_embeddings"] for one in (settings, here)
               if one.get("original_max_position_embeddings") is not None}
    if len(trained) > 1 or kind == "dynamic" and trained - {config.max_position_embeddings}:
        raise Refused("it names two windows that its positions were trained for")
    if trained:
        rope["original_max_position_embeddings"] = trained.pop()
    rope.setdefault("original_max_position_embeddings", config.max_position_embeddings)
    return rope | {"rope_type": kind}


def _size(settings: Mapping[str, Any], config: PreTrainedConfig, kind: str = FULL) -> int:
    """Return the dimensions of a head that positions can turn."""
    if settings.get("global_head_dim") or settings.get("per_layer_config"):
        return int(config.per_layer_config[kind].head_dim)
    for name in ("qk_rope_head_dim", "head_dim"):
        if size := settings.get(name) or getattr(config, name, None):
            return int(size)
    return int(config.hidden_size // config.num_attention_heads)


def angles_of(rope: Mapping[str, Any], size: int, window: int) -> tuple[Tensor, float]:
    """Angle per position of each pair of dimensions, in float64, and queries' and keys' factor. For
    a text within the window that was trained. Su et al. (2021), "RoFormer"; Chen et al. (2023),
    "Positional Interpolation"; Peng et al. (2023), "YaRN", with the rounded bounds of its code;
    Ding et al. (2024), "LongRoPE"; the Llama 3.1 model card."""
    kind, base = rope["rope_type"], float(rope["rope_theta"])
    part = rope.get("partial_rotary_factor") or 1.0
    if kind == "proportional":  # the other pairs turn by nothing
        return torch.tensor([base ** (-2 * i / size) if i < int(part * size // 2) else 0.0
                             for i in range(size // 2)]).double() / rope.get("factor", 1.0), 1.0
    size = int(size * part)
    if kind == "dynamic" and rope.get("alpha"):
        base *= rope["alpha"] ** (size / (size - 2))
    angles = torch.tensor([base ** (-i / size) if base > 0 else math.nan
                           for i in range(0, size, 2)], dtype=torch.float64)
    trained, factor = rope["original_max_position_embeddings"], rope.get("factor")
    if kind == "linear":
        return angles / factor, 1.0
    if kind == "llama3":
        turns = trained * angles / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return angles * (kept + (1 - kept) / factor), 1.0
    if kind == "longrope":
        divisors = torch.tensor(rope["short_factor"], dtype=torch.float64)
        if divisors.shape != angles.shape:
            raise Refused(f"its short_factor has {len(divisors)} numbers for {len(angles)} "
                             "angles")
        reach = factor or window / trained
        usual = math.sqrt(1 + math.log(reach) / math.log(trained)) if reach > 1 else 1.0
        return angles / divisors, _given(rope, "attention_factor", usual)
    if kind == "yarn":
        reach = factor or window / trained
        return _yarn(rope, angles, size, base, reach), _yarn_factor(rope, reach)
    return angles, 1.0


def _given(rope: Mapping[str, Any], key: str, default: float) -> float:
    return float(default if rope.get(key) is None else rope[key])


def _yarn(rope: Mapping[str, Any], angles: Tensor, size: int, base: float, reach: float) -> Tensor:
    trained = rope["original_max_position_embeddings"]
    first, last = (size * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(base))
                   for turns in (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1))
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    places = torch.arange(len(angles), dtype=torch.float64)
    slow = ((places - first) / max(last - first, 1e-3)).clamp(0, 1)
    return angles * (1 - slow) + angles / reach * slow


def _yarn_factor(rope: Mapping[str, Any], reach: float) -> float:
    def scale(by: float) -> float:
        return 0.1 * by * math.log(reach) + 1 if reach > 1 else 1.0

    both = rope.get("mscale"), rope.get("mscale_all_dim")
    usual = scale(both[0]) / scale(both[1]) if all(both) else scale(1)
    return _given(rope, "attention_factor", usual)


def _described(rope: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in rope.items()
                     if not isinstance(value, list))[:200]


def constant_within(config: PreTrainedConfig) -> int | None:
    """Return the longest text whose length does not decide the angles; None for any."""
    config = config.get_text_config()
    known = getattr(config, "rope_parameters", None) or {}
    rules = [own for own in known.values() if isinstance(own, dict)] or [known]
    bounds = []
    for rope in rules:
        kind = rope.get("rope_type")
        if kind == "dynamic":
            bounds.append(config.max_position_embeddings)
        if kind == "longrope" and rope["short_factor"] != rope["long_factor"]:
            bounds.append(rope["original_max_position_embeddings"])
    return min(bounds, default=None)


def keep_constant(model: PreTrainedModel) -> None:
    """Have a model refuse texts whose length would change the angles of what it has read."""
    rope, most = getattr(model.base_model, "rotary_emb", None), constant_within(model.config)
    if rope is not None and most is not None and not hasattr(rope, "constant_within"):
        rope.constant_within = most
        rope.register_forward_pre_hook(_refuse_longer, with_kwargs=True)


def _refuse_longer(rope: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
    if int(positions.max()) >= rope.constant_within:
        raise UserError(
            f"beyond {rope.constant_within} tokens this model turns all positions of a text by "
            "other angles (RoPE of the kind longrope or dynamic), which a text that is read in "
            "parts cannot follow. Choose shorter texts; or, with longrope, write its long_factor "
            "into short_factor in its config.json to read all texts by those.")
