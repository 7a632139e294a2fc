"""The cost of reading a prompt and writing an answer: processor time, multiply-adds, memory."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from pydantic import Field
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import DynamicCache

from rmutils.attention.variants import AttentionVariant, Plain, PromptView, Variant
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, one_thread, progress_bar
from rmutils.corpora.niah import NiahCase
from rmutils.heads.detection import DetectConfig, build_cases, depends_on
from rmutils.models import LanguageModel
from rmutils.models.products import left_to_pytorch

Count = Annotated[int, Field(ge=1)]
_ATEN = torch.ops.aten
_LINEAR = {_ATEN.mm, _ATEN.addmm}


class CostsConfig(Config):
    """Settings of the timing. The paper does not say on what its Figure 9 was measured."""

    variants: dict[str, Variant] = {"plain": Plain()}
    """Name -> attention."""
    length: Count = 512
    """Tokens of a prompt."""
    rounds: Count = 8
    """In each, every variant reads the same prompt, one after the other, so that a machine which
    slows down slows down all of them. Another needle each round."""
    steps: Count = 16
    """Tokens of the answer."""


def costs(lm: LanguageModel, config: CostsConfig,
          journal: Path | None = None) -> dict[str, pd.DataFrame]:
    """Read a prompt and a given answer under each variant."""
    if lm.model.device.type != "cpu":
        raise UserError("costs are counted in time of the processor. Set CUDA_VISIBLE_DEVICES to "
                        "nothing, so that the model is loaded there.")
    grid = DetectConfig(lengths=(config.length,), depths=(0.5,), needles=config.rounds,
                        max_new_tokens=config.steps)
    cases = build_cases(lm, grid)
    kept, rows = Journal(journal, depends_on(lm, config, grid)), []
    prepared: dict[str, AttentionVariant] = {}
    with progress_bar(f"{lm.name}, costs", len(cases) * len(config.variants), unit="passes",
                      done=len(kept)) as advance, one_thread():
        for i, case in enumerate(cases):
            for name, variant in config.variants.items():
                if (key := f"{i} {name}") not in kept:
                    if name not in prepared:
                        prepared[name] = variant.prepared(lm)
                    kept[key] = _measured(lm, prepared[name], case, config.steps)
                    advance(1)
                rows.append({"question": i, "variant": name, **kept[key]})
    return {"costs": pd.DataFrame(rows)}


@torch.inference_mode()
def _measured(lm: LanguageModel, variant: AttentionVariant, case: NiahCase, steps: int) -> dict:
    """A row of the table: a pass against the clock, then one that is counted."""
    answer = [*islice(cycle(case.input_ids[slice(*case.inserted_span)]), steps)]
    _, seconds = _pass(lm, variant, case.input_ids, answer, _seconds)
    found, work = _pass(lm, variant, case.input_ids, answer, _work)
    (prefill, prefill_attention), (decode, decode_attention) = work
    return {"tokens": len(case.input_ids),
            "prefill_seconds": seconds[0], "step_seconds": seconds[1] / steps,
            "prefill_work": prefill, "step_work": decode / steps,
            "prefill_attention": prefill_attention, "step_attention": decode_attention / steps,
            **found}


def _pass(lm: LanguageModel, variant: AttentionVariant, prompt: Sequence[int],
          answer: Sequence[int], measured: Callable) -> tuple[dict, list]:
    """Return what is kept in memory, and the cost of reading and writing by a measure."""
    cache = DynamicCache()

    def prefill() -> None:
        nonlocal view
        view = stack.enter_context(model.viewing(prompt))
        lm.model(torch.tensor([view.ids], device=lm.model.device), past_key_values=cache,
                 use_cache=True, logits_to_keep=1)

    def decode() -> None:
        for token in answer:
            model.step([token], cache)

    with variant.attached(lm) as model, ExitStack() as stack:
        view = PromptView(prompt)
        costs = [measured(prefill), measured(decode)]
    return {"cache_bytes": sum(tensor.nbytes for layer in cache.layers if layer.is_initialized
                               for tensor in (layer.keys, layer.values)),
            "hidden_bytes": view.hidden_bytes(), "kept": view.kept()}, costs


def _seconds(work: Callable[[], None]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _work(work: Callable[[], None]) -> tuple[float, float]:
    """Multiply-adds, of all and of attention alone."""
    with left_to_pytorch(), FlopCounterMode(display=False, custom_mapping={
            _ATEN._scaled_dot_product_flash_attention_for_cpu: _sdpa}) as counter:
        work()
    counts: Mapping = counter.get_flop_counts().get("Global", {})
    total = sum(counts.values())
    return total / 2, (total - sum(counts.get(kind, 0) for kind in _LINEAR)) / 2


PARTS = {_ATEN.linear: "linear layers", _ATEN.matmul: "products of attention",
         _ATEN.mul_: "scaling, mask", _ATEN.masked_fill_: "scaling, mask",
         _ATEN.softmax: "softmax", _ATEN.scaled_dot_product_attention: "fused attention"}
"""What reading a prompt is made of, by the operation of torch that does it."""


class _PartTimer(TorchDispatchMode):
    """Adds up the processor time of the operations of `PARTS`."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = dict.fromkeys((*PARTS.values(), "the rest"), 0.0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        started = time.process_time()
        found = func(*args, **(kwargs or {}))
        self.seconds[PARTS.get(func.overloadpacket, "the rest")] += time.process_time() - started
        return found


@torch.inference_mode()
def seconds_by_part(lm: LanguageModel, variants: Mapping[str, AttentionVariant], length: int,
                    rounds: int = 5) -> pd.DataFrame:
    """Time what reading a prompt is made of, in one thread: medians over rounds."""
    case, = build_cases(lm, DetectConfig(lengths=(length,), depths=(0.5,), needles=1))
    ids, rows = torch.tensor([case.input_ids]), []
    with one_thread(), left_to_pytorch():
        for _ in range(rounds):
            for name, variant in variants.items():
                with variant.attached(lm), _PartTimer() as timer:
                    lm.model(ids, use_cache=False, logits_to_keep=1)
                rows.append({"variant": name, **timer.seconds})
    return pd.DataFrame(rows).groupby("variant", sort=False).median()


def _sdpa(query, key, value, *args, **kwargs) -> int:
    """Count SDPA's kernel for processors, which torch does not; a multiply-add is two."""
    batch, heads, queries, size = query
    return 2 * batch * heads * queries * key[2] * (size + value[3])
