"""Small random models of further architectures: norms after attention, factors, sinks, hybrids."""

import torch
import transformers
from transformers import AutoModelForCausalLM

from rmutils.models import LanguageModel
from rmutils.models.families import needs_eager

WINDOWS = {"sliding_window": 24, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
LINEAR = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
OWN = {
    "Llama": {}, "Qwen2": {}, "Qwen3": {}, "Olmo2": {}, "Olmo3": WINDOWS, "Gemma": {},
    "Gemma2": WINDOWS, "Gemma3Text": {**WINDOWS, "query_pre_attn_scalar": 12},
    "Granite": {"residual_multiplier": 0.22, "logits_scaling": 8.0, "attention_multiplier": 0.35,
                "embedding_multiplier": 12.0},
    "Cohere": {}, "Exaone4": WINDOWS, "DiffLlama": {}, "BitNet": {},
    "GptOss": {**WINDOWS, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3Next": {**LINEAR, "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "Jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2,
              "num_experts_per_tok": 1, "mamba_d_state": 4, "mamba_dt_rank": 4,
              "use_mamba_kernels": False},
    "Lfm2": {"layer_types": ["conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False},
    "FalconH1": {**MAMBA, "mamba_d_ssm": 64, "mamba_chunk_size": 16,
                 "attention_out_multiplier": 0.9375, "ssm_out_multiplier": 0.2,
                 "lm_head_multiplier": 0.04},
    "GraniteMoeHybrid": {**MAMBA, "layer_types": ["mamba", "attention"] * 2, "mamba_expand": 2,
                         "residual_multiplier": 0.22, "logits_scaling": 6.0, "num_local_experts": 0,
                         "shared_intermediate_size": 32},
}
"""What the configuration of each has besides what all have."""
HYBRIDS = "Qwen3Next", "Jamba", "Lfm2", "FalconH1", "GraniteMoeHybrid"


def make(name, tokenizer, seed=0) -> LanguageModel:
    """4 layers x 4 heads (2 key heads), float32."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**{
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 1024, "initializer_range": 0.5, "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": False, **OWN[name]})
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
    if needs_eager(model):
        model.set_attn_implementation("eager")
    with torch.no_grad():  # a norm whose weights are all alike hides mistakes
        for part, weight in model.named_parameters():
            if "norm" in part:
                weight += 0.3 * torch.randn_like(weight)
            elif "sinks" in part:
                weight += 10
    return LanguageModel(model, tokenizer, f"random-{name}", config.model_type,
                         f"random {name} {seed}")
