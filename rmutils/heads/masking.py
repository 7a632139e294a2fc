"""The ablated model of section 3: heads chosen by a policy, masked for a while or for good."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from rmutils import __version__
from rmutils.core.errors import UserError
from rmutils.core.validation import Heads, checked
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.changes import changed
from rmutils.models.families import family_of
from rmutils.models.head_blocks import attentions, before_each, projections
from rmutils.models.language_model import passages
from rmutils.models.loading import ModelRef

LAYER_MATCHED = "layer-matched-"
Policy = Literal["retrieval", "non-retrieval", "random", "layer-matched-non-retrieval",
                 "layer-matched-random"]
"""Which heads are masked: RetMask, Non-Retrieval-Mask or Random-Mask (section 4.1), and two
controls of ours, which mask as many heads in the same layers as RetMask does."""
MATCHED: Literal["layer-matched-non-retrieval"] = "layer-matched-non-retrieval"
"""The control that differs from RetMask in the heads alone, and not in their layers."""


@checked
def choose(scores: HeadScores, policy: Policy, *, tau: float | None = None,
           top_k: int | None = None, seed: int = 42) -> list[Head]:
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
    retrieval = scores.select(tau=tau, top_k=top_k)
    if policy == "retrieval":
        return retrieval
    excluded = retrieval if policy.endswith("non-retrieval") else ()
    if policy.startswith(LAYER_MATCHED):
        none = {*np.ndindex(*scores.shape)} - {*scores.heads}
        return draw_layer_matched(scores.shape, retrieval, exclude={*excluded, *none}, seed=seed)
    return scores.select_random(len(retrieval), exclude=excluded, seed=seed)


def draw_layer_matched(shape: tuple[int, int], like: Collection[Head], *,
                       exclude: Iterable[Head] = (), seed: int = 42) -> list[Head]:
    """Draw as many random heads from each layer as `like` has there."""
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


Ablation = Literal["zero", "mean", "query"]
"""What a masked head does instead of its work; see `mask_heads`."""
CALIBRATION = 16, 128  # Passages, and tokens of each, over which `mean` averages. Ours.


@checked
@contextmanager
def mask_heads(lm: LanguageModel, heads: Heads, how: Ablation = "zero") -> Iterator[None]:
    """Switch heads off: "we zero out the corresponding columns in the attention output projection
    matrix W_o" (section 3, Equation 2, as the authors' `mask_retrieval_head.py` does).

    The weights are changed in place. On exit, also after an exception, they are what they were
    before, bit for bit. Masks can be nested.

    Parameters
    ----------
    lm : LanguageModel
    heads : iterable of (layer, head)
        Both from 0; the heads are query heads. Texts such as `18-6` will do, too. None at all:
        nothing is masked.
    how : {"zero", "mean", "query"}
        `zero`, the paper's: a head writes nothing. `mean`: it always writes what it writes on
        average over plain text, the first passages of the model's haystack; a bias of W_o adds
        that. `query`, as in the repository of Wu et al.: its queries are zero, so that it gives
        each token that it may see (those before, within its window) the same attention and writes
        the mean of their values. For that, its rows of W_q are zeroed: a norm of each head by
        itself (Qwen3, Gemma 3) and rotary positions leave a zero as it is. A norm of all heads
        together (Olmo 3) would pass the change on to the other heads; there, the weights of that
        norm are zeroed.

    Raises
    ------
    UserError
        The model has no such head, or there is no such ablation; or, for `query`, the model
        computes queries, keys and values in one projection.

    Examples
    --------
    >>> import torch
    >>> from rmutils import load_model, mask_heads
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> ids = torch.tensor([lm.render("Where is the key?")])
    >>> before = lm.model(ids).logits
    >>> for how in ("zero", "mean", "query"):
    ...     with mask_heads(lm, [(0, 3), (2, 1)], how):
    ...         torch.equal(lm.model(ids).logits, before)
    False
    False
    False
    >>> torch.equal(lm.model(ids).logits, before)
    True
    """
    heads = sorted(lm.checked_heads(heads))
    parts = [part for head in heads for part in
             (_query_weights(lm, *head) if how == "query" else [_columns(lm, *head)])]
    biases = _mean_biases(lm, heads) if how == "mean" and heads else {}
    with ExitStack() as undo:
        if heads:
            undo.enter_context(changed(lm.model, "masked", heads, how))
        for projection, bias in biases.items():
            undo.callback(setattr, projection, "bias", projection.bias)
            projection.bias = nn.Parameter(bias, requires_grad=False)
        for part in parts:
            undo.callback(part.copy_, part.clone())
            part.zero_()
        yield


@contextmanager
def scaled_outputs(lm: LanguageModel, heads: Iterable[Head], factor: float) -> Iterator[None]:
    """Multiply what heads write by a factor; on exit the weights are as before, bit for bit."""
    heads = sorted(lm.checked_heads(heads))
    with changed(lm.model, "scaled", heads, factor), ExitStack() as undo:
        for part in [_columns(lm, *head) for head in heads]:
            undo.callback(part.copy_, part.clone())
            part.mul_(factor)
        yield


def _columns(lm: LanguageModel, layer: int, head: int) -> Tensor:
    """View of the columns of W_o that read a head's output."""
    weight: Tensor = projections(lm.model)[layer].weight.detach()
    size = weight.shape[1] // lm.shape[1]
    return weight[:, head * size : (head + 1) * size]


