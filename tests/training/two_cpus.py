"""`rmutils train` in two CPU processes that stand for two GPUs.

accelerate offers FSDP and ZeRO to processes with an accelerator each, and silently copies the whole
model to CPU processes instead. Below, these are passed off as processes with GPUs.
"""

import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.distributed.tensor import DTensor
from transformers import training_args

from rmutils.cli.method import train
from rmutils.training import RECIPES, trainers


def pass_off() -> None:
    os.environ["ACCELERATE_TORCH_DEVICE"] = os.environ["DS_ACCELERATOR"] = "cpu"
    config = trainers.DPOConfig
    trainers.DPOConfig = lambda **options: config(**options | {"use_cpu": False})
    training_args.is_torch_bf16_gpu_available = lambda: True
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)


def check_each_loss(kind: str) -> None:
    """Weights, or the optimizer's state, are in shares; log-probabilities are not rounded."""
    loss = trainers.WatchedDPO.compute_loss

    def checked(trainer, model, inputs, **options):
        if kind == "fsdp":
            for weights in model.parameters():
                assert isinstance(weights, DTensor)
                assert weights.to_local().numel() < weights.numel()
        else:
            assert kind == f"zero{model.zero_optimization_stage()}"
        seen = [inputs["ref_chosen_logps"].dtype, inputs["ref_rejected_logps"].dtype]
        hook = model.register_forward_hook(lambda _, __, out: seen.append(out.log_probs.dtype))
        result = loss(trainer, model, inputs, **options)
        hook.remove()
        assert seen == 3 * [torch.float32]
        return result

    trainers.WatchedDPO.compute_loss = checked


def train_twice(model: str, pairs: Path, out: Path, kind: str, said: Path, env: dict) -> None:
    """In a process with the environment that `accelerate launch` gives it, forked from one that has
    all that is imported here, and perhaps trained."""
    os.environ |= env
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    pass_off()
    check_each_loss(kind)
    RECIPES["as paper"] = RECIPES["smoke"].model_copy(update={
        "precision": "bfloat16", "gradient_checkpointing": True})
    with said.open("a", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        for recipe in ("smoke", "as paper"):
            train(model=model, pairs=pairs, out=out / recipe, recipe=recipe)
