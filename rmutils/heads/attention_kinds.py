"""What heads look at on any text: the kind of token that gets most of their attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from rmutils.attention.watching import Floats, watch
from rmutils.core.errors import UserError
from rmutils.core.validation import checked
from rmutils.models import LanguageModel

KINDS = ("sink", "itself", "previous", "copy", "induction", "other")  # the first that fits
AT_ONCE = 512  # tokens of a pass: it bounds the memory
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Looks:
    """Where heads look at each position but the first and the last, (layers, heads, N - 2)."""

    ids: tuple[int, ...]
    layers: tuple[int, ...]  # that were watched
    at: Ints  # the token with the highest attention
    weight: Floats  # its attention
    distance: Floats  # tokens back, weighted by attention
    entropy: Floats  # of the attention, in nats

    @property
    def kinds(self) -> Ints:
        """The place among `KINDS` of each token looked at."""
        return kinds_of(self.ids, self.at)


def kinds_of(ids: Sequence[int], at: Ints) -> Ints:
    """Return the place among `KINDS` of tokens looked at, (..., N - 2), in a text of N tokens."""
    text = np.asarray(ids)
    here = np.arange(1, len(text) - 1)
    return np.select([at == 0, at == here, at == here - 1, text[at] == text[here + 1],
                      text[at - 1] == text[here]], range(5), 5)


def copyable(ids: Sequence[int]) -> NDArray[np.bool_]:
    """Return at which positions, (N - 2,), a `copy` is possible."""
    return np.array([ids[i + 1] in ids[1 : i - 1] for i in range(1, len(ids) - 1)], bool)


@torch.inference_mode()
def looks(lm: LanguageModel, ids: Sequence[int], layers: tuple[int, ...] | None = None) -> Looks:
    """Read a text and return where the heads of some layers look, by default of all."""
    parts, cache = list[tuple[Tensor, ...]](), None
    with watch(lm, "weights", layers, rows=None) as seen:
        for start in range(0, len(ids), AT_ONCE):
            cache = lm.model.base_model(
                torch.tensor([ids[start : start + AT_ONCE]], device=lm.model.device),
                past_key_values=cache, use_cache=True).past_key_values
            parts.append(_summed_up(seen.weights.pop()[0], start))
    found: list[Any] = [torch.cat(rows, -1)[..., 1:-1].numpy() for rows in zip(*parts, strict=True)]
    return Looks(tuple(ids), seen.layers, *found)


def _summed_up(rows: Tensor, start: int) -> tuple[Tensor, ...]:
    """The last four fields of `Looks` from (layers, heads, rows, keys)."""
    count, keys = rows.shape[-2:]
    first = start + count - keys  # where a window begins, if all layers have one
    weight, at = rows.max(-1)
    here = torch.arange(start, start + count)
    places = torch.arange(first, first + keys)
    back = (here[:, None] - places).clamp(min=0).float()
    return at + first, weight, (rows * back).sum(-1), torch.special.entr(rows).sum(-1)


@checked
def attention_kinds(lm: LanguageModel, text: str) -> pd.DataFrame:
    """Say what each head looks at while a text is read.

    At each position but the first and the last, the token with the highest attention is of one
    kind, the first of these that fits: `sink` (the first token of the text), `itself`, `previous`,
    `copy` (it is the token that comes next, as when a retrieval head copies), `induction` (the
    token before it is the present one), `other`.

    Parameters
    ----------
    lm : LanguageModel
    text : str
        It is read as it is, without the chat template.

    Returns
    -------
    DataFrame
        A row per head: `layer`, `head`, the share of positions of each kind, `distance` (mean
        tokens back, weighted by attention) and `entropy` (mean, in nats).

    Raises
    ------
    UserError
        The text has fewer than three tokens, or more than the model's window.

    Examples
    --------
    >>> from rmutils import attention_kinds, load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> text = "The key is in the jar. The map is in the box. The key is in the jar."
    >>> kinds = attention_kinds(lm, text)
    >>> kinds.columns[2:].to_list()
    ['sink', 'itself', 'previous', 'copy', 'induction', 'other', 'distance', 'entropy']
    >>> best = kinds.sort_values("copy").iloc[-1]  # the head that copies most
    >>> print(f"{best['layer']:.0f}-{best['head']:.0f}: {best['copy']:.2f}")
    3-11: 0.23
    """
    ids = lm.encode(text, begin=True)
    if not 3 <= len(ids) <= lm.window:
        raise UserError(f"text: it has {len(ids)} tokens. Give 3 to {lm.window}, the window of "
                        f"{lm.name}.")
    found = looks(lm, ids)
    shares = (found.kinds[..., None] == np.arange(len(KINDS))).mean(2).reshape(-1, len(KINDS))
    heads = [(layer, head) for layer in found.layers for head in range(lm.shape[1])]
    return pd.DataFrame(heads, columns=["layer", "head"]).join(
        pd.DataFrame(shares, columns=[*KINDS])).assign(
            distance=found.distance.mean(-1).ravel(), entropy=found.entropy.mean(-1).ravel())
