"""The same by libraries made to look into models; they live in `.venv-bench` (`.ci/bench.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from benchmarks.ways import Run, reader, step_by_step
from rmutils.corpora.niah import NiahCase
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import using


def transformer_lens(lm: LanguageModel, cases: Iterable[NiahCase], *how) -> Iterator[Run]:
    """TransformerLens: a hook on each layer's attention pattern. It makes all attention eager."""
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(
        lm.name, hf_model=lm.model, tokenizer=lm.tokenizer, device="cpu", dtype=torch.float32)
    looked = {}

    def look(pattern: Tensor, hook) -> None:
        looked[hook.name] = pattern[0, :, -1]

    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(lm.shape[0])]
    hooks = [(name, look) for name in names]

    def read(ids: Tensor):
        return bridge(ids, return_type="logits_and_cache", use_cache=True, logits_to_keep=1)[1]

    def step(token: Tensor, cache):
        logits, cache = bridge.run_with_hooks(
            token, return_type="logits_and_cache", past_key_values=cache, fwd_hooks=hooks)
        return logits, [looked[name] for name in names], cache

    for case in cases:
        yield step_by_step(case, read, step, *how, ends=True)


def nnsight(lm: LanguageModel, cases: Iterable[NiahCase], *how) -> Iterator[Run]:
    """nnsight: each step is a trace that saves the attention of each layer."""
    import nnsight as library

    traced = library.NNsight(lm.model)

    def step(token: Tensor, cache):
        with traced.trace(input_ids=token, past_key_values=cache, use_cache=True):
            rows = library.save([])
            for layer in traced.model.layers:
                rows.append(layer.self_attn.output[1][0, :, -1])
            logits = traced.output.logits.save()
        return logits, rows, cache

    with using(lm.model, "eager"):
        for case in cases:
            yield step_by_step(case, reader(lm), step, *how, ends=True)
