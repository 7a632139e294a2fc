"""The ablated model of section 3: heads chosen by a policy, masked for a while or in a checkpoint.

`mask_queries` is the ablation in the repository of Wu et al.: heads that look everywhere alike.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from rmutils import __version__
from rmutils.core.errors import UserError
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.families import family_of
from rmutils.models.loading import ModelRef

LAYER_MATCHED = "layer-matched-"
Policy = Literal["retrieval", "non-retrieval", "random", "layer-matched-non-retrieval",
                 "layer-matched-random"]
"""Which heads are masked: RetMask, Non-Retrieval-Mask or Random-Mask (section 4.1), and two
controls of ours, which mask as many heads in the same layers as RetMask does."""
MATCHED: Literal["layer-matched-non-retrieval"] = "layer-matched-non-retrieval"
"""The control that differs from RetMask in the heads alone, and not in their layers."""


def choose(
    scores: HeadScores, policy: Policy, *, tau: float | None = None, top_k: int | None = None,
    seed: int = 42,
) -> list[Head]:
    """Choose the heads to mask: the retrieval heads H_ret, or as many others to compare with.

    Parameters
    ----------
    scores : HeadScores
    policy : Policy
        `retrieval`: H_ret itself, the heads at or above `tau` (section 2) or the `top_k` with the
        highest scores (appendix B). `non-retrieval`: "`|H_ret|` randomly-selected non-retrieval
        heads". `random`: "`|H_ret|` heads randomly masked. Masked heads can be the retrieval heads"
        (both section 4.1). With `layer-matched-` before them: the same, but in the layers of the
        retrieval heads (see `draw_layer_matched`).
    tau, top_k
        What makes a retrieval head, one of the two (see `HeadScores.select`).
    seed : int
        Of the random draws. The paper is silent; 42 in the authors' `mask_retrieval_head.py`.

    Returns
    -------
    list of (layer, head)
        Retrieval heads with the highest first, random heads in the order of layer and head.

    Raises
    ------
    UserError
        There is no such policy, no head reaches `tau`, there are not `top_k` heads, or fewer
        non-retrieval heads than retrieval heads.

    Examples
    --------
    >>> import numpy as np
    >>> from rmutils import HeadScores, choose
    >>> scores = HeadScores(np.array([[[0.0, 0.5, 0.2], [0.1, 0.0, 0.0]]]), "a model")
    >>> choose(scores, "retrieval", tau=0.2)
    [(0, 1), (0, 2)]
    >>> choose(scores, "non-retrieval", tau=0.2, seed=1)
    [(1, 0), (1, 1)]
    """
    if policy not in get_args(Policy):
        raise UserError(f"no policy is called {policy!r}. Policies: {', '.join(get_args(Policy))}.")
    retrieval = scores.select(tau=tau, top_k=top_k)
    if policy == "retrieval":
        return retrieval
    excluded = retrieval if policy.endswith("non-retrieval") else ()
    if policy.startswith(LAYER_MATCHED):
        return draw_layer_matched(scores.shape, retrieval, exclude=excluded, seed=seed)
    return scores.select_random(len(retrieval), exclude=excluded, seed=seed)


def draw_layer_matched(
    shape: tuple[int, int], like: Collection[Head], *, exclude: Iterable[Head] = (), seed: int = 42,
) -> list[Head]:
    """Draw as many random heads from each layer as `like` has there.

    Retrieval heads are not spread over all layers. Heads drawn from anywhere differ from them in
    their layers too; these do not. Where a layer has too few heads to draw from, those that are
    missing come from the nearest layers that have some left, the lower one first, and
    `count_displaced` says how many do.

    Parameters
    ----------
    shape : (int, int)
        Layers and heads per layer of the model.
    like : collection of (layer, head)
    exclude : iterable of (layer, head)
        Heads that are not drawn.
    seed : int

    Returns
    -------
    list of (layer, head)
        In the order of layer and head.

    Raises
    ------
    UserError
        All layers together have too few heads to draw from.

    Examples
    --------
    >>> retrieval = [(2, 0), (2, 1), (3, 0)]
    >>> heads = draw_layer_matched((4, 3), retrieval, exclude=retrieval, seed=0)
    >>> [layer for layer, _ in heads]  # layer 2 has one other head
    [1, 2, 3]
    >>> count_displaced(heads, retrieval)
    1
    """
    rng, excluded = np.random.default_rng(seed), set(exclude)
    left = [[(layer, int(head)) for head in rng.permutation(shape[1])
             if (layer, head) not in excluded] for layer in range(shape[0])]
    if len(like) > sum(map(len, left)):
        raise UserError(f"{len(like)} random heads asked for, but only {sum(map(len, left))} to "
                        "draw from.")
    drawn, missing = [], []
    for layer, count in sorted(Counter(layer for layer, _ in like).items()):
        drawn += left[layer][:count]
        missing += [layer] * (count - len(left[layer]))
        del left[layer][:count]
    for layer in missing:
        near = min((i for i, heads in enumerate(left) if heads), key=lambda i: abs(i - layer))
        drawn.append(left[near].pop())
    return sorted(drawn)


def count_displaced(heads: Iterable[Head], like: Iterable[Head]) -> int:
    """Count the heads of `like` that have no counterpart of their own layer among `heads`."""
    return (Counter(layer for layer, _ in like) - Counter(layer for layer, _ in heads)).total()


@contextmanager
def mask_heads(lm: LanguageModel, heads: Iterable[Head]) -> Iterator[None]:
    """Switch heads off: "we zero out the corresponding columns in the attention output projection
    matrix W_o" (section 3, Equation 2, as the authors' `mask_retrieval_head.py` does).

    The weights are changed in place. On exit, also after an exception, they are what they were
    before, bit for bit. Masks can be nested.

    Parameters
    ----------
    lm : LanguageModel
    heads : iterable of (layer, head)
        Both from 0; the heads are query heads. None at all: nothing is masked.

    Raises
    ------
    UserError
        The model has no such head.

    Examples
    --------
    >>> import torch
    >>> from rmutils import load_model, mask_heads
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> ids = torch.tensor([lm.render("Where is the key?")])
    >>> before = lm.model(ids).logits
    >>> with mask_heads(lm, [(0, 3), (2, 1)]):
    ...     torch.equal(lm.model(ids).logits, before)
    False
    >>> torch.equal(lm.model(ids).logits, before)
    True
    """
    kept = {head: _columns(lm, *head).clone() for head in lm.checked_heads(heads)}
    try:
        for head in kept:
            _columns(lm, *head).zero_()
        yield
    finally:
        for head, old in kept.items():
            _columns(lm, *head).copy_(old)


def _columns(lm: LanguageModel, layer: int, head: int) -> torch.Tensor:
    """View of the columns of W_o that read a head's output."""
    layers: Any = lm.model.base_model.layers
    weight: Tensor = layers[layer].self_attn.o_proj.weight.detach()
    size = weight.shape[1] // lm.shape[1]
    return weight[:, head * size : (head + 1) * size]


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
    heads = sorted(lm.checked_heads(heads))
    layers: Any = lm.model.base_model.layers
    with ExitStack() as hooks:
        for layer, group in groupby(heads, key=itemgetter(0)):
            attention = layers[layer].self_attn
            last = family_of(lm.family).query_output(attention)
            zero = _zero([head for _, head in group], lm.shape[1])
            hooks.callback(last.register_forward_hook(zero).remove)
        yield


