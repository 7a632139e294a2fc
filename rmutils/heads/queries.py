"""Heads made to look at everything alike: the ablation in the repository of Wu et al."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter

import torch
from torch import Tensor, nn

from rmutils.heads.masking import check_heads
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel


@contextmanager
def mask_queries(lm: LanguageModel, heads: Iterable[Head]) -> Iterator[None]:
    """Set the queries of heads to zero, so that they no longer choose where to look.

    A head then gives each token that it may see (those before, within its window) the same
    attention and goes on to write the mean of their values. The repository of Wu et al. ablates
    heads so; a head under `mask_heads`, the paper's ablation, writes nothing at all.

    The queries are zeroed behind their norm where it takes all heads together, as in Olmo 3: zeros
    in front of it would change the other heads too. A norm of each head by itself (Qwen3, Gemma 3)
    and rotary positions leave a zero as it is. On exit, also after an exception, the model is what
    it was before. Masks can be nested.

    Parameters
    ----------
    lm : LanguageModel
    heads : iterable of (layer, head)
        Both from 0; the heads are query heads. None at all: nothing is masked.

    Raises
    ------
    UserError
        The model has no such head.
    """
    heads = sorted(check_heads(lm, heads))
    with ExitStack() as hooks:
        for layer, group in groupby(heads, key=itemgetter(0)):
            attention = lm.model.base_model.layers[layer].self_attn
            last, norm = attention.q_proj, getattr(attention, "q_norm", None)
            if norm is not None and norm.weight.numel() == last.out_features:
                last = norm
            zero = _zero([head for _, head in group], lm.shape[1])
            hooks.callback(last.register_forward_hook(zero).remove)
        yield


def _zero(heads: list[int], width: int) -> Callable[[nn.Module, tuple, Tensor], Tensor]:
    """Hook that zeroes some of the `width` heads in a layer's queries."""
    def hook(module: nn.Module, inputs: tuple, queries: Tensor) -> Tensor:
        # (batch, tokens, heads x size)
        each = queries.reshape(*queries.shape[:2], width, -1)
        index = torch.tensor(heads, device=queries.device)
        return each.index_fill(2, index, 0).view_as(queries)

    return hook
