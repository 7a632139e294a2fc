"""Trained models, loaded from where `rmutils.training.running.train` wrote them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from rmutils.artifacts import Stage
from rmutils.errors import UserError
from rmutils.files import sha256
from rmutils.models import LanguageModel, load_model

TRAIN = Stage("train", version=1)
RECORD = "training.json"
"""What was trained on what, and how; written last."""


def load_trained(base: LanguageModel, folder: Path) -> LanguageModel:
    """The model in a folder that `train` wrote, whether it trained all weights or LoRA matrices."""
    if (folder / "adapter_config.json").exists():
        return load_adapter(base, folder)
    return load_model(str(folder), device=str(base.model.device), dtype=base.model.dtype)


def load_adapter(base: LanguageModel, folder: Path) -> LanguageModel:
    """A model with a LoRA adapter merged into its weights, as any other model.

    Parameters
    ----------
    base : LanguageModel
        The model that the adapter was trained on; it stays as it is.
    folder : Path
        What `train` wrote for a recipe with `lora_rank`. UserError if it is another model's.
    """
    if not (folder / "adapter_config.json").is_file():
        raise UserError(f"{folder} holds no LoRA adapter. A whole model is loaded with load_model.")
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():
        raise UserError(f"{folder} holds no {weights.name} (pickled weights are never read).")
    record = json.loads((folder / RECORD).read_text())
    if record["identity"].split()[:-1] != base.identity.split()[:-1]:  # but for the precision
        raise UserError(f"the adapter in {folder} was trained on {record['model']} with other "
                        f"weights than those of {base.name}.")
    from peft import PeftModel  # here, because importing it takes seconds

    model = PeftModel.from_pretrained(copy.deepcopy(base.model), folder).merge_and_unload()
    return LanguageModel(
        model.eval(), base.tokenizer, folder.name, base.family,
        f"{base.identity} + adapter sha256:{sha256(weights)}")
