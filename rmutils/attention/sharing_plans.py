"""Which heads share: those whose attention maps are alike, or heads drawn for comparison.

Taniguchi and others (undated), section 3.1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor
from transformers import PreTrainedModel

from rmutils.attention.share_attention import Sharing, retention
from rmutils.errors import UserError
from rmutils.models.attention import using

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
