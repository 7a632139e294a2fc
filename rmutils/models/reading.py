"""From files, in a folder, in the hub's cache or in a GGUF file, to a model and its tokenizer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rmutils.core.errors import Refused, UserError
from rmutils.core.files import plain, read_text
from rmutils.core.validation import parse_json
from rmutils.models.hub import no_network
from rmutils.models.rotary import check_angles, check_rules
from rmutils.models.settings import check_finite, check_settings, check_sizes

TOKENIZERS = "tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json"
"""Files of which a model's folder needs one: its vocabulary."""


STORED = ".rotary_emb.inv_freq"
"""Ends of names of what old files hold besides weights: it is computed from the settings."""
PACKED = 16  # more weights than this in a number of a file are not held by any kind of quantization
LONGEST = 300  # characters of another library's message that are shown


def _at(name: str) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` for a folder or `org/model@revision`."""
    if Path(name).is_dir():
        return {"pretrained_model_name_or_path": name}
    hub, _, revision = name.partition("@")
    found = {"pretrained_model_name_or_path": hub, "local_files_only": bool(no_network())}
    return found | {"revision": revision} if revision else found


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
        return Path(cached_file(hub, "config.json", revision=revision or None,
                                local_files_only=bool(no_network()))).parent.name


def read_gguf(path: Path, dtype: torch.dtype):
    """Return the model and the tokenizer of a GGUF file."""
    from rmutils.models import gguf_model

    with _load_errors(str(path)):
        model, tokenizer, settings = gguf_model.load(plain(path), dtype)
        check_angles(model, settings)
        check_finite(model)
        return model, tokenizer


def read_folder(name: str, dtype: torch.dtype):
    """Return the model and the tokenizer of a folder or of the hub."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

    with _load_errors(name):
        _check_folder(Path(name))
        if Path(name).is_dir() and not any(any(Path(name).glob(one)) for one in TOKENIZERS):
            raise FileNotFoundError("the folder has no tokenizer. Copy tokenizer.json and "
                                    "tokenizer_config.json from the model that it was made from")
        settings = PreTrainedConfig.get_config_dict(**_at(name))[0]
        settings = settings.get("text_config") or settings
        check_rules(settings)
        config = AutoConfig.from_pretrained(**_at(name), trust_remote_code=False)
        check_settings(settings, config.get_text_config())
        _check_weights(Path(name), config)
        model, info = AutoModelForCausalLM.from_pretrained(
            **_at(name), dtype=dtype, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True, ignore_mismatched_sizes=True,
        )
        # transformers would go on with random numbers in their place.
        lacking = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
        if lacking:
            raise Refused(f"{len(lacking)} of the weights that its config.json asks for are "
                             f"missing or of another shape, as {min(lacking)}")
        if surplus := {name for name in info["unexpected_keys"] if not name.endswith(STORED)}:
            raise Refused(f"{len(surplus)} of its weights belong nowhere in a model as its "
                             f"config.json describes it, as {min(surplus)}")
        check_angles(model, settings)
        check_finite(model)
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
        check_sizes(part)
        parts += [inner for inner in part.values() if isinstance(inner, dict)]


def _check_weights(folder: Path, config: Any) -> None:
    """Refuse settings of a far larger model than the files hold, before memory is taken for it."""
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM

    held = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            held += sum(math.prod(file.get_slice(name).get_shape()) for name in file.offset_keys())
    if not held:
        return
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    asked = sum(weights.numel() for weights in model.parameters())
    if asked > PACKED * held:
        raise Refused(f"its config.json asks for {asked:,} weights, and its files hold {held:,}")


@contextmanager
def _load_errors(name: str) -> Iterator[None]:
    """transformers' errors about a model that cannot be had or read, as ours."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a damaged file transformers may tell in any way
        cause = " ".join(str(error).split())[:LONGEST].rstrip(".") or type(error).__name__
        here = Path(name).exists()
        if isinstance(error, Refused | ImportError) or (
                here and isinstance(error, FileNotFoundError)):
            raise UserError(f"{name} could not be loaded: {cause}.") from error
        if here:
            raise UserError(f"{name} could not be loaded: {cause}. Its files are damaged or "
                            "incomplete, or transformers knows no language model of its kind."
                            ) from error
        cause = no_network() or cause
        raise UserError(
            f"{name} could not be loaded: {cause}. If it is on the hub, then with a network and, "
            f"for a gated model, a token (`hf auth login`): `hf download "
            f"{name.replace('@', ' --revision ')}`."
        ) from error
