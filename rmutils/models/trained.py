"""Results of trainings: stored trainings (`train-...`), and LoRA adapters, which need a base."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import PreTrainedModel

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.files import read_text, sha256
from rmutils.core.results import Artifact, Stage, find, stored
from rmutils.core.validation import got, parse_json
from rmutils.models.language_model import LanguageModel
from rmutils.models.settings import check_finite

TRAIN = Stage("train", version=1)
RECORD = "training.json"  # record of what was trained on what, and how; written last
SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""Files of a LoRA adapter, as peft names them."""
MISMATCH = re.compile(r"(?s)size mismatch for (\S+): .*?Size\((.*?)\).*?Size\((.*?)\)")
"""torch's words for a weight of another shape."""
KEEP_BASE = "gaussian", "eva", "orthogonal"
"""Ways in which peft fills an adapter that leave the weights of the base as they are."""
_DTYPE = r" (float32|bfloat16|float16)(?= |$)"


def is_training(name: str) -> bool:
    """True for the name of a stored training, as `rmutils retmask` prints it."""
    if not isinstance(name, str):
        raise UserError("expected the name of a model, got {}.{}".format(*got(name)))
    return re.fullmatch(rf"{TRAIN.name}-[0-9a-f]{{16}}", name) is not None


def is_adapter(folder: Path) -> bool:
    """True for a folder that holds a LoRA adapter."""
    return (folder / SETTINGS).is_file()


def stored_training(name: str) -> Artifact:
    if artifact := find(name):
        return artifact
    commands = [run.manifest["command"] for run in stored("retmask")
                if json.loads(run.path("run.json").read_text())["training"] == name]
    how = f" `{commands[0]} --compute always` trains them again." if commands else ""
    raise UserError(f"the weights of {name} are not stored on this machine.{how}")


def recorded_base(folder: Path) -> str | None:
    """Return the model that a folder's training began with; None if it says nothing."""
    for file, key in ((SETTINGS, "base_model_name_or_path"), (RECORD, "model")):
        if (folder / file).is_file():
            told = _read(folder / file).get(key)
            return str(told) if told else None
    return None


def origin(name: str) -> str:
    """Return the model that a stored training or an adapter began with, and so on back."""
    chain = [name]
    while (told := _began_with(chain[-1])) and told not in chain:
        chain.append(told)
    return chain[-1]


def _began_with(name: str) -> str | None:
    if is_training(name):
        artifact = find(name)
        return recorded_base(artifact.folder) if artifact else None
    return recorded_base(Path(name)) if is_adapter(Path(name)) else None


def check_chain(folder: Path) -> None:
    """Refuse an adapter that was trained on itself, by its own account or that of its base."""
    seen = {folder.resolve()}
    while is_adapter(folder) and (told := recorded_base(folder)):
        folder = Path(told)
        if folder.resolve() in seen:
            raise UserError(f"the LoRA adapter in {folder} names itself as its base, directly or "
                            f"by way of others. Write the model that it was trained on into "
                            f"{folder / SETTINGS} (base_model_name_or_path).")
        seen.add(folder.resolve())


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(parse_json(read_text(path)))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error


def adapter_identity(base: str, folder: Path) -> str:
    """Identity of an adapter merged into a model of the identity `base`, whose precision it has."""
    settings = _read(folder / SETTINGS) | {"base_model_name_or_path": None}
    content = digest({SETTINGS: settings, WEIGHTS: sha256(_weights(folder))})
    found = re.search(_DTYPE + r"$", base)
    return f"{without_dtype(base)} + adapter sha256:{content}{found[0] if found else ''}"


def without_dtype(identity: str) -> str:
    """Return an identity of weights, in whatever precision they are."""
    return re.sub(_DTYPE, "", identity)


def _weights(folder: Path) -> Path:
    if not is_adapter(folder):
        raise UserError(f"{folder} holds no LoRA adapter. A whole model is loaded with load_model.")
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise UserError(f"{folder} holds no {WEIGHTS} (pickled weights are never read).")
    return weights


