"""Masked models as checkpoints: the ablated model of section 3 for any tool that loads models."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError

from rmutils import __version__
from rmutils.errors import UserError
from rmutils.heads.masking import check_heads, mask_heads
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel

RECORD = "masked_heads.json"


def check_free(folder: Path | str) -> Path:
    """The absolute path of a folder that can be written without touching anything.

    Raises
    ------
    UserError
        It exists and is not an empty folder.
    """
    path = Path(folder).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder. Choose another one, or "
                        f"remove it.")
    return path


def export_masked(lm: LanguageModel, heads: Iterable[Head], folder: Path | str) -> Path:
    """Write the ablated model pi_theta' (section 3) as an ordinary checkpoint.

    The folder has configuration, weights (safetensors), tokenizer, chat template and generation
    settings, so that `load_model`, transformers and vLLM load it like any other model, and
    `masked_heads.json`: name and identity of the model, its masked heads, the version of rmutils.
    The weights keep the precision of `lm`. Nothing is visible under the folder's name before all
    is written.

    Parameters
    ----------
    lm : LanguageModel
        Not changed.
    heads : iterable of (layer, head)
        Switched off as by `mask_heads`.
    folder : Path or str
        Made, with its parents.

    Returns
    -------
    Path
        The folder, absolute.

    Raises
    ------
    UserError
        The folder exists and is not empty, it cannot be written, or the model has no such head.
    """
    target, heads = check_free(folder), sorted(check_heads(lm, heads))
    record = {"model": lm.name, "identity": lm.identity,
              "heads": [[int(layer), int(head)] for layer, head in heads], "rmutils": __version__}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            work = Path(scratch) / "model"  # the scratch folder itself is closed to other users
            with mask_heads(lm, heads):
                lm.model.save_pretrained(work)
            lm.tokenizer.save_pretrained(work)
            (work / RECORD).write_text(json.dumps(record, indent=1) + "\n")
            for weights in work.glob("*.safetensors"):  # so are these, as safetensors makes them
                weights.chmod((work / RECORD).stat().st_mode)
            os.replace(work, target)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder} could not be written: {error}.") from error
    return target
