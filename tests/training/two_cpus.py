"""`rmutils train` in two CPU processes that stand for two GPUs. Run by `accelerate launch`.

accelerate offers FSDP to processes with an accelerator each, and silently copies the whole model to
CPU processes instead. Below, it is told that these have FSDP; all else is what runs on GPUs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState, PartialState
from torch.distributed.tensor import DTensor

from rmutils.cli.train import train
from rmutils.training import RECIPES
from rmutils.training.trainers import WatchedDPO

_begin, _loss = AcceleratorState.__init__, WatchedDPO.compute_loss


def _begin_with_fsdp(state, *arguments, fsdp_plugin=None, **options) -> None:
    _begin(state, *arguments, fsdp_plugin=fsdp_plugin, **options)
    if fsdp_plugin and state.distributed_type is DistributedType.MULTI_CPU:
        state.distributed_type, state.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        if state._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(state._mixed_precision)


def _loss_of_shards(trainer, model, *arguments, **options):
    """Weights are in shares before they are used, and probabilities are not rounded."""
    for weights in model.parameters():
        assert isinstance(weights, DTensor) and weights.to_local().numel() < weights.numel()
    seen = []
    hook = model.register_forward_hook(lambda _, __, out: seen.append(out.log_probs.dtype))
    loss = _loss(trainer, model, *arguments, **options)
    hook.remove()
    assert seen == [torch.float32]
    return loss


if __name__ == "__main__":
    AcceleratorState.__init__, WatchedDPO.compute_loss = _begin_with_fsdp, _loss_of_shards
    RECIPES["as paper"] = RECIPES["smoke"].model_copy(update={
        "precision": "bfloat16", "gradient_checkpointing": True})
    model, pairs, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    for recipe in ("smoke", "as paper"):
        train(model, pairs, out / recipe, recipe=recipe)