def _query_weights(lm: LanguageModel, layer: int, head: int) -> list[Tensor]:
    """Views of the weights without which a head's queries are zero."""
    last = family_of(lm.family).query_output(attentions(lm.model)[layer])
    return [weight.detach().view(lm.shape[1], -1, *weight.shape[1:])[head]
            for weight in last.parameters()]


def _mean_biases(lm: LanguageModel, heads: Iterable[Head]) -> dict[nn.Linear, Tensor]:
    """Return the biases of each layer's W_o that write what the heads write on average."""
    biases: dict[nn.Linear, Tensor] = {}
    texts, known = passages(lm, *CALIBRATION)

    def take(layer: int, module: nn.Linear, inputs: tuple[Tensor]) -> None:
        means[layer] = inputs[0][:, known:].double().mean((0, 1))  # (heads x size)

    means: dict[int, Tensor] = {}
    layers = {layer: projections(lm.model)[layer] for layer, _ in heads}
    with before_each(layers, take), torch.no_grad():
        lm.model.base_model(torch.tensor(texts, device=lm.model.device), use_cache=False)
    for layer, head in heads:
        projection, columns = layers[layer], _columns(lm, layer, head)
        added = columns.double() @ means[layer].view(lm.shape[1], -1)[head]
        before = biases.get(projection, 0 if projection.bias is None else projection.bias.detach())
        biases[projection] = before + added
    return {projection: bias.to(projection.weight.dtype) for projection, bias in biases.items()}


RECORD = "masked_heads.json"


def check_free(folder: Path | str) -> Path:
    """Return the absolute path of a folder that can be written without touching anything."""
    path = Path(folder).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder. Choose another one, or "
                        f"remove it.")
    return path


@checked
def export_masked(lm: LanguageModel | str | Path, heads: Heads, folder: Path | str,
                  how: Ablation = "zero") -> Path:
    """Write the ablated model pi_theta' (section 3) as an ordinary checkpoint.

    The folder has configuration, weights (safetensors), tokenizer, chat template and generation
    settings, so that `load_model`, transformers and vLLM load it like any other model, and
    `masked_heads.json`: name and identity of the model, its masked heads and how they are masked,
    the version of rmutils. The weights keep the precision of `lm`. Nothing is visible under the
    folder's name before all is written.

    The biases that `mean` needs are part of transformers' Llama, Qwen3, Olmo 3 and Gemma 3
    (`attention_bias`). vLLM 0.32 reads them for Llama; its Qwen3 drops that of W_o without a word.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, which is not changed, or the name or folder of one.
    heads : iterable of (layer, head)
        Switched off as by `mask_heads`.
    folder : Path or str
        It is created, with its parents.
    how : {"zero", "mean", "query"}
        As for `mask_heads`.

    Returns
    -------
    Path
        The folder, absolute.

    Raises
    ------
    UserError
        The folder exists and is not empty, it cannot be written, or the model has no such head; or,
        for `mean`, no place for the bias in a checkpoint (Mistral, Qwen2).

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
    record = {"model": lm.name, "identity": lm.state,
              "heads": [[int(layer), int(head)] for layer, head in heads], "how": how,
              "rmutils": __version__}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
            work = Path(scratch) / "model"  # the scratch folder itself is closed to other users
            with mask_heads(lm, heads, how):
                if how == "mean":
                    _save_with_biases(lm, work)
                else:
                    lm.model.save_pretrained(work)
            lm.tokenizer.save_pretrained(work)
            (work / RECORD).write_text(json.dumps(record, indent=1) + "\n")
            for weights in work.glob("*.safetensors"):  # so are these, as safetensors makes them
                weights.chmod((work / RECORD).stat().st_mode)
            os.replace(work, target)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{folder} could not be written: {error}.") from error
    return target


def _save_with_biases(lm: LanguageModel, folder: Path) -> None:
    """Write a model that may have biases which its configuration does not know of."""
    config, state = deepcopy(lm.model.config), lm.model.state_dict()
    with torch.device("meta"):
        known = type(lm.model)(config).state_dict()
        if added := state.keys() - known.keys():
            config.attention_bias = True
            known = type(lm.model)(config).state_dict()
    if not state.keys() <= known.keys():
        raise UserError(f"checkpoints of the family {lm.family} have no bias in W_o, in which the "
                        f"mean of a head could be written. Mask {lm.name} with mask_heads, or "
                        f"export it with another ablation: zero, query.")
    zeros = {name: torch.zeros(like.shape, dtype=lm.model.dtype)
             for name, like in known.items() if name not in state}
    lm.model.save_pretrained(folder, state_dict=state | zeros)
    if added:
        path = folder / "config.json"
        settings = json.loads(path.read_text()) | {"attention_bias": True}
        path.write_text(json.dumps(settings, indent=2) + "\n")
