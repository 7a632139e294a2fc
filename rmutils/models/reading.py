"""From files, in a folder, in the hub's cache or in a GGUF file, to a model and its tokenizer."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rmutils.core.errors import UserError
from rmutils.core.files import plain, read_text
from rmutils.core.validation import parse_json
from rmutils.models.hub import offline

TOKENIZERS = "tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json"
"""Files of which a model's folder needs one: its vocabulary."""


LARGEST = {
    "num_hidden_layers": 1024, "num_attention_heads": 4096, "num_key_value_heads": 4096,
    "head_dim": 2**16, "hidden_size": 2**20, "intermediate_size": 2**24, "vocab_size": 2**24}
"""Settings by name, and the largest values that are read. Beyond them a file is damaged: no model
comes near, and transformers would build it for hours before it misses the weights."""
PACKED = 16
"""More weights than this in a number of a file are not held by any kind of quantization."""


GGUF_NAMES = {
    "block_count": "num_hidden_layers", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim"}
"""What a GGUF file calls them, after the name of its architecture."""


def _at(name: str) -> dict[str, str]:
    """Return the arguments of `from_pretrained` for a folder or `org/model@revision`."""
    hub, _, revision = name.partition("@")
    found = {"pretrained_model_name_or_path": hub, "revision": revision}
    return found if revision and not Path(name).is_dir() else {
        "pretrained_model_name_or_path": name}


def read_config(name: str):
    """Return the settings of a model in a folder or of the hub."""
    from transformers import AutoConfig

    with _load_errors(name):
        _check_folder(Path(name))
        return AutoConfig.from_pretrained(**_at(name), trust_remote_code=False)


def commit_of(name: str) -> str:
    """Return the commit of a model of the hub, by the folder in which the hub's cache keeps it."""
    from transformers.utils import cached_file

    hub, _, revision = name.partition("@")
    with _load_errors(name):
        return Path(cached_file(hub, "config.json", revision=revision or None)).parent.name


def read_gguf(path: Path, dtype: torch.dtype):
    """Return the model and the tokenizer of a GGUF file."""
    with _load_errors(str(path)):
        return unpack(plain(path), dtype)


def read_folder(name: str, dtype: torch.dtype):
    """Return the model and the tokenizer of a folder or of the hub.

    Raises
    ------
    UserError
        They are not there, incomplete or damaged.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _load_errors(name):
        _check_folder(Path(name))
        if Path(name).is_dir() and not any(any(Path(name).glob(one)) for one in TOKENIZERS):
            raise FileNotFoundError("the folder has no tokenizer. Copy tokenizer.json and "
                                    "tokenizer_config.json from the model that it was made from")
        _check_weights(Path(name))
        model, info = AutoModelForCausalLM.from_pretrained(
            **_at(name), dtype=dtype, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True, ignore_mismatched_sizes=True,
        )
        # transformers would go on with random numbers in their place.
        lacking = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
        if lacking:
            raise ValueError(f"{len(lacking)} of the weights that its config.json asks for are "
                             f"missing or of another shape, as {min(lacking)}")
        return model, AutoTokenizer.from_pretrained(**_at(name), trust_remote_code=False)


def _check_folder(folder: Path) -> None:
    """Refuse a model's folder with settings that no model has, or with pipes and the like in it."""
    if not folder.is_dir():
        return
    for file in folder.iterdir():
        if not file.is_dir():
            plain(file)
    parts = [parse_json(read_text(folder / "config.json"))]
    for part in parts:  # settings of one modality stand in an inner object
        _check_sizes(part)
        parts += [inner for inner in part.values() if isinstance(inner, dict)]


def _check_weights(folder: Path) -> None:
    """Refuse settings of a far larger model than the files hold, before memory is taken for it."""
    from safetensors import safe_open
    from transformers import AutoConfig, AutoModelForCausalLM

    held = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            held += sum(math.prod(file.get_slice(name).get_shape())
                        for name in file.offset_keys())
    if not held:
        return
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    asked = sum(weights.numel() for weights in model.parameters())
    if asked > PACKED * held:
        raise ValueError(f"its config.json asks for {asked:,} weights, and its files hold {held:,}")


def _check_sizes(settings: dict[str, Any]) -> None:
    for name, most in LARGEST.items():
        if isinstance(size := settings.get(name), int) and not 0 < size <= most:
            raise ValueError(f"{name} is {str(size)[:40]}, which no model has")


@contextmanager
def _load_errors(name: str) -> Iterator[None]:
    """transformers' errors about a model that cannot be had or read, as ours."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a damaged file transformers may tell in any way
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        here = Path(name).exists()
        if isinstance(error, ImportError) or here and isinstance(error, FileNotFoundError):
            raise UserError(f"{name} could not be loaded: {cause}.") from error
        if here:
            raise UserError(f"{name} could not be loaded: {cause}. Its files are damaged or "
                            "incomplete, or transformers knows no language model of its kind."
                            ) from error
        cause = "HF_HUB_OFFLINE is set" if offline() else cause
        raise UserError(
            f"{name} could not be loaded: {cause}. If it is on the hub, then with a network and, "
            f"for a gated model, a token (`hf auth login`): `hf download "
            f"{name.replace('@', ' --revision ')}`."
        ) from error


def unpack(path: Path, dtype: torch.dtype):
    """The model of a GGUF file, with whole weights, and its tokenizer.

    Raises
    ------
    Exception
        It is damaged, or no file of a causal language model.
    """
    import gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.integrations.gguf import read_gguf_metadata

    # redirect_stderr: a bar that no setting switches off
    with _read_once(), redirect_stderr(io.StringIO()):
        fields = gguf.GGUFReader(str(path)).fields
        _check_sizes({GGUF_NAMES[end]: field.contents() for name, field in fields.items()
                      if (end := name.partition(".")[2]) in GGUF_NAMES})
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
