"""One setting of a method, tried in one layer after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from rmutils.config import Config
from rmutils.errors import UserError
from rmutils.evaluation.variants.curves import PLAIN
from rmutils.evaluation.variants.kinds import Plain, Select, Share, Variant
from rmutils.evaluation.variants.measure import VariantConfig, measure
from rmutils.evaluation.variants.questions import DocumentsConfig
from rmutils.heads.detection import DetectConfig, even_depths
from rmutils.models import LanguageModel


class LayersConfig(Config):
    """The setting, the layers, and what is asked."""

    variant: Annotated[Share | Select, Field(discriminator="kind")] = Share(threshold=0.9)
    """Share-Attention: heads share in that layer only. Taniguchi et al., section 5: "th = 0.9", "an
    extremely high value", in one layer, and 0 in the others. Select-Attention: that layer filters.
    """
    layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """None: all, but for Select-Attention the last, behind which no layer is left."""
    needles: DetectConfig | None = DetectConfig(lengths=(256,), depths=even_depths(3), needles=6,
                                                max_new_tokens=24)
    """Needles in a haystack."""
    documents: DocumentsConfig | None = DocumentsConfig(lengths=(256,), places=even_depths(3),
                                                        questions=6)
    """Questions to documents."""


def in_layer(variant: Share | Select, layer: int, layers: int) -> Variant:
    """The variant with its setting in one of so many layers."""
    if isinstance(variant, Select):
        return variant.model_copy(update={"filter_layer": layer})
    each = tuple(variant.threshold if i == layer else 0.0 for i in range(layers))
    return variant.model_copy(update={"threshold": each})


def layers(
    lm: LanguageModel, config: LayersConfig, journal: Path | None = None
) -> dict[str, pd.DataFrame]:
    """`rmutils.evaluation.variants.measure` for the plain model and for each layer.

    Returns
    -------
    dict of str to DataFrame
        Its tables, with a column `variant`: the number of the layer, or `plain`.

    Raises
    ------
    UserError
        The model has no such layer.
    """
    count = lm.shape[0]
    tried = range(count - isinstance(config.variant, Select)) if config.layers is None else \
        config.layers
    if wrong := [i for i in tried if not 0 <= i < count]:
        raise UserError(f"{lm.name} has no layer {wrong[0]}: it has {count}, counted from 0.")
    variants = {PLAIN: Plain()} | {str(i): in_layer(config.variant, i, count) for i in tried}
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, variant in variants.items():
        asked = VariantConfig(variant=variant, needles=config.needles, documents=config.documents,
                              texts=None)
        of_layer = journal.with_name(f"{journal.name}.{name}") if journal else None
        for table, frame in measure(lm, asked, journal=of_layer).items():
            parts.setdefault(table, []).append(frame.assign(variant=name))
    return {table: pd.concat(frames, ignore_index=True) for table, frames in parts.items()}
