"""Share-Attention: heads of a layer that look alike are given the weights of one of them.

Taniguchi and others (undated), section 4.1. Which heads share is found beforehand
(`rmutils.attention.share_attention`); at run time queries and keys of the other heads are not
compared at all. Each head keeps its own values.

Which heads share: those whose attention maps are alike, or heads drawn for comparison.

Taniguchi and others (undated), section 3.1.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor, nn
from transformers import PreTrainedModel

from rmutils.attention.capture import ArgMaxRecorder, newest_products, recording_by_layer
from rmutils.core.errors import UserError
from rmutils.core.files import parse_json
from rmutils.models.engine.implementations import attached, using

NAME = "share_attention"
Sharing = dict[int, dict[int, list[int]]]
"""Layer -> head that is computed (an essential head) -> heads that its weights are given to."""


def head_counts(sharing: Sharing) -> tuple[int, int]:
    """Essential heads, and all heads."""
    return (sum(map(len, sharing.values())),
            sum(1 + len(others) for layer in sharing.values() for others in layer.values()))


def retention(sharing: Sharing) -> float:
    """Share of all heads whose weights are computed (the paper's retention rate), 0 to 1."""
    essential, heads = head_counts(sharing)
    return essential / heads


def multiply_adds(
    sharing: Sharing, queries: int, keys: int, head_size: int
) -> tuple[int, int]:
    """Multiply-adds of attention with sharing, and without: weights of essential heads, then the
    sum of values of every head."""
    each = queries * keys * head_size
    essential, heads = head_counts(sharing)
    return (essential + heads) * each, 2 * heads * each


def sharing_json(sharing: Sharing) -> str:
    """The file of section 4.1, a line per layer: `essential_heads` and `share_to`."""
    lines = [json.dumps(str(i)) + ": " + json.dumps({
        "essential_heads": list(layer),
        "share_to": {str(head): others for head, others in layer.items() if others}})
        for i, layer in sharing.items()]
    return "{" + ",\n ".join(lines) + "}"


def save_sharing(sharing: Sharing, path: Path) -> None:
    """Write `sharing_json` to a file."""
    path.write_text(sharing_json(sharing) + "\n")


def load_sharing(path: Path) -> Sharing:
    """Read what `save_sharing` wrote.

    Raises
    ------
    UserError
        The file cannot be read, or is of another form.
    """
    try:
        return {int(i): {int(head): [*map(int, layer["share_to"].get(str(head), []))]
                         for head in layer["essential_heads"]}
                for i, layer in parse_json(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise UserError(
            f'{path}: expected {{"layer": {{"essential_heads": [head, ...], "share_to": {{"head": '
            f"[head, ...]}}}}}} ({type(error).__name__}: {error}).") from error


@dataclass(frozen=True)
class Shared:
    """Of one layer.

    Attributes
    ----------
    essential : Tensor
        (essential heads,): their numbers.
    source : Tensor
        (heads,): place in `essential` of the head whose weights each head takes.
    """

    essential: Tensor
    source: Tensor


def share_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    given: Shared,
    recorder: ArgMaxRecorder | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention whose weights are computed for essential heads only.

    Shapes and recorder are those of `rmutils.attention.capture`. A head looks where the
    head looks whose weights it takes.
    """
    group = query.shape[1] // key.shape[1]
    essential, keys = query[:, given.essential], key[:, given.essential // group]
    if recorder is not None:
        newest = newest_products(essential, keys, attention_mask, scaling).argmax(-1).flatten(1)
        recorder.record(module.layer_idx, newest[:, given.source])
    products = essential @ keys.transpose(2, 3) * scaling
    if attention_mask is None and query.shape[2] > 1:
        attention_mask = torch.ones(products.shape[2:], dtype=torch.bool,
                                    device=query.device).tril()
    if attention_mask is not None:
        products = products.masked_fill(~attention_mask, torch.finfo(products.dtype).min)
    weights = products.softmax(-1, dtype=torch.float32).to(value.dtype)
    output = torch.empty_like(query)
    for head, place in enumerate(given.source.tolist()):
        torch.matmul(weights[:, place], value[:, head // group], out=output[:, head])
    return output.transpose(1, 2), None


@contextmanager
def sharing_heads(model: PreTrainedModel, sharing: Sharing) -> Iterator[None]:
    """Switch a model to Share-Attention; on exit its own comes back, also after an error.

    Layers in which every head is essential keep the attention that they have.

    Raises
    ------
    UserError
        The sharing is that of a model with other layers or heads.
    """
    layers, count = model.config.num_hidden_layers, model.config.num_attention_heads
    shared = {}
    for i, layer in sharing.items():
        source = {head: place for place, (essential, others) in enumerate(layer.items())
                  for head in (essential, *others)}
        if i >= layers or sorted(source) != list(range(count)):
            raise UserError(f"layer {i} of the sharing is not one of this model, which has "
                            f"{layers} layers of {count} heads. Find it anew.")
        if len(layer) < count:
            shared[i] = Shared(torch.tensor(list(layer)),
                               torch.tensor([source[head] for head in range(count)]))
    with attached(model, NAME, shared):
        yield


recording_by_layer(NAME, share_attention)


STEPS = 1000
"""Thresholds are tried in steps of one thousandth."""
FURTHEST = 1.5
"""No two attention maps lie further apart by Equation 9, whose largest value is the root of two."""


def distances(maps: Tensor) -> np.ndarray:
    """Equation 9: root of the summed squared differences of two maps, over that of their length.

    Parameters
    ----------
    maps : Tensor
        (heads, tokens, tokens): attention weights.

    Returns
    -------
    ndarray
        (heads, heads).
    """
    flat = maps.double().flatten(1)
    return (torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
            / maps.shape[-1] ** 0.5).numpy()


def clusters(distance: np.ndarray, threshold: float) -> dict[int, list[int]]:
    """Heads that share, by complete linkage: no two of a cluster lie further apart than allowed.

    The paper names the threshold and no way of clustering; this one is ours.

    Parameters
    ----------
    distance : ndarray
        (heads, heads).
    threshold : float

    Returns
    -------
    dict of int to list of int
        Essential head, the one nearest to all of its cluster -> the others of it.
    """
    tree = linkage(squareform(distance, checks=False), method="complete")
    label = fcluster(tree, threshold, criterion="distance")
    found = {}
    for which in np.unique(label):
        members = np.flatnonzero(label == which)
        essential = int(members[distance[np.ix_(members, members)].sum(1).argmin()])
        found[essential] = [int(head) for head in members if head != essential]
    return dict(sorted(found.items()))


def mean_distances(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> np.ndarray:
    """`distances` in each layer, averaged over prompts, (layers, heads, heads).

    Parameters
    ----------
    prompts : sequence of sequence of int
        Token ids. Memory grows with the square of their length.
    """
    total = 0
    with using(model, "eager"), torch.inference_mode():
        for prompt in prompts:
            maps = model(torch.tensor([prompt], device=model.device), use_cache=False,
                         output_attentions=True).attentions
            total = total + np.stack([distances(of_layer[0].cpu()) for of_layer in maps])
    return total / len(prompts)


def sharing_at(apart: np.ndarray, threshold: float | Sequence[float]) -> Sharing:
    """Which heads share.

    Parameters
    ----------
    apart : ndarray
        (layers, heads, heads), as from `mean_distances`.
    threshold : float or sequence of float
        Largest distance within a cluster, of all layers or layer by layer (the paper shares less in
        first and last layers).
    """
    each = [threshold] * len(apart) if isinstance(threshold, (int, float)) else list(threshold)
    if len(each) != len(apart):
        raise UserError(f"{len(each)} thresholds for {len(apart)} layers: give one, or one for "
                        f"each.")
    return {i: clusters(*layer) for i, layer in enumerate(zip(apart, each, strict=True))}


def find_sharing(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], threshold: float | Sequence[float]
) -> Sharing:
    """Which heads share, from the maps of some prompts. See `mean_distances`, `sharing_at`."""
    return sharing_at(mean_distances(model, prompts), threshold)


def threshold_for(apart: np.ndarray, kept: float) -> float:
    """The lowest threshold at which no more than this share of all heads is computed.

    The paper names retention rates, but not all of the thresholds that they come from. Where even
    one head for each layer is more, it is the largest threshold.

    Parameters
    ----------
    apart : ndarray
        (layers, heads, heads), as from `mean_distances`.
    kept : float
        Retention rate, 0 to 1.
    """
    step = bisect_left(range(int(FURTHEST * STEPS)), -kept,
                       key=lambda i: -retention(sharing_at(apart, i / STEPS)))
    return step / STEPS


def most_alike(distance: np.ndarray, threshold: float) -> list[int]:
    """Heads of the largest cluster, the first of those of the same size; where each head is a
    cluster of its own, the two that lie nearest to each other."""
    found = [sorted([head, *others]) for head, others in clusters(distance, threshold).items()]
    largest = max(found, key=len)
    if len(largest) > 1:
        return largest
    apart = distance + np.diag(np.full(len(distance), np.inf))
    return [int(head) for head in np.unravel_index(apart.argmin(), apart.shape)]


def by_layer(sharing: Sharing) -> list[float]:
    """Share of the heads of each layer that are computed."""
    return [retention({i: layer}) for i, layer in sharing.items()]


def shuffled(sharing: Sharing, seed: int) -> Sharing:
    """In each layer as many heads share with as many others, but which ones is drawn."""
    draw, found = np.random.default_rng(seed), {}
    for i, layer in sharing.items():
        heads = iter(draw.permutation(len(layer) + sum(map(len, layer.values()))).tolist())
        found[i] = dict(sorted((next(heads), sorted(islice(heads, len(others))))
                               for others in layer.values()))
    return found
