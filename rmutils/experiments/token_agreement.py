"""Do layers agree on tokens, and do the tokens stay the same over time?

Figures 3 and 4 of Taniguchi and others (undated), section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy.stats import rankdata
from torch import Tensor

from rmutils.attention.rope import layers_of
from rmutils.attention.select_attention import top_p
from rmutils.attention.sharing_plans import calibration_prompts
from rmutils.core.config import Config
from rmutils.core.results import Tables
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import using
from rmutils.stats import Interval, interval


class AgreementConfig(Config):
    """The prompts, and the layer whose choices over time are kept."""

    prompts: Annotated[int, Field(ge=1)] = 8
    """Questions to documents."""
    tokens: Annotated[int, Field(ge=1)] = 256
    """Most tokens of each."""
    layer: Annotated[int, Field(ge=0)] = 14
    """Figure 4 has layer 15 of 32."""
    p: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Share of the scores that chosen tokens have, as in Figure 4."""


def agreement(
    lm: LanguageModel, config: AgreementConfig, journal: Path | None = None
) -> Tables:
    """Score tokens in each layer, and choose tokens at each step. It takes no journal.

    Returns
    -------
    dict of str to DataFrame
        `tokens`, of the first prompt: `layer`, `token`, `score` (attention times the norm of the
        value, mean over heads and over the queries that see the token, largest of a layer 1).
        `layers`: `question`, `layer`, `other`, `correlation` (Spearman's, of these scores, without
        the first token, which all layers look at). `steps`, of the first prompt: `query`, `key` of
        each choice. `overlap`: `question`, `steps` (how far apart two queries are), `common` (mean
        share of the earlier one's tokens that the later one chooses, too), `kept` (mean share of
        visible tokens that a query chooses).
    """
    tables: dict[str, list[pd.DataFrame]] = {}
    for i, prompt in enumerate(calibration_prompts(lm, config.prompts, config.tokens)):
        scores, rows = _scores(lm, prompt, config.layer)
        chosen = [set(top_p(row[: q + 1], config.p).tolist()) for q, row in enumerate(rows)]
        found = {"layers": _correlations(scores), "overlap": _overlaps(chosen)}
        if i == 0:
            found["tokens"] = pd.DataFrame(
                [(layer, token, share) for layer, row in enumerate(scores / scores.max(
                    1, keepdims=True)) for token, share in enumerate(row)],
                columns=["layer", "token", "score"]).astype({"score": "float32"})
            found["steps"] = pd.DataFrame([(q, key) for q, keys in enumerate(chosen)
                                           for key in sorted(keys)],
                                          columns=["query", "key"]).astype("int16")
        for name, table in found.items():
            tables.setdefault(name, []).append(table.assign(question=i))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


@torch.inference_mode()
def _scores(
    lm: LanguageModel, prompt: Sequence[int], layer: int
) -> tuple[np.ndarray, Tensor]:
    """Scores of tokens by layer, (layers, tokens), and a layer's mean map, (tokens, tokens)."""
    with using(lm.model, "eager"), _values(lm) as values:
        maps = lm.model(torch.tensor([prompt], device=lm.model.device), use_cache=False,
                        output_attentions=True).attentions
    seen = torch.arange(len(prompt), 0, -1)
    rows = []
    for weights, value in zip(maps, values, strict=True):
        heads = weights[0].float().cpu()
        norms = value[0].float().cpu().view(len(prompt), -1, lm.model.config.head_dim).norm(dim=-1)
        norms = norms.T.repeat_interleave(len(heads) // norms.shape[1], 0)
        rows.append((heads.sum(1) * norms).mean(0) / seen)
    return torch.stack(rows).numpy(), maps[layer][0].float().mean(0).cpu()


@contextmanager
def _values(lm: LanguageModel) -> Iterator[list[Tensor]]:
    """Collect what the value projections of all layers return."""
    found: list[Tensor] = []
    hooks = [layer.self_attn.v_proj.register_forward_hook(
        lambda module, args, output: found.append(output)) for layer in layers_of(lm.model)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _correlations(scores: np.ndarray) -> pd.DataFrame:
    matrix = np.corrcoef(rankdata(scores[:, 1:], axis=1))
    return pd.DataFrame([(i, j, matrix[i, j]) for i in range(len(matrix)) for j in range(i)],
                        columns=["layer", "other", "correlation"])


def _overlaps(chosen: Sequence[set[int]]) -> pd.DataFrame:
    first = len(chosen) // 2  # from here on a query has many tokens to choose from
    kept = np.mean([len(chosen[q]) / (q + 1) for q in range(first, len(chosen))])
    rows = []
    for steps in (1, 4, 16, 64):
        shares = [len(chosen[q] & chosen[q - steps]) / len(chosen[q - steps])
                  for q in range(max(first, steps), len(chosen))]
        rows.append((steps, np.mean(shares), kept))
    return pd.DataFrame(rows, columns=["steps", "common", "kept"])


def early_and_later(layers: pd.DataFrame, first_later: int) -> dict[str, Interval]:
    """Mean correlation of two layers: of the early ones, of the later ones, and the difference.

    Parameters
    ----------
    layers : DataFrame
        Of `agreement`.
    first_later : int
        The first of the later layers.

    Returns
    -------
    dict of str to Interval
        `early`, `later`, `difference`; 95 % over prompts.
    """
    means = {name: part.groupby("question")["correlation"].mean() for name, part in (
        ("early", layers[layers["layer"] < first_later]),
        ("later", layers[layers["other"] >= first_later]))}
    return {name: interval(value) for name, value in {
        **means, "difference": means["later"] - means["early"]}.items()}
