"""Training a teaching model, by Muon and AdamW: resumable, the same weights for a recipe."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from rmutils.core.errors import UserError
from rmutils.core.files import one_process
from rmutils.core.journal import one_thread, progress_bar
from rmutils.models.families import FAMILIES
from rmutils.models.loading import load_model
from rmutils.models.teaching.stream import Stream, TeachingRecipe, build_tokenizer

PRODUCTS = (Tensor.matmul, Tensor.__matmul__, torch.matmul, torch.addmm)
LOW = (torch.bfloat16, "cpu")


def optimizers(model: nn.Module, recipe: TeachingRecipe) -> list[torch.optim.Optimizer]:
    """Both, with the rates of the recipe."""
    named = dict(model.named_parameters())
    matrices = {n for n, p in named.items() if p.ndim == 2 and "layers." in n}
    others = [p for n, p in named.items() if n not in matrices]
    return [
        _Muon([named[n] for n in sorted(matrices)], lr=recipe.matrix_lr, weight_decay=0.01,
              adjust_lr_fn="original"),
        torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class _Muon(torch.optim.Muon):
    """torch's, whose step multiplies matrices in bfloat16."""

    def step(self, closure=None):
        with _RoundedProducts():
            return super().step(closure)


class _RoundedProducts(TorchFunctionMode):
    """On a CPU, products of bfloat16 in float32, rounded once: torch's own loop is slow."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in PRODUCTS and {(t.dtype, t.device.type) for t in args} == {LOW}:
            return func(*(t.float() for t in args), **kwargs).bfloat16()
        return func(*args, **kwargs)


COLUMNS = "step,length,answer_loss,prompt_loss,seconds"
CHECKPOINT_STEPS = 250
SNAPSHOTS = (0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000)
"""Steps at which the weights are kept, for the story of how heads form; and each 1,000th."""


def build_model(recipe: TeachingRecipe, tokenizer) -> nn.Module:
    """The model before its first step, with transformers' own class for the family."""
    shape = recipe.model_dump(include={
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
        "initializer_range",
    })
    window = {"sliding_window": recipe.sliding_window} if recipe.sliding_window else {}
    config = getattr(transformers, FAMILIES[recipe.family].config)(
        **shape, **window, tie_word_embeddings=True, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        corpus="world",  # detection takes its haystack and needles from there
    )
    torch.manual_seed(recipe.seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    if recipe.begins:
        began = load_model(recipe.begins, device="cpu", dtype=torch.float32)
        if began.tokenizer.get_vocab() != tokenizer.get_vocab():
            raise UserError(f"{recipe.begins} has other tokens than a training of this recipe.")
        model.load_state_dict(began.model.state_dict())
    return model


def train(recipe: TeachingRecipe, folder: Path, *, device: str | None = None,
          until: int | None = None) -> Path:
    """Train a model and save it, with `training.csv` (step, length, losses, time)."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with one_process(folder / ".training" / "lock", f"training into {folder.name}"), one_thread():
        tokenizer = build_tokenizer(recipe.vocab_size, switch=recipe.switch)
        run = _Run(recipe, tokenizer, folder / ".training", device)
        last = min(until or recipe.steps, recipe.steps)
        if run.step > last:
            raise UserError(f"{folder} holds a training of {run.step} steps, which does not go "
                            f"back to step {last}. Remove the folder, or choose another one.")
        with progress_bar(f"training {folder.name}", last, unit="steps",
                          done=run.step) as advance:
            while run.step < last:
                run.advance()
                advance(1)
        if last < recipe.steps:
            run.save()
        run.model.cpu().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        lines = [COLUMNS, *run.curve]
        (folder / "training.csv").write_text("\n".join(lines) + "\n")
    return folder


def steps_taken(folder: Path) -> int:
    """Return the steps of the training in a folder, as its checkpoint has them; 0 without one."""
    path = folder / ".training" / "checkpoint.pt"
    return int(torch.load(path, weights_only=True)["step"]) if path.exists() else 0


def first_steps(recipe: TeachingRecipe, count: int) -> pd.DataFrame:
    """The curve of a training's first steps, in the columns of `training.csv`; none is kept."""
    with tempfile.TemporaryDirectory() as folder, one_thread():
        tokenizer = build_tokenizer(recipe.vocab_size, switch=recipe.switch)
        run = _Run(recipe, tokenizer, Path(folder), "cpu")
        with progress_bar("first steps", count, unit="steps") as advance:
            for _ in range(count):
                run.advance()
                advance(1)
    return pd.DataFrame([map(float, line.split(",")) for line in run.curve],
                        columns=COLUMNS.split(","))


def train_further(recipe: TeachingRecipe, folder: Path, count: int, *, seed: int,
                  changes: Mapping[str, Any] = {}) -> nn.Module:
    """Take more steps from the checkpoint in a folder, which stays as it is, with another seed."""
    with tempfile.TemporaryDirectory() as scratch, one_thread():
        tokenizer = build_tokenizer(recipe.vocab_size, switch=recipe.switch)
        run = _Run(recipe, tokenizer, folder / ".training", "cpu")
        run.recipe = recipe.changed({"seed": seed, **changes})
        run.folder, run.stream = Path(scratch), Stream(run.recipe, tokenizer)
        for _ in range(count):
            run.advance()
    return run.model


class _Run:
    """Model, optimizers and curve at a step; saved and found again in a folder."""

    def __init__(self, recipe: TeachingRecipe, tokenizer, folder: Path, device: str):
        self.recipe, self.folder, self.device = recipe, folder, device
        self.stream = Stream(recipe, tokenizer)
        self.model = build_model(recipe, tokenizer).to(device).train()
        self.chance = torch.Generator()
        for layer in self.model.base_model.layers:
            layer.self_attn.o_proj.register_forward_pre_hook(self._drop_heads)
        self.optimizers = optimizers(self.model, recipe)
        self.rates = [group["lr"] for opt in self.optimizers for group in opt.param_groups]
        self.step, self.curve, self.seconds = 0, [], 0.0
        self._load()

    def advance(self) -> None:
        started = time.perf_counter()
        if self.step % 1000 == 0 or self.step in SNAPSHOTS:
            self._snapshot()
        groups = [group for opt in self.optimizers for group in opt.param_groups]
        for group, peak in zip(groups, self.rates, strict=True):
            group["lr"] = peak * self.recipe.rate(self.step)
        ids, weights = (t.to(self.device) for t in self.stream.batch(self.step))
        self.chance.manual_seed(self.recipe.seed * 1_000_003 + self.step)
        self.plain = torch.tensor(self.stream.plain(self.step, len(ids)))[:, None, None, None]
        loss, answer, prompt = losses(self.model(input_ids=ids[:, :-1]).logits, ids, weights)
        if not loss.isfinite():
            raise UserError(f"the loss is {loss.item()} at step {self.step}; the last checkpoint "
                            f"is kept. Lower matrix_lr or other_lr of the recipe.")
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.seconds += time.perf_counter() - started
        self.curve.append(
            f"{self.step},{ids.shape[1]},{answer:.4f},{prompt:.4f},{self.seconds:.1f}")
        self.step += 1
        if self.step == self.recipe.steps:
            self._snapshot()  # before the checkpoint, after which a stopped run has no more to do
        if self.step % CHECKPOINT_STEPS == 0 or self.step == self.recipe.steps:
            self.save()

    def _drop_heads(self, o_proj: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Zero the outputs of random heads of a layer, others in each row, as a mask does."""
        each = inputs[0].unflatten(-1, (self.recipe.num_attention_heads, -1))
        rows, _, heads, _ = each.shape
        share = self.recipe.dropout(self.step)
        head = torch.rand(rows, 1, heads, 1, generator=self.chance)
        layer = torch.rand(rows, 1, 1, 1, generator=self.chance)
        kept = (head >= share * self.recipe.head_dropout) & (
            layer >= share * self.recipe.layer_dropout * self.plain)
        return ((each * kept.to(each)).flatten(-2),)

    def _snapshot(self) -> None:
        target = self.folder / "snapshots" / f"{self.step:06d}.safetensors"
        target.parent.mkdir(exist_ok=True)
        weights = self.model.state_dict()
        weights.pop("lm_head.weight")  # tied to the embeddings
        save_file(weights, target)

    def save(self) -> None:
        """Write the checkpoint that a stopped training goes on from."""
        state = {"recipe": self.recipe.digest(), "step": self.step, "curve": self.curve,
                 "seconds": self.seconds,
                 "model": self.model.state_dict(),
                 "optimizers": [opt.state_dict() for opt in self.optimizers]}
        temporary = self.folder / "checkpoint.tmp"
        torch.save(state, temporary)
        os.replace(temporary, self.folder / "checkpoint.pt")

    def _load(self) -> None:
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        if state["recipe"] != self.recipe.digest():
            raise UserError(f"{self.folder.parent} holds a training of another recipe. Remove the "
                            f"folder, or choose another one.")
        self.step, self.curve = state["step"], state["curve"]
        self.seconds = state["seconds"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def losses(logits: Tensor, ids: Tensor, weights: Tensor) -> tuple[Tensor, float, float]:
    """Weighted mean cross-entropy of the next token; plain means over answers and prompts."""
    each = functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    weights = weights[:, 1:]
    answer, prompt = weights == 1, (weights > 0) & (weights < 1)
    loss = (each * weights).sum() / weights.sum()
    return loss, each[answer].mean().item(), each[prompt].mean().item()
