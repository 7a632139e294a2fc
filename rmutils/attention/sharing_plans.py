"""Plans of sharing: which heads of a layer take the attention weights of which other head."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor
from transformers import PreTrainedModel

from rmutils.core.errors import UserError
from rmutils.core.files import read_text
from rmutils.core.validation import parse_json
from rmutils.corpora.world.document_questions import document_question_at
from rmutils.corpora.world.samples import DRAWS, TooShort
from rmutils.corpora.world.writing import Chronicle, Question
from rmutils.models import LanguageModel
from rmutils.models.changes import using
from rmutils.models.language_model import MARGIN, counter

CALIBRATION = -1  # seed of the questions for calibration; nobody is asked those of negative seeds
ANSWER_TOKENS = 32  # room for an answer, as in the data set `document_qa`


def calibration_prompts(lm: LanguageModel, count: int, tokens: int) -> list[list[int]]:
    """Return prompts of at most so many tokens, with room for an answer."""
    check_window(lm, tokens)
    asked = document_questions_at(lm, tokens, (0.5,), CALIBRATION)
    return [document_prompt(lm, question.prompt) for (question,) in itertools.islice(asked, count)]


def check_window(lm: LanguageModel, length: int) -> None:
    """Raise UserError if a length is over the window of a model."""
    if length > lm.window:
        raise UserError(f"length {length}: the window of {lm.name} has {lm.window} tokens.")


def document_questions_at(lm: LanguageModel, length: int, places: Sequence[float],
                          seed: int) -> Iterator[list[Question]]:
    """Yield questions without end, each with its document at all places, if there is room."""
    taken, count = len(document_prompt(lm, "")) + ANSWER_TOKENS + MARGIN, counter(lm)
    misfits = 0
    for i in itertools.count():
        try:
            moved = document_question_at(Chronicle(f"places {seed} {i}"), length - taken, count,
                                         places)
        except TooShort as error:
            misfits += 1
            if misfits == DRAWS:
                raise UserError(f"a question to documents does not fit into {length} tokens: take "
                                f"at least {taken + error.least}.") from error
            continue
        misfits = 0
        yield moved


def document_prompt(lm: LanguageModel, text: str) -> list[int]:
    """Token ids of a question, in the chat template where there is one."""
    return lm.render(text) if lm.chat else lm.encode(f"{text}\nAnswer:", begin=True)


Sharing = dict[int, dict[int, list[int]]]
"""Layer -> head whose weights are computed (an essential head) -> heads that they are given to."""
Distances = NDArray[np.floating[Any]]
STEPS = 1000  # thresholds are tried in steps of one thousandth
FURTHEST = 1.5
"""No two attention maps lie further apart by Equation 9, whose largest value is the root of two."""


def retention(sharing: Sharing) -> float:
    """Share of all heads whose weights are computed (the paper's retention rate), 0 to 1."""
    heads = sum(1 + len(others) for layer in sharing.values() for others in layer.values())
    return sum(map(len, sharing.values())) / heads if heads else 1.0


def retention_by_layer(sharing: Sharing) -> list[float]:
    """`retention` of each layer."""
    return [retention({i: layer}) for i, layer in sharing.items()]


def sharing_json(sharing: Sharing) -> str:
    """Return the file of section 4.1, a line per layer: `essential_heads` and `share_to`."""
    lines = [json.dumps(str(i)) + ": " + json.dumps({
        "essential_heads": list(layer),
        "share_to": {str(head): others for head, others in layer.items() if others}})
        for i, layer in sharing.items()]
    return "{" + ",\n ".join(lines) + "}"


def load_sharing(path: Path) -> Sharing:
    """Read a file of the form of `sharing_json`."""
    try:
        return {int(i): {int(head): [*map(int, layer["share_to"].get(str(head), []))]
                         for head in layer["essential_heads"]}
                for i, layer in parse_json(read_text(path)).items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise UserError(
            f'{path}: expected {{"layer": {{"essential_heads": [head, ...], "share_to": {{"head": '
            f"[head, ...]}}}}}} ({type(error).__name__}: {error}).") from error


def distances(maps: Tensor) -> Distances:
    """Equation 9: root of summed squared differences of two maps, over that of their length."""
    _, tokens, _ = maps.shape
    flat = maps.double().flatten(1)
    found: Distances = (torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")
                        / tokens ** 0.5).numpy()
    return found


def clusters(distance: Distances, threshold: float) -> dict[int, list[int]]:
    """Group heads by complete linkage: no two of a cluster lie further apart than allowed."""
    tree = linkage(squareform(distance, checks=False), method="complete")
    label = fcluster(tree, threshold, criterion="distance")
    found = {}
    for which in np.unique(label):
        members = np.flatnonzero(label == which)
        essential = int(members[distance[np.ix_(members, members)].sum(1).argmin()])
        found[essential] = [int(head) for head in members if head != essential]
    return dict(sorted(found.items()))


def mean_distances(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> Distances:
    """`distances` in each layer, averaged over prompts, (layers, heads, heads)."""
    found = []
    with using(model, "eager"), torch.inference_mode():
        for prompt in prompts:
            maps = model(torch.tensor([prompt], device=model.device), use_cache=False,
                         output_attentions=True).attentions
            found.append(np.stack([distances(of_layer[0].cpu()) for of_layer in maps]))
    total: Distances = sum(found[1:], start=found[0])
    return total / len(prompts)


def sharing_at(apart: Distances, threshold: float | Sequence[float]) -> Sharing:
    """Decide which heads share, by their distances `apart` (layers, heads, heads)."""
    each = [threshold] * len(apart) if isinstance(threshold, (int, float)) else list(threshold)
    if len(each) != len(apart):
        raise UserError(f"{len(each)} thresholds for {len(apart)} layers: give one, or one for "
                        f"each.")
    return {i: clusters(*layer) for i, layer in enumerate(zip(apart, each, strict=True))}


def in_layers(threshold: float, layers: Collection[int] | None, count: int) -> list[float]:
    """Thresholds layer by layer: the same in some layers (None: in all), 0 in the others."""
    return [threshold if layers is None or i in layers else 0.0 for i in range(count)]


def threshold_for(apart: Distances, kept: float, layers: Collection[int] | None = None) -> float:
    """Find the lowest threshold at which no more than this share of all heads is computed."""
    step = bisect_left(range(int(FURTHEST * STEPS)), -kept, key=lambda i: -retention(
        sharing_at(apart, in_layers(i / STEPS, layers, len(apart)))))
    return step / STEPS


def most_alike(distance: Distances, threshold: float) -> list[int]:
    """Return the heads of the (first) largest cluster; if all are single, the two nearest heads."""
    found = [sorted([head, *others]) for head, others in clusters(distance, threshold).items()]
    largest = max(found, key=len)
    if len(largest) > 1:
        return largest
    apart = distance + np.diag(np.full(len(distance), np.inf))
    return [int(head) for head in np.unravel_index(apart.argmin(), apart.shape)]


def shuffled(sharing: Sharing, seed: int) -> Sharing:
    """In each layer let as many heads share with as many others, but random ones."""
    draw, found = np.random.default_rng(seed), {}
    for i, layer in sharing.items():
        heads = iter(draw.permutation(len(layer) + sum(map(len, layer.values()))).tolist())
        found[i] = dict(sorted((next(heads), sorted(islice(heads, len(others))))
                               for others in layer.values()))
    return found


def even_sharing(layers: int, heads: int, computing: int) -> Sharing:
    """Let the first heads of every layer compute, the others share in turn: for timing."""
    return {i: {head: [*range(head + computing, heads, computing)] for head in range(computing)}
            for i in range(layers)}
