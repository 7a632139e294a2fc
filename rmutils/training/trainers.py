"""TRL's trainers with a watch on them: what is not a number stops the training."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import datasets
import torch
from accelerate.utils import gather_object
from peft import LoraConfig
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback
from transformers.trainer_callback import PrinterCallback
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from rmutils.core.errors import UserError
from rmutils.core.journal import progress_bar
from rmutils.training.encoding import with_rows
from rmutils.training.recipes import TrainRecipe

DAY = 86_400  # seconds


class _Watched:
    """Mixed into a trainer: it stops where loss or gradient is not finite, and tells the rows."""

    _seen: list[int] = []  # rows of the pairs in the step so far, of this process

    def _send_telemetry(self) -> None:
        """TRL tells the hub of each training; a training of ours is nobody's business."""

    def create_accelerator_and_postprocess(self) -> None:
        """Keep log-probabilities in float32 under FSDP, where accelerate would round them."""
        super().create_accelerator_and_postprocess()
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if plugin and plugin.mixed_precision_policy:
            plugin.mixed_precision_policy = replace(
                plugin.mixed_precision_policy, output_dtype=None)

    def _run_epoch(self, **epoch) -> None:
        """Nothing if no step is left, where transformers would do one more."""
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(**epoch)

    def compute_loss(self, model, inputs, **options):
        rows = inputs["row"].tolist()
        self._seen = [*self._seen, *rows]
        inputs = {name: value for name, value in inputs.items() if name != "row"}
        loss = super().compute_loss(model, inputs, **options)
        # All processes take part, so that all of them stop.
        if not self.accelerator.gather(loss.detach().reshape(1)).isfinite().all():
            self._stop(f"the loss is {loss.item()}", rows, self.state.global_step + 1)
        return loss

    def log(self, logs, start_time=None) -> None:
        if not math.isfinite(logs.get("grad_norm", 0.0)):
            self._stop(f"the gradient's norm is {logs['grad_norm']}", self._seen,
                       self.state.global_step)
        self._seen = []
        super().log(logs, start_time)

    def _stop(self, what: str, rows: list[int], step: int) -> None:
        rows = sorted(gather_object(rows))
        raise UserError(f"{what} at step {step}. In that batch were the rows {rows} of the pairs. "
                        f"The last checkpoint is kept: look at those rows, or train into another "
                        f"folder with a lower learning_rate.")


class WatchedSFT(_Watched, SFTTrainer):
    """TRL's SFT."""


class WatchedDPO(_Watched, DPOTrainer):
    """TRL's DPO on pairs that are token ids already."""

    def _prepare_dataset(self, dataset, *_) -> datasets.Dataset:
        return dataset

    def _precompute_ref_logps(self, dataset, name, batch_size) -> datasets.Dataset:
        with (progress_bar("reference model", len(dataset), unit="pairs") as self._advance,
              patch.dict(os.environ, TQDM_DISABLE="1")):  # no bars of TRL's
            return super()._precompute_ref_logps(dataset, name, batch_size)

    def _prepare_inputs(self, inputs):
        """With DeepSpeed, transformers rounds all inputs that are no integers to bfloat16."""
        exact = {name: inputs[name] for name in ("ref_chosen_logps", "ref_rejected_logps")}
        prepared = super()._prepare_inputs(inputs)
        return {**prepared, **{n: t.to(prepared["input_ids"].device) for n, t in exact.items()}}

    def compute_ref_log_probs(self, model, inputs):
        inputs = {name: value for name, value in inputs.items() if name != "row"}
        result = super().compute_ref_log_probs(model, inputs)
        self._advance(len(result[0]) * self.accelerator.num_processes)
        return result


