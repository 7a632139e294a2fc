"""A GGUF file's metadata in the words of a config.json: applied, without effect, or refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import CONFIG_MAPPING

from rmutils.core.errors import Refused
from rmutils.models.gguf_file import GgufFile


@dataclass(frozen=True)
class Architecture:
    """How an architecture of GGUF becomes one of transformers."""

    model_type: str
    tokenizer: str  # a `model_type` that has the class of tokenizer
    paired_rows: bool = False  # rows of queries and keys that turn together are neighbours
    shifted_norms: bool = False  # norms are stored plus 1
    full_every: int = 0  # with a window, one layer in so many sees the whole text; 0: there is none
    # what llama.cpp computes without being told
    settings: Mapping[str, Any] = field(default_factory=dict)


ARCHITECTURES = {
    "llama": Architecture("llama", "phi3", paired_rows=True),
    "qwen2": Architecture("qwen2", "qwen2"),
    "qwen2moe": Architecture("qwen2_moe", "qwen2"),
    "qwen3": Architecture("qwen3", "qwen3"),
    "qwen3moe": Architecture("qwen3_moe", "qwen3", settings={"norm_topk_prob": True}),
    "gemma2": Architecture("gemma2", "gemma2", shifted_norms=True, full_every=2),
    "gemma3": Architecture("gemma3_text", "gemma3_text", shifted_norms=True, full_every=6),
    "phi3": Architecture("phi3", "phi3"),
}
"""Architectures that are read from GGUF, as such files call them."""
SETTINGS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "vocab_size": "vocab_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_weights_norm": "norm_topk_prob",
}
"""Ends of keys, and the settings of transformers of the same meaning."""
NEEDED = ("context_length", "block_count", "embedding_length", "feed_forward_length",
          "attention.head_count", "attention.layer_norm_rms_epsilon")
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,), "expert_used_count": (0,), "expert_group_count": (0, 1),
    "expert_weights_scale": (0, 1), "leading_dense_block_count": (0,),
    "attn_logit_softcapping": (0,), "final_logit_softcapping": (0,), "logit_scale": (0, 1),
    "residual_scale": (0, 1), "embedding_scale": (0, 1), "use_parallel_residual": (False,),
    "attention.causal": (True,), "attention.clamp_kqv": (0,), "attention.max_alibi_bias": (0,),
    "attention.sliding_window": (0,), "pooling_type": (0,), "nextn_predict_layers": (0,),
    "tensor_data_layout": ("Meta AI original pth",),
    "rope.scaling.finetuned": (True, False), "rope.scaling.yarn_log_multiplier": (0,)}
"""Ends of keys that change nothing at these values, in a model that has no such setting."""
IRRELEVANT = ("general.", "tokenizer.", "quantize.", "imatrix.", "split.", "mradermacher.")
"""Beginnings of keys of which no computation depends; those of the tokenizer are read with it."""
WORDS = ("rope.scaling.type", "tensor_data_layout")
"""Ends of keys with a word as value; all others have numbers."""
TOKENS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id",
          "pad_token_id": "padding_token_id"}
DIVISORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors with a number for each angle, by which it is divided."""
LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Layers of the models whose scores llama.cpp scales by another size than that of a head."""


class _Metadata:
    """The keys of an architecture that have not been looked at."""

    def __init__(self, file: GgufFile, architecture: str):
        self.left = {}
        for key, value in file.metadata.items():
            start, _, end = key.partition(".")
            if start == architecture:
                self.left[end] = _one(key, value)
            elif not key.startswith(IRRELEVANT):
                raise Refused(f"it says {key}, which is not known here")
        if missing := [f"{architecture}.{end}" for end in NEEDED if end not in self.left]:
            raise Refused(f"it does not say {missing[0]}")

    def take(self, end: str, default: Any = None) -> Any:
        return self.left.pop(end, default)


def _one(key: str, value: Any) -> Any:
    """Return a value that is the same in all layers."""
    if isinstance(value, list) and not key.endswith("sliding_window_pattern"):
        if len({*map(repr, value)}) != 1:
            raise Refused(f"{key} differs between layers, which cannot be applied")
        value = value[0]
    if (isinstance(value, float) and not math.isfinite(value)
            or isinstance(value, str) and not key.endswith(WORDS)):
        raise Refused(f"{key} is {value!r:.40}")
    return value


def settings_of(file: GgufFile) -> tuple[Architecture, dict[str, Any]]:
    """Return a file's architecture, and its settings."""
    name = file.metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        raise Refused(f"its architecture is {name!r:.60}, and GGUF files are read of "
                         f"{', '.join(ARCHITECTURES)}")
    architecture, said = ARCHITECTURES[name], _Metadata(file, name)
    own = {each.name for each in dataclasses.fields(CONFIG_MAPPING[architecture.model_type])}
    heads, width = said.left["attention.head_count"], said.left["embedding_length"]
    size = said.left.get("attention.key_length") or width // max(heads, 1)
    found = _defaults(file, architecture, said, size) | _rope(file, said, size)
    if architecture.full_every:
        found |= _windows(said, architecture.full_every, found["num_hidden_layers"])
        own_size = found["num_hidden_layers"] != LARGEST_GEMMA[name]
        found["query_pre_attn_scalar"] = size if own_size else width // heads
    _check_scale(said, found.get("query_pre_attn_scalar", size))
    if architecture.model_type == "phi3":
        found["sliding_window"] = said.take("attention.sliding_window") or None
        found["original_max_position_embeddings"] = found["rope_parameters"].get(
            "original_max_position_embeddings", found["max_position_embeddings"])
    if size * heads != width:
        own.add("head_dim")  # families that have no such setting read it all the same
    for end, value in said.left.items():
        setting = SETTINGS.get(end)
        if setting in own:
            found[setting] = value
        elif value not in NEUTRAL.get(end, ()) and (setting, value) != ("head_dim", size):
            raise Refused(f"it says {name}.{end} = {value!r:.60}, which cannot be applied to a "
                             f"{architecture.model_type}")
    if said.left.get("attention.value_length", size) != size:
        raise Refused(f"its values have another size than its keys, {size}")
    return architecture, {key: value for key, value in found.items()
                          if key in own or key == "model_type"}


