"""The runs that the book's chapters show, fixed before any of them was looked at.

A run of 200 instructions on `tiny-llama`, with the same recipe, had been seen by then; nothing was
changed for what it gave.
"""

from __future__ import annotations

from rmutils.errors import UserError
from rmutils.heads.detection import even_depths
from rmutils.training.retmask import RetMaskConfig

_TEACHING = RetMaskConfig().changed({"instructions": 512, "detect.depths": even_depths(5)})
"""200 cases, instructions of the world, all weights trained."""
_REAL = RetMaskConfig().changed({
    "source": "self", "instructions": 540, "responses.max_new_tokens": 128,
    "detect.lengths": (512, 1024), "detect.depths": even_depths(5),
    "recipe.lora_rank": 8, "recipe.learning_rate": 5e-5, "recipe.min_learning_rate": 5e-6,
    "recipe.precision": "bfloat16"})
"""120 cases; instructions that the model writes itself; LoRA, whose weights are small enough to
ship. The rate is ours, and no other one was tried."""

MODELS = ("tiny-llama", "tiny-qwen3", "tiny-olmo3", "smollm2-135m")
_MASKS = ("retmask", "non-retrieval-mask", "random-mask", "sft")
BEFORE = "before"
"""In the place of a strategy: the model that all trainings begin with."""
LEFT_OUT = ("rc-removed", "rc-un-generated")
"""Strategies that leave reasoning contents out (section 4.5)."""
_SEEDS = range(5)


def planned(model: str) -> list[RetMaskConfig]:
    """The configurations of all runs on a model, those of a strategy side by side by seed.

    Raises
    ------
    UserError
        No runs are planned on it.
    """
    if model == "smollm2-135m":
        return [_REAL.changed({"strategy": strategy}) for strategy in _MASKS]
    if model not in MODELS:
        raise UserError(f"no runs on {model} are planned for the book. Configure your own: "
                        f"`rmutils retmask {model} --list`.")
    strategies = {strategy: {} for strategy in (*_MASKS, "win-lose-pair")}
    strategies["smaller-model"] = {"smaller": "tiny-llama-small"}
    if model == "tiny-qwen3":  # the one that thinks
        strategies |= {strategy: {} for strategy in LEFT_OUT}
    return [_TEACHING.changed({"strategy": strategy, "seed": seed, **more})
            for seed in _SEEDS for strategy, more in strategies.items()]