def load_adapter(base: LanguageModel, folder: Path | str, *, own: bool = False) -> LanguageModel:
    """Merge a LoRA adapter into the weights of its model, in float32 whatever their precision."""
    folder = Path(folder)
    weights = _weights(folder)
    if (folder / RECORD).is_file():
        record = _read(folder / RECORD)
        if without_dtype(record["identity"]) != without_dtype(base.state):
            raise UserError(f"the adapter in {folder} was trained on {record['model']} with other "
                            f"weights than those of {base.name}.")
    with _misfits(base, folder):
        model = _merge(base.model if own else copy.deepcopy(base.model), weights)
        check_finite(model)
    return LanguageModel(model.eval(), base.tokenizer, folder.name, base.family,
                         adapter_identity(base.state, folder), str(folder.resolve()))


@contextmanager
def _misfits(base: LanguageModel, folder: Path) -> Iterator[None]:
    """peft's errors, which take many lines, as one sentence."""
    try:
        yield
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ImportError,
            RecursionError, SafetensorError) as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"the adapter in {folder} cannot be read: {cause[:200]}.") from error
    except RuntimeError as error:
        if not (shapes := MISMATCH.search(str(error))):
            raise
        raise UserError(f"the adapter in {folder} does not fit {base.name}, or its settings not "
                        f"its weights: {shapes[1]} has the shape {shapes[2]}, and {shapes[3]} is "
                        "asked for.") from error


def _merge(model: PreTrainedModel, weights: Path) -> PreTrainedModel:
    from peft import PeftModel, get_peft_model_state_dict  # takes seconds

    _check_adapter(_read(weights.parent / SETTINGS))
    with safe_open(weights, "pt") as file:
        found = {*file.offset_keys()}
    dtype = model.dtype
    with torch.device("meta"):  # ranks of settings take no memory before they meet the weights
        adapted = PeftModel.from_pretrained(
            model.float(), weights.parent, torch_device="cpu", low_cpu_mem_usage=True)
    known, wanted = ({*get_peft_model_state_dict(adapted, save_embedding_layers=embeddings)}
                     for embeddings in (True, False))
    if wrong := found - known | wanted - found:  # peft would leave them out
        raise ValueError(f"{len(wrong)} of its weights do not fit the model, as {min(wrong)}")
    _untie(model)
    try:
        merged: PreTrainedModel = adapted.merge_and_unload()
    except RuntimeError as error:  # a bias where there is none
        raise ValueError(error) from error
    for parameter in merged.parameters():  # and no buffers: rotary angles stay in float32
        parameter.data = parameter.data.to(dtype)
    return merged


def _check_adapter(settings: dict[str, Any]) -> None:
    """Refuse what peft would ignore, or begin by changing the weights of the base."""
    from peft import LoraConfig

    if (kind := settings.get("peft_type")) != "LORA":
        raise ValueError(f"it is no LoRA adapter but {kind}")
    known = {each.name for each in dataclasses.fields(LoraConfig)} - {"use_qalora"}
    for key, value in settings.items():
        if value and key not in known:
            raise ValueError(f"it says {key} = {str(value)[:60]}, which is not applied here")
    start = settings.get("init_lora_weights")
    if isinstance(start, str) and start not in KEEP_BASE:
        raise ValueError(f"init_lora_weights = {start} changes the weights of the base. Convert it "
                         "to a plain LoRA: peft's save_pretrained does with "
                         "path_initial_model_for_weight_conversion")


def _untie(model: PreTrainedModel) -> None:
    """Give embeddings and output matrix a weight each, where an adapter changes one of them."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    ends: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    adapted = [end for end in ends if isinstance(end, BaseTunerLayer)]
    if adapted and ends[0].weight is ends[1].weight:
        own = adapted[0].get_base_layer()
        own.weight = nn.Parameter(own.weight.detach().clone())
        model.config.tie_word_embeddings = False
