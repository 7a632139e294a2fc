"""The grid by a model of eight billion random weights, with 50 forced steps per case.

The shape is that of Llama-3.1-8B; what the weights are makes no difference to the time. Definition
`wu` is the published code: lengths from 0 to 5,000 tokens, no stop at the end of an answer. Nothing
is fetched: the tokens are those of a teaching model.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.records import Results
from rmutils import DetectConfig, load_model
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.heads.detection import even_depths, run_cases
from rmutils.models import LanguageModel

LLAMA = {"vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 131_072}
TINY = {"vocab_size": 49_152, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 131_072}


class Settings(Config):
    """The paper's grid."""

    shape: dict[str, int] = LLAMA
    tokenizer: str = "tiny-llama"
    """Its tokens stand for others of a larger vocabulary."""
    lengths: tuple[int, ...] = tuple(round(5000 * i / 19) for i in range(20))
    depths: int = 10
    needles: int = 3


QUICK = {"shape": TINY, "lengths": (0, 300), "depths": 2, "needles": 1}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet: the whole grid, and the memory at single lengths."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and settings.shape == LLAMA:
        print("There is no GPU here. `--quick` runs the same code with a tiny shape.")
        return False
    results, lm = Results("gpu", settings, folder), random_model(settings, device)
    for length in settings.lengths[:: max(len(settings.lengths) // 4, 1)]:
        if not list(results.find(what="memory", length=length)):
            results.add({"what": "memory", "length": length, **run(lm, settings, (length,), 1, 1)})
    if not list(results.find(what="grid")):
        results.add({"what": "grid", **run(
            lm, settings, settings.lengths, settings.depths, settings.needles)})
    return True


def random_model(settings: Settings, device: str) -> LanguageModel:
    """bfloat16, made on the device: 16 GB for the eight billion."""
    known = load_model(settings.tokenizer, device="cpu")
    config = LlamaConfig(**settings.shape)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    finally:
        torch.set_default_dtype(before)
    return LanguageModel(model, known.tokenizer, "random", "llama", "random")


def run(lm: LanguageModel, settings: Settings, lengths, depths: int, needles: int) -> dict:
    """Seconds and peak memory of a detection, and the memory of weights and of one case's cache."""
    on_gpu = lm.model.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    _, table = run_cases(lm, DetectConfig(lengths=lengths, depths=even_depths(depths),
                                          needles=needles, definition="wu"))
    seconds = time.perf_counter() - started
    config = lm.model.config
    width = config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    return {
        "cases": len(table), "seconds": [round(seconds, 2)],
        "peak_mib": round(torch.cuda.max_memory_allocated() / 2**20, 1) if on_gpu else None,
        "weights_mib": round(sum(p.nbytes for p in lm.model.parameters()) / 2**20, 1),
        "cache_mib": round(2 * 2 * config.num_hidden_layers * width
                           * int(table["prompt_tokens"].max()) / 2**20, 2)}