def _zero(heads: list[int], width: int) -> Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor]:
    """Hook that zeroes some of the `width` heads in a layer's queries."""
    def hook(module: nn.Module, inputs: tuple[Any, ...], queries: Tensor) -> Tensor:
        # (batch, tokens, heads x size)
        each = queries.reshape(*queries.shape[:2], width, -1)
        index = torch.tensor(heads, device=queries.device)
        return each.index_fill(2, index, 0).view_as(queries)

    return hook


RECORD = "masked_heads.json"


def check_free(folder: Path | str) -> Path:
    """Return the absolute path of a folder that can be written without touching anything.

    Raises
    ------
    UserError
        It exists and is not an empty folder.
    """
    path = Path(folder).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder. Choose another one, or "
                        f"remove it.")
    return path


def export_masked(lm: LanguageModel | str, heads: Iterable[Head], folder: Path | str) -> Path:
    """Write the ablated model pi_theta' (section 3) as an ordinary checkpoint.

    The folder has configuration, weights (safetensors), tokenizer, chat template and generation
    settings, so that `load_model`, transformers and vLLM load it like any other model, and
    `masked_heads.json`: name and identity of the model, its masked heads, the version of rmutils.
    The weights keep the precision of `lm`. Nothing is visible under the folder's name before all
    is written.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, which is not changed, or the name or folder of one.
    heads : iterable of (layer, head)
        Switched off as by `mask_heads`.
    folder : Path or str
        It is created, with its parents.

    Returns
    -------
    Path
        The folder, absolute.

    Raises
    ------
    UserError
        The folder exists and is not empty, it cannot be written, or the model has no such head.

    Examples
    --------
    >>> import tempfile
    >>> from rmutils import export_masked, load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     masked = load_model(str(export_masked(lm, [(0, 3)], f"{folder}/masked")), device="cpu")
    >>> weights = masked.model.model.layers[0].self_attn.o_proj.weight  # (hidden, heads x 32)
    >>> weights[:, 3 * 32 : 4 * 32].abs().max().item()
    0.0
    """
    lm = ModelRef(lm).load()
    target, heads = check_free(folder), sorted(lm.checked_heads(heads))
    record = {"model": lm.name, "identity": lm.identity,
              "heads": [[int(layer), int(head)] for layer, head in heads], "rmutils": __version__}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            work = Path(scratch) / "model"  # the scratch folder itself is closed to other users
            with mask_heads(lm, heads):
                lm.model.save_pretrained(work)
            lm.tokenizer.save_pretrained(work)
            (work / RECORD).write_text(json.dumps(record, indent=1) + "\n")
            for weights in work.glob("*.safetensors"):  # so are these, as safetensors makes them
                weights.chmod((work / RECORD).stat().st_mode)
            os.replace(work, target)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder} could not be written: {error}.") from error
    return target
