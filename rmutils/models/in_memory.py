"""A model that is in memory already, as the rest of the project uses it."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.validation import HINTS, checked
from rmutils.models.changes import tensors_of
from rmutils.models.families import needs_eager
from rmutils.models.known_models import check_architecture
from rmutils.models.language_model import LanguageModel
from rmutils.models.rotary import keep_constant

STATE = ("padding", "truncation")  # what a tokenizer's description says of its last call
UNRELATED = {"_name_or_path", "transformers_version", "architectures", "dtype"}
"""Settings of a configuration that say nothing about what the model computes."""


@checked
def wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast,
         name: str = "") -> LanguageModel:
    """Make a `LanguageModel` of a Hugging Face model in memory.

    Its `identity` is a hash of all tensors, settings and tokenizer as they are now. Worker
    processes and commands load models by name, so they cannot take this one; write it to a folder
    for them (`export_masked(lm, [], folder)`).

    Parameters
    ----------
    model : PreTrainedModel
        A causal language model. It is switched to evaluation mode, and to eager attention where
        others would leave something out, as for Gemma 2; its weights stay as they are.
    tokenizer : PreTrainedTokenizerFast
    name : str
        What to call it. Default: the end of the name it was loaded by, "in memory".

    Raises
    ------
    UserError
        The model is built in a way that this project cannot examine, its weights are not loaded, or
        the tokenizer has more tokens than it.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> from rmutils import DetectConfig, success_rate, wrap
    >>> from rmutils.core.paths import SHIPPED_MODELS
    >>> folder = SHIPPED_MODELS / "tiny-llama"  # or a hub id, or whatever you have trained
    >>> model = AutoModelForCausalLM.from_pretrained(folder)
    >>> lm = wrap(model, AutoTokenizer.from_pretrained(folder))
    >>> lm
    LanguageModel(tiny-llama in memory: llama, 4 layers x 16 heads, window 4096, float32)
    >>> success_rate(lm, DetectConfig(lengths=(256,), depths=(0.5,), needles=2, max_new_tokens=16))
    1.0
    """
    config = model.config
    name = name or f"{Path(config._name_or_path or config.model_type).name} in memory"
    if any(tensor.is_meta for tensor in tensors_of(model).values()):
        raise UserError(f"the weights of {name} are not loaded: some are on the device 'meta'. "
                        "Load all of them before you wrap the model.")
    check_architecture(model, name)
    if model.get_output_embeddings() is None:
        raise UserError(f"{name} is a {type(model).__name__}, which has no output matrix and so "
                        "writes nothing. Load it with AutoModelForCausalLM.")
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise UserError(f"the tokenizer has {len(tokenizer)} tokens, and {name} knows {rows}. Give "
                        "the tokenizer that belongs to the model.")
    if needs_eager(model):
        model.set_attn_implementation("eager")
    keep_constant(model)
    dtype = str(model.dtype).removeprefix("torch.")
    return LanguageModel(model.eval(), tokenizer, name, config.model_type,
                         f"memory sha256:{content_hash(model, tokenizer)} {dtype}")


def content_hash(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> str:
    """Return a hash of tensors, configuration, generation settings and tokenizer."""
    tensors = tensors_of(model)
    with ThreadPoolExecutor() as threads:  # hashing lets go of Python's lock
        hashes = dict(zip(tensors, threads.map(_hash, tensors.values()), strict=True))
    generation = model.generation_config
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    return digest([
        hashes,
        {k: v for k, v in model.config.to_dict().items() if k not in UNRELATED},
        {k: v for k, v in (generation.to_dict() if generation else {}).items()
         if k not in UNRELATED},
        {k: v for k, v in described.items() if k not in STATE},
        tokenizer.chat_template,
        {k: str(v) for k, v in tokenizer.special_tokens_map.items()},
    ])


def _hash(tensor: Tensor) -> list[object]:
    whole = tensor.detach().cpu().contiguous().reshape(-1)
    return [str(tensor.dtype), list(tensor.shape),
            hashlib.sha256(whole.view(torch.uint8).numpy()).hexdigest()]


HINTS[PreTrainedModel] = ("Make it a LanguageModel first: "
                          "`lm = rmutils.wrap(model, tokenizer)`")
HINTS[LanguageModel] = ("Other processes load this model by name. Write it to a folder, and give "
                        "that: `rmutils.export_masked(lm, [], folder)`")
