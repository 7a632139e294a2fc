"""How alike the attention maps of heads are, and the maps of one layer to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch.nn.functional import adaptive_max_pool2d

from rmutils.attention.sharing_plans import mean_distances
from rmutils.config import Config
from rmutils.errors import UserError
from rmutils.evaluation.variants.kinds import Share
from rmutils.evaluation.variants.under import calibration
from rmutils.models import LanguageModel
from rmutils.models.attention import using

Count = Annotated[int, Field(ge=1)]


class LikenessConfig(Config):
    """The prompts, which are those that Share-Attention is calibrated on, and the layer shown."""

    prompts: Count = Share().prompts
    """Questions to documents over whose maps distances are averaged."""
    tokens: Count = Share().tokens
    """Most tokens of each."""
    layer: Annotated[int, Field(ge=0)] = 0
    """Whose maps of the first prompt are kept."""
    cells: Count = 96
    """Most rows and columns of a map that is kept; each cell is the highest weight of its part."""


def likeness(
    lm: LanguageModel, config: LikenessConfig, journal: Path | None = None
) -> dict[str, pd.DataFrame]:
    """Distances of all heads of a layer, and the maps of one layer. It takes no journal.

    Returns
    -------
    dict of str to DataFrame
        `distances`: `layer`, `head`, `other`, `distance` (Equation 9). `maps`: `head`, `row` (of
        queries), `column` (of keys), `weight`.
    """
    if config.layer >= lm.shape[0]:
        raise UserError(f"there is no layer {config.layer}: {lm.name} has 0 to {lm.shape[0] - 1}.")
    prompts = calibration(lm, Share(prompts=config.prompts, tokens=config.tokens))
    with using(lm.model, "eager"), torch.inference_mode():
        first = torch.tensor([prompts[0]], device=lm.model.device)
        maps = lm.model(first, use_cache=False, output_attentions=True).attentions[config.layer][0]
    small = adaptive_max_pool2d(maps.float().cpu(), min(config.cells, maps.shape[-1])).numpy()
    return {"distances": _long(mean_distances(lm.model, prompts),
                               ("layer", "head", "other"), "distance"),
            "maps": _long(small, ("head", "row", "column"), "weight")}


def _long(values: np.ndarray, axes: tuple[str, ...], name: str) -> pd.DataFrame:
    """A row per element, with its indices."""
    places = (index.ravel() for index in np.indices(values.shape))
    return pd.DataFrame(dict(zip(axes, places, strict=True)) | {name: values.ravel()})


def square(table: pd.DataFrame, name: str) -> np.ndarray:
    """The array that one of these tables came from, (n, m, m): its last column by the others."""
    axes = [column for column in table if column != name]
    shape = tuple(table[axes].max() + 1)
    return table.sort_values(axes)[name].to_numpy().reshape(shape)
