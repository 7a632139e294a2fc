"""How a detection's cost grows with the number of cases that share a text, and with heads."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.measuring import copied
from benchmarks.records import Results
from benchmarks.watching import Asked, rows
from rmutils import load_model
from rmutils.book.chapters.speed import FOLDER, REFERENCE
from rmutils.core.config import Config
from rmutils.heads.detection import even_depths


class Settings(Config):
    """Cases at even depths of one text, and random models with more and more heads."""

    model: str = "smollm2-135m"
    length: int = 1024
    cases: tuple[int, ...] = (1, 2, 5, 10)
    tokenizer: str = "tiny-llama"
    """Tokenizer of the random models: 8 layers, heads of 32 dimensions and 4 key heads."""
    heads: tuple[int, ...] = (4, 8, 16, 32, 64)
    head_length: int = 512
    rounds: int = 3


QUICK = {"model": "tiny-llama", "length": 256, "cases": (1, 2), "heads": (4,),
         "head_length": 256}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet."""
    results = Results("growth", settings, folder)
    with copied(settings.model) as model:
        for count in settings.cases:
            if not list(results.find(by="cases", count=count)):
                asked = Asked(lengths=(settings.length,), depths=even_depths(count),
                              rounds=settings.rounds)
                for row in rows("rmutils", model, asked):
                    results.add({"by": "cases", "count": count, **row})
    for count in settings.heads:
        for way in ("rmutils", REFERENCE):
            if not list(results.find(by="heads", count=count, way=way)):
                # as many samples of each way: rounds of one, cases of the other
                asked = Asked(lengths=(settings.head_length,), stops=False,
                              depths=even_depths(settings.rounds), rounds=settings.rounds)
                with tempfile.TemporaryDirectory() as model:
                    save_random(model, count, settings.tokenizer)
                    for row in rows(way, model, asked):
                        results.add({"by": "heads", "count": count, **row})
    return True


def save_random(folder: str, heads: int, tokenizer: str) -> None:
    """A model with random weights, with the tokenizer of a teaching model."""
    lm = load_model(tokenizer)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=lm.model.config.vocab_size, hidden_size=256, intermediate_size=512,
        num_hidden_layers=8, num_attention_heads=heads, num_key_value_heads=4, head_dim=32,
        max_position_embeddings=lm.window, corpus=lm.corpus)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
