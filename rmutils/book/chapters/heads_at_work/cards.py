"""A card for each head: what it looks at on ordinary text, and what it adds to the next token."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rmutils.attention.watching import Floats, watch
from rmutils.book.chapters.heads_at_work import experiment
from rmutils.book.chapters.heads_at_work.ordinary_texts import windows
from rmutils.book.experiments import real_models
from rmutils.core.experiment import Experiment, Plan, Run
from rmutils.core.journal import progress_bar
from rmutils.core.results import Artifact
from rmutils.heads.attention_kinds import KINDS, Looks, looks
from rmutils.heads.residual import contributions_version, read_back
from rmutils.heads.scores import HeadScores
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef

BEFORE = 10
"""Tokens of an example that are shown before the one that counts."""


@contextmanager
def _last_norm(model: Any) -> Iterator[list[Tensor]]:
    """Collect what the model's last norm multiplies each row by, (tokens, hidden size)."""
    found: list[Tensor] = []

    def look(module: Any, given: tuple[Tensor, ...], output: Tensor) -> None:
        before, after = given[0][0].float(), output[0].float()
        found.append(torch.where(before == 0, 0, after / before))

    hook = model.base_model.norm.register_forward_hook(look)
    try:
        yield found
    finally:
        hook.remove()


@torch.inference_mode()
def contributions(lm: LanguageModel, ids: Sequence[int]) -> tuple[Looks, Floats, Floats]:
    """Read a text: where all heads look, and what each adds to the next token's logit."""
    model: Any = lm.model
    with watch(lm, "outputs", None, rows=None) as wrote, _last_norm(model) as norms:
        seen = looks(lm, ids)
    matrix = model.get_output_embeddings().weight.float()
    factors = torch.cat(norms)[1:-1]
    outputs = torch.cat(wrote.outputs, 3)[0, :, :, 1:-1].to(factors.device)
    parts = []
    for rows in (matrix[list(ids[2:])], matrix.mean(0).expand(len(ids) - 2, -1)):
        parts.append(torch.stack([
            (read_back(model, layer, rows * factors, own) * own.transpose(0, 1)).sum(-1).T
            for layer, own in zip(wrote.layers, outputs, strict=True)]))
    right, mean = parts
    return seen, right.cpu().numpy(), (right - mean).cpu().numpy()


def head_cards(lm: LanguageModel, scores: HeadScores,
               config: experiment.WatchConfig) -> dict[str, pd.DataFrame]:
    """Watch all heads on all windows."""
    chosen = set(scores.select(tau=config.tau))
    heads = experiment.heads_of(lm.layers, scores, chosen)
    parts, about, examples = [], [], dict[tuple[int, str], tuple[Any, ...]]()
    every = [*windows(lm, config.tokens, config.windows)]
    with progress_bar(f"cards of {lm.name}", len(every), unit="windows") as advance:
        for text, window, ids in every:
            seen, right, added = contributions(lm, ids)
            about.append((text, window, len(ids) - 2))
            which = seen.kinds[..., None] == np.arange(len(KINDS))
            sums = (which * added[..., None]).sum(2)
            parts.append(heads[["layer", "head"]].assign(
                text=text, window=window,
                **{kind: which[..., i].sum(-1).ravel().astype("int16")
                   for i, kind in enumerate(KINDS)},
                distance=seen.distance.mean(-1).ravel(), entropy=seen.entropy.mean(-1).ravel(),
                right=right.sum(-1).ravel(),
                **{f"added_{kind}": sums[..., i].ravel() for i, kind in enumerate(KINDS)}))
            _keep_hardest(lm, examples, text, window, seen, added)
            advance(1)
    kept = pd.DataFrame(
        [(*heads.loc[number, ["layer", "head"]], text, *rest)
         for (number, text), rest in sorted(examples.items())],
        columns=["layer", "head", "text", "window", "position", "weight", "kind", "added",
                 "before", "seen", "here", "next"])
    return {"heads": heads, "kinds": pd.concat(parts, ignore_index=True), "examples": kept,
            "windows": pd.DataFrame(about, columns=["text", "window", "positions"])}


def _keep_hardest(lm: LanguageModel, examples: dict[tuple[int, str], tuple[Any, ...]],
                  kind_of_text: str, window: int, seen: Looks, added: Floats) -> None:
    """Keep where a head looks harder than in the windows before, at a token further back."""
    count = seen.weight.shape[-1]
    kinds, at, weights, sums = (table.reshape(-1, count) for table in (
        seen.kinds, seen.at, seen.weight, added))
    weights = np.where(kinds >= experiment.LOOKED, weights, -1.0)
    for number, i in enumerate(weights.argmax(1)):
        weight = float(weights[number, i])
        if weight <= (examples[number, kind_of_text][2] if (number, kind_of_text) in examples
                      else 0):
            continue
        here, looked = int(i) + 1, int(at[number, i])
        examples[number, kind_of_text] = (
            window, here, weight, KINDS[kinds[number, i]], float(sums[number, i]),
            *experiment.around(lm, seen.ids, here, looked, BEFORE))


def planned(plan: Plan) -> Iterator[Run]:
    """Yield the run of each model."""
    p = plan.content
    for model in p["models"]:
        yield Run(model, experiment.WatchConfig(detect=real_models.detection(), tau=p["tau"],
                                         tokens=p["tokens"], windows=p["windows"]))


def _inputs(run: Run) -> dict[str, str]:
    return experiment.inputs_of_watch(run) | contributions_version(ModelRef(run.model).family)


HEAD_CARDS = Experiment[Run, Artifact](
    name="head-cards", config=experiment.WatchConfig, plan="head_cards", planned=planned,
    keys=("model",), make=experiment.watching(head_cards), inputs=_inputs, notebook="heads_at_work",
    parameter="compute_cards")
