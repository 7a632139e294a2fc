"""Small GGUF files, written as llama.cpp's converter writes them: names and layouts by hand."""

import json
from pathlib import Path

import numpy as np
from gguf import GGUFValueType, GGUFWriter

LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
GEMMA = {"post_attention_layernorm": "post_attention_norm",
         "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
         "model.norm.weight": "output_norm.weight"}
TYPES = {bool: GGUFValueType.BOOL, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32,
         str: GGUFValueType.STRING, list: GGUFValueType.ARRAY}
ARCHITECTURES = {"gemma3_text": "gemma3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}


def metadata_of(lm) -> dict:
    """What llama.cpp's converter says of a model, without its extensions of positions."""
    config = lm.model.config
    arch = ARCHITECTURES.get(config.model_type, config.model_type)
    rope = config.rope_parameters
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    said = {
        "block_count": config.num_hidden_layers, "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size, "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": size, "attention.value_length": size,
        "rope.freq_base": float(rope.get("full_attention", rope)["rope_theta"])}
    if arch == "llama":
        said |= {"rope.dimension_count": size, "vocab_size": config.vocab_size}
    if getattr(config, "sliding_window", None) and arch in ("gemma2", "gemma3", "phi3"):
        said["attention.sliding_window"] = config.sliding_window
    if arch == "gemma2":
        said |= {"attn_logit_softcapping": config.attn_logit_softcapping,
                 "final_logit_softcapping": config.final_logit_softcapping}
    if arch.endswith("moe"):
        said |= {"expert_count": config.num_experts,
                 "expert_used_count": config.num_experts_per_tok,
                 "expert_feed_forward_length": config.moe_intermediate_size}
    if arch == "qwen2moe":
        said["expert_shared_feed_forward_length"] = config.shared_expert_intermediate_size
    tokens = lm.tokenizer.convert_ids_to_tokens(range(len(lm.tokenizer)))
    inner = json.loads(lm.tokenizer.backend_tokenizer.to_str())["model"]
    return {f"{arch}.{end}": value for end, value in said.items()} | {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in inner["merges"]],
        "tokenizer.ggml.token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "tokenizer.ggml.bos_token_id": lm.tokenizer.convert_tokens_to_ids("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": lm.tokenizer.eos_token_id}


def tensors_of(lm) -> dict[str, np.ndarray]:
    """A model's weights, by the names and in the layouts of such a file."""
    config, found = lm.model.config, {}
    gemma = config.model_type.startswith("gemma")
    for name, weights in lm.model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weights.float().numpy()
        if gemma and name.endswith("norm.weight"):
            values = values + 1
        if name in WHOLE:
            found[WHOLE[name]] = values
            continue
        layer, part = name.removeprefix("model.layers.").split(".", 1)
        if part == "mlp.experts.gate_up_proj":
            half = values.shape[1] // 2
            found[f"blk.{layer}.ffn_gate_exps.weight"] = values[:, :half]
            found[f"blk.{layer}.ffn_up_exps.weight"] = values[:, half:]
        elif part == "mlp.experts.down_proj":
            found[f"blk.{layer}.ffn_down_exps.weight"] = values
        else:
            part, end = part.rsplit(".", 1)
            if config.model_type == "llama" and part.endswith(("q_proj", "k_proj")):
                heads = (config.num_attention_heads if part.endswith("q_proj")
                         else config.num_key_value_heads)
                halves = values.reshape(heads, 2, -1, *values.shape[1:])
                values = halves.swapaxes(1, 2).reshape(values.shape)
            if part == "mlp.shared_expert_gate":
                values = values[0]
            title = (GEMMA if gemma and part in GEMMA else LAYER)[part]
            found[f"blk.{layer}.{title}.{end}"] = values
    return found


def write_gguf(lm, path: Path, said: dict | None = None, tensors: dict | None = None) -> Path:
    """Write a model; `said` and `tensors` replace what the file says and holds, None leaves out.

    Keys without a dot at the beginning of their architecture's name are completed.
    """
    arch = ARCHITECTURES.get(lm.model.config.model_type, lm.model.config.model_type)
    file = GGUFWriter(path, arch)
    for key, value in (metadata_of(lm) | (said or {})).items():
        if value is not None:
            file.add_key_value(key, value, TYPES[type(value)])
    for name, values in (tensors_of(lm) | (tensors or {})).items():
        if values is not None:
            file.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
