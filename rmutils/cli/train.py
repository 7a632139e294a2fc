"""`rmutils train`: a model from preference pairs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rmutils.errors import UserError


def train(
    model: Annotated[str, typer.Argument(help="Registry name, folder, .gguf file or hub id.")],
    pairs: Annotated[Path, typer.Argument(
        help="Pairs (.parquet) with the columns prompt, chosen, rejected.")],
    out: Annotated[Path, typer.Option(help="Folder for the trained model.")],
    recipe: Annotated[str, typer.Option(help="paper, embedded or smoke.")] = "embedded",
    objective: Annotated[str, typer.Option(
        help="dpo, or sft on the chosen side only.")] = "dpo",
    learning_rate: Annotated[float | None, typer.Option(
        help="Another one than the recipe's; it falls to a tenth, as the paper's does.")] = None,
    lora: Annotated[int | None, typer.Option(
        help="Train LoRA matrices of this rank instead of all weights.")] = None,
    thinking: Annotated[bool, typer.Option(
        help="Whether the prompts leave room for thoughts, as they did when the answers came.",
    )] = True,
    seed: Annotated[int, typer.Option(help="Order of the pairs.")] = 42,
) -> None:
    """Train a model on preference pairs (section 3; appendix D for SFT); print where it is.

    A run that was stopped goes on when the same command is given again.

    Example: rmutils train tiny-llama pairs.parquet --recipe embedded --out trained

    On several GPUs, from a clone of the project (zero1.yaml, zero2.yaml or fsdp.yaml):
    accelerate launch --config_file rmutils/training/accelerate/zero1.yaml -m rmutils train
    llama-3.1-8b-instruct pairs.parquet --recipe paper --out trained
    """
    import pandas as pd

    from rmutils.training import RECIPES
    from rmutils.training import train as train_model

    if recipe not in RECIPES:
        raise UserError(f"--recipe {recipe}: one of {', '.join(RECIPES)}.")
    if not pairs.is_file():
        raise UserError(f"{pairs}: no such file. Write the table of "
                        f"`rmutils.contrast.pairs.make_pairs` there.")
    given = {"objective": objective, "lora_rank": lora, "thinking": thinking, "seed": seed}
    if learning_rate is not None:
        given |= {"learning_rate": learning_rate, "min_learning_rate": learning_rate / 10}
    chosen = RECIPES[recipe].changed(given)
    try:
        table = pd.read_parquet(pairs)
    except (ValueError, OSError) as error:
        raise UserError(f"{pairs} is not a parquet file: {error}.") from error
    folder = train_model(model, table, chosen, out)
    if os.environ.get("RANK", "0") == "0":  # one of the processes of `accelerate launch`
        print(folder)
