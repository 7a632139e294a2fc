"""Hybrids, whose layers keep a state of the text: it is read whole, one text at a time."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel


def steps(model: PreTrainedModel, ids: Sequence[int]) -> Generator[Tensor, int]:
    """Read a text, then token by token what is sent; yield the logits of the next token,
    (vocabulary,)."""
    cache = None
    while True:
        read = model(input_ids=torch.tensor([[*ids]], device=model.device), past_key_values=cache,
                     use_cache=True)
        cache = read.past_key_values
        ids = [(yield read.logits[0, -1])]