def _defaults(file: GgufFile, architecture: Architecture, said: _Metadata,
              size: int) -> dict[str, Any]:
    """Return settings that a file need not name, as llama.cpp completes them."""
    heads = said.left["attention.head_count"]
    shared = said.left.get("attention.head_count_kv", heads)
    if not (isinstance(heads, int) and isinstance(shared, int)) or shared < 1 or heads % shared:
        raise Refused(f"{heads!r:.40} query heads cannot share {shared!r:.40} key heads")
    words = file.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(words, list) or not words:
        raise Refused("it has no vocabulary (tokenizer.ggml.tokens)")
    if said.left.get("vocab_size", len(words)) != len(words):
        raise Refused(f"its vocabulary has {len(words)} tokens, and it says "
                      f"{said.left['vocab_size']!r:.40}")
    if file.metadata.get("tokenizer.ggml.model") == "gpt2" and not file.metadata.get(
            "tokenizer.ggml.merges"):
        raise Refused("its vocabulary has no merges (tokenizer.ggml.merges)")
    for key in TOKENS.values():
        token = file.metadata.get(f"tokenizer.ggml.{key}", 0)
        if token not in range(len(words)):
            raise Refused(f"tokenizer.ggml.{key} is {token!r:.40}, and its vocabulary has "
                          f"{len(words)} tokens")
    return {
        **architecture.settings, "model_type": architecture.model_type, "head_dim": size,
        "num_hidden_layers": said.left["block_count"],
        "max_position_embeddings": said.left["context_length"],
        "num_key_value_heads": shared, "vocab_size": len(words),
        "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        **{ours: file.metadata.get(f"tokenizer.ggml.{key}") for ours, key in TOKENS.items()}}


def _windows(said: _Metadata, full_every: int, layers: int) -> dict[str, Any]:
    pattern = said.take("attention.sliding_window_pattern", full_every)
    if isinstance(pattern, int):
        pattern = [bool((i + 1) % pattern) if pattern else True for i in range(layers)]
    window = said.take("attention.sliding_window")
    if not window or len(pattern) != layers:
        raise Refused("its layers have a window, and it does not say which (attention."
                         "sliding_window, attention.sliding_window_pattern)")
    return {"sliding_window": window, "layer_types": [
        "sliding_attention" if windowed else "full_attention" for windowed in pattern]}


def _check_scale(said: _Metadata, size: int) -> None:
    scale = said.take("attention.scale") or size**-0.5
    if not math.isclose(scale, size**-0.5, rel_tol=1e-5):
        raise Refused(f"it says attention.scale = {scale}, and its heads of size {size} have "
                         f"{size**-0.5:.6f}")


def _rope(file: GgufFile, said: _Metadata, size: int) -> dict[str, Any]:
    """Return how positions turn, as llama.cpp computes it, in transformers' terms."""
    base = said.take("rope.freq_base", 10000.0)
    turned = said.take("rope.dimension_count", size)
    old = said.take("rope.scale_linear", 0)
    factor = said.take("rope.scaling.factor", old) or 1.0
    kind = said.take("rope.scaling.type", "linear")
    trained = said.take("rope.scaling.original_context_length", said.left["context_length"])
    scale = said.take("rope.scaling.attn_factor", 1.0) * said.take(
        "rope.scaling.yarn_attn_factor", 1.0)
    own_share = said.take("rope.scaling.yarn_ext_factor", -1)
    fast, slow = (said.take(f"rope.scaling.yarn_beta_{end}", default)
                  for end, default in (("fast", 32.0), ("slow", 1.0)))
    held = tuple(name for name in DIVISORS if name in file.tensors)
    divisors = [file.tensors[name].values().tolist() for name in held]
    if not isinstance(turned, int) or not 0 < turned <= size or turned % 2:
        raise Refused(f"it turns {turned!r:.40} dimensions of heads of size {size}")
    rope: dict[str, Any] = {"rope_theta": base, "rope_type": "default"}
    if turned != size:
        rope["partial_rotary_factor"] = turned / size
    yarn = kind == "yarn"
    if kind not in ("none", "linear", "yarn", "longrope") or own_share not in (-1, float(yarn)):
        raise Refused(f"it extends its positions in a way that is not known here ({kind})")
    if any(len(part) != turned // 2 for part in divisors):
        raise Refused(f"its factors of rotary positions are {len(divisors[0])}, and its heads "
                      f"turn {turned // 2} pairs")
    if divisors:
        if yarn or held not in (DIVISORS[:1], DIVISORS[1:]):
            raise Refused("its factors of rotary positions do not go with its other settings")
        factor = 1.0 if kind == "none" else factor
        short, long = ([factor * one for one in part] for part in (divisors[0], divisors[-1]))
        rope |= {"rope_type": "longrope", "short_factor": short, "long_factor": long,
                 "attention_factor": scale, "original_max_position_embeddings": trained}
    elif yarn:
        rope |= {"rope_type": "yarn", "factor": factor, "beta_fast": fast, "beta_slow": slow,
                 "original_max_position_embeddings": trained}
        if scale != 1:
            rope["attention_factor"] = scale * (1 + 0.1 * math.log(factor))
    elif kind == "longrope" or scale != 1:
        raise Refused("its factors of rotary positions are missing")
    elif kind == "linear" and factor != 1:
        rope |= {"rope_type": "linear", "factor": factor}
    if file.metadata["general.architecture"] != "gemma3":
        return {"rope_parameters": rope}
    local = {"rope_type": "default", "rope_theta": said.take("rope.freq_base_swa", 10000.0)}
    return {"rope_parameters": {"full_attention": rope, "sliding_attention": local}}