def build(recipe: TrainRecipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast,
          data: datasets.Dataset, args: DPOConfig | SFTConfig,
          reference: PreTrainedModel | None) -> WatchedDPO | WatchedSFT:
    """The trainer of a recipe. For DPO this computes the reference log-probabilities."""
    lora = LoraConfig(
        r=recipe.lora_rank, lora_alpha=recipe.lora_scale * recipe.lora_rank, lora_dropout=0.0,
        target_modules="all-linear", task_type="CAUSAL_LM",
    ) if recipe.lora_rank else None
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    shared = {"model": model, "args": args, "train_dataset": data, "processing_class": tokenizer,
              "peft_config": lora}
    if recipe.objective == "dpo":
        collate = DataCollatorForPreference(pad, recipe.max_length, truncation_mode="keep_end")
        trainer = WatchedDPO(**shared, data_collator=with_rows(collate), ref_model=reference)
        trainer.ref_model = None  # its log-probabilities are with the data now
    else:
        collate = DataCollatorForLanguageModeling(pad)
        trainer = WatchedSFT(**shared, data_collator=with_rows(collate))
    trainer.remove_callback(PrinterCallback)
    return trainer


def arguments(recipe: TrainRecipe, folder: Path) -> DPOConfig | SFTConfig:
    """TRL's settings of a recipe; checkpoints go into `folder`."""
    at_once = recipe.per_device_batch * int(os.environ.get("WORLD_SIZE", 1))
    if recipe.batch % at_once:
        raise UserError(f"a batch of {recipe.batch} cannot be shared out among {at_once} places "
                        f"(processes x per_device_batch). Change --num_processes or the recipe.")
    gpu = torch.cuda.is_available()
    shared = {
        "output_dir": str(folder), "seed": recipe.seed, "num_train_epochs": recipe.epochs,
        "max_steps": recipe.max_steps or -1, "per_device_train_batch_size": recipe.per_device_batch,
        "gradient_accumulation_steps": recipe.batch // at_once,
        "learning_rate": recipe.learning_rate, "lr_scheduler_type": "cosine_with_min_lr",
        # as a share of the rate, because ZeRO's optimizer cannot be asked for the rate
        "lr_scheduler_kwargs": {"min_lr_rate": recipe.min_learning_rate / recipe.learning_rate},
        "warmup_steps": recipe.warmup,
        "adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1],
        "weight_decay": recipe.weight_decay, "max_grad_norm": recipe.max_gradient,
        "bf16": recipe.precision == "bfloat16", "use_cpu": not gpu, "dataloader_pin_memory": gpu,
        "gradient_checkpointing": recipe.gradient_checkpointing,
        "logging_steps": 1, "logging_nan_inf_filter": False, "disable_tqdm": True,
        "report_to": "none", "remove_unused_columns": False, "max_length": None,
        "save_steps": recipe.checkpoint_steps, "save_total_limit": 1,
        "ddp_timeout": DAY,  # the first process encodes all pairs while the others wait
    }
    if recipe.objective == "dpo":
        found = DPOConfig(**shared, beta=recipe.beta, precompute_ref_log_probs=True)
    else:
        found = SFTConfig(**shared, dataset_kwargs={"skip_prepare_dataset": True})
    if "WORLD_SIZE" not in os.environ and found.n_gpu > 1:
        found._n_gpu = 1  # a process takes one, and TRL refuses what torch.nn.DataParallel does
    return found


@contextmanager
def finite_attention(device: torch.device) -> Iterator[None]:
    """Keep a GPU to PyTorch's plain kernel: fused ones can give NaN gradients in bfloat16."""
    with sdpa_kernel(SDPBackend.MATH) if device.type == "cuda" else nullcontext():
        yield


class Progress(TrainerCallback):
    """A bar of ours; entered into `stack`, which closes it."""

    def __init__(self, stack: ExitStack, description: str):
        self.stack, self.description = stack, description

    def on_train_begin(self, args, state, control, **_) -> None:
        self.advance = self.stack.enter_context(progress_bar(
            self.description, state.max_steps, unit="steps", done=state.global_step))

    def on_step_end(self, args, state, control, **_) -> None:
        self.advance(1)
