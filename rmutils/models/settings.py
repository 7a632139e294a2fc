"""Settings and weights that no model has, and settings that transformers does not apply."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from rmutils.core.errors import Refused

LARGEST = {
    "num_hidden_layers": 1024, "num_attention_heads": 4096, "num_key_value_heads": 4096,
    "head_dim": 2**16, "hidden_size": 2**20, "intermediate_size": 2**24, "vocab_size": 2**24,
    "max_position_embeddings": 2**40}
"""Settings by name, and the largest values that are read. Beyond them a file is damaged: no model
comes near, and transformers would build it for hours before it misses the weights."""
EFFECTS: dict[str, tuple[Any, ...]] = {
    "sliding_window": (0,), "use_sliding_window": (False,), "attention_chunk_size": (),
    "attn_logit_softcapping": (0,), "final_logit_softcapping": (0,), "logit_soft_cap": (0,),
    "attention_multiplier": (), "query_pre_attn_scalar": (), "embedding_multiplier": (1,),
    "residual_multiplier": (1,), "logits_scaling": (1,), "logit_scale": (1,), "scale_emb": (1,),
    "scale_depth": (), "dim_model_base": (), "clip_qkv": (), "alibi": (False,),
    "use_alibi": (False,), "qk_norm": (False,), "use_qk_norm": (False,), "qk_layernorm": (False,),
    "no_rope_layers": ([],), "no_rope_layer_interval": (0,), "attn_temperature_tuning": (False, 0),
    "rotary_pct": (1,), "rotary_percentage": (1,), "rope_interleave": (False,),
    "rope_interleaved": (False,), "parallel_attn": (False,), "use_parallel_residual": (False,),
    "is_causal": (True,), "use_bidirectional_attention": (False,), "layer_types": ()}
"""Settings that change what some family computes, and the values at which they change nothing."""
SYNONYMS = (
    ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
    ("num_attention_heads", "num_heads", "n_heads", "n_head"),
    ("hidden_size", "d_model", "n_embd", "dim"),
    ("hidden_act", "hidden_activation", "activation_function"),
    ("rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon",
     "rms_norm_epsilon"))
"""Names that families give to the same setting."""
ELSEWHERE = ("rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary_factor",
             "original_max_position_embeddings", "torch_dtype", "architectures", "model_type",
             "auto_map", "quantization_config")
"""Settings that are read, but not kept where they stood."""
LIKE = 0.9


def check_sizes(settings: Mapping[str, Any]) -> None:
    """Refuse a size that no model has."""
    for name, most in LARGEST.items():
        if isinstance(size := settings.get(name), int) and not 0 < size <= most:
            raise Refused(f"{name} is {str(size)[:40]}, which no model has")


def check_finite(model: PreTrainedModel) -> None:
    """Refuse weights that are no numbers."""
    for name, weights in model.named_parameters():
        if weights.numel() and not all(end.isfinite() for end in weights.detach().aminmax()):
            raise Refused(f"its {name} holds NaN or infinity")


def check_settings(settings: Mapping[str, Any], config: PreTrainedConfig) -> None:
    """Refuse settings that would change what a model computes, if its family read them."""
    own = {each.name for each in dataclasses.fields(config)} | {*config.attribute_map}
    for key, value in settings.items():
        if key in own or key in ELSEWHERE or value is None or key.startswith("_"):
            continue
        twin = _twin(key, own)
        ignored = (value != getattr(config, twin, None) if twin
                   else key in EFFECTS and value not in EFFECTS[key])
        if key == "layer_types":
            ignored = {*value} != {"full_attention"}
        if ignored:
            raise Refused(
                f"its config.json says {key} = {str(value)[:60]}, which a {config.model_type} does "
                f"not read{f' (it has {twin} = {getattr(config, twin, None)})' if twin else ''}. "
                "Remove it if it means nothing")
    _check_pattern(settings, config)


def _twin(key: str, own: set[str]) -> str:
    """Return the setting of the same meaning, or of nearly the same name, that a family reads."""
    for names in SYNONYMS:
        if key in names:
            return next((name for name in names if name in own), "")
    return "" if key in EFFECTS else "".join(difflib.get_close_matches(key, own, 1, LIKE))


def _check_pattern(settings: Mapping[str, Any], config: PreTrainedConfig) -> None:
    """Compare the layers that have a window with those that the old layout counts off."""
    every, kinds = settings.get("sliding_window_pattern"), getattr(config, "layer_types", None)
    if not isinstance(every, int) or every < 1 or settings.get("layer_types"):
        return
    wanted = ["sliding_attention" if (i + 1) % every else "full_attention"
              for i in range(config.num_hidden_layers)]
    if every > 1 and wanted != kinds:
        raise Refused(f"its config.json says sliding_window_pattern = {every}, which a "
                         f"{config.model_type} does not read. Write out its layer_types")
