"""Models whose weights are packed into a GGUF file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path

import numpy as np
import torch


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
            dtype=dtype, attn_implementation="sdpa", trust_remote_code=False,
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
