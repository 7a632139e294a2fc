"""From a GGUF file to a model: each of its tensors is used once, unpacked into its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from gguf import MODEL_ARCH_NAMES, TensorNameMap, get_tensor_name_map
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer

from rmutils.core.errors import Refused
from rmutils.models import gguf_file
from rmutils.models.gguf_file import GgufFile, PackedTensor
from rmutils.models.gguf_settings import DIVISORS, Architecture, settings_of
from rmutils.models.settings import check_sizes

EXPERTS = {"gate_up_proj": ("ffn_gate_exps", "ffn_up_exps"), "down_proj": ("ffn_down_exps",)}
"""Weights of all experts of a layer, and the tensors of which they consist."""


@dataclass(frozen=True)
class _Weights:
    """One of a model's weights; transformers indexes it when its turn comes."""

    parts: Sequence[PackedTensor]
    shape: torch.Size
    dtype: torch.dtype
    heads: int = 0
    shift: bool = False

    def __getitem__(self, everything: Any) -> Tensor:
        whole = [part.values(torch.float32 if self.shift else self.dtype) for part in self.parts]
        weights = whole[0] if len(whole) == 1 else torch.cat(whole, dim=1)
        if self.shift:
            weights -= 1
        if self.heads:
            weights = weights.unflatten(0, (self.heads, -1, 2)).transpose(1, 2)
        return weights.reshape(self.shape).to(self.dtype)

    def check(self) -> None:
        """Refuse parts that do not make up the shape; sizes of one are left out in a file."""
        first = self.parts[0].shape
        made = first if len(self.parts) == 1 else (
            first[0], sum(part.shape[1] for part in self.parts), *first[2:])
        if [size for size in made if size != 1] != [size for size in self.shape if size != 1]:
            raise Refused(f"{self.parts[0].name} has the shape {list(first)}, and its settings "
                             f"ask for {list(self.shape)}")


def load(path: Path, dtype: torch.dtype):
    """Return the model of a GGUF file, with whole weights, its tokenizer and its settings."""
    file = gguf_file.read(path)
    architecture, settings = settings_of(file)
    check_sizes(settings)
    config = CONFIG_MAPPING[architecture.model_type](**settings)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    weights = _weights(file, architecture, empty, dtype)
    model = type(empty).from_pretrained(
        None, config=config, state_dict=weights, dtype=dtype, trust_remote_code=False)
    model.config.name_or_path = model.name_or_path = str(path.parent)
    tokenizer = AutoTokenizer.from_pretrained(
        path.parent, gguf_file=path.name, tokenizer_type=architecture.tokenizer)
    # transformers 5.19 reads all of the tokenizer but this. Without it Gemma writes nonsense.
    if file.metadata.get("tokenizer.ggml.add_bos_token"):
        tokenizer.add_bos_token = True
    return model, tokenizer, settings


def _weights(file: GgufFile, architecture: Architecture, model: Any,
             dtype: torch.dtype) -> dict[str, _Weights]:
    """Return what each of the model's weights is made of."""
    config = model.config
    tied = model.all_tied_weights_keys if config.tie_word_embeddings else ()
    named = {name: _names(file, config.num_hidden_layers, name)
             for name in model.state_dict() if name not in tied}
    wanted = [one for names in named.values() for one in names]
    if missing := [one for one in wanted if one not in file.tensors]:
        raise Refused(f"{len(missing)} of its tensors are missing, as {missing[0]}")
    if surplus := [one for one in file.tensors if one not in {*wanted, *DIVISORS}]:
        raise Refused(f"{len(surplus)} of its tensors belong nowhere in a "
                         f"{architecture.model_type}, as {surplus[0]}")
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    found = {name: _Weights(
        [file.tensors[one] for one in names], model.state_dict()[name].shape, dtype,
        heads.get(name.split(".")[-2], 0) if architecture.paired_rows else 0,
        architecture.shifted_norms and name.endswith("norm.weight"))
        for name, names in named.items()}
    for weights in found.values():
        weights.check()
    return found


def _names(file: GgufFile, layers: int, name: str) -> list[str]:
    """Return the tensors of which one of a model's weights consists."""
    stem, _, end = name.rpartition(".")
    if end in EXPERTS:
        return [f"blk.{stem.split('.')[2]}.{part}.weight" for part in EXPERTS[end]]
    known = _known(file.metadata["general.architecture"], layers)
    return [f"{known.get_name(stem) or stem}.{end}"]


@cache
def _known(architecture: str, layers: int) -> TensorNameMap:
    return get_tensor_name_map(next(number for number, title in MODEL_ARCH_NAMES.items()
                                    if title == architecture), layers)
