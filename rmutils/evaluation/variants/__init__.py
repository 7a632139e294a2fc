"""Attention changed without training: one way to measure a model under each variant."""

from rmutils.evaluation.variants.kinds import (
    Extended,
    GemFilter,
    MsPoe,
    Plain,
    Retain,
    Select,
    Share,
    Variant,
)
from rmutils.evaluation.variants.measure import TextsConfig, VariantConfig, measure
from rmutils.evaluation.variants.questions import DocumentsConfig
from rmutils.evaluation.variants.store import Compared, compare_stored, measure_stored

__all__ = ["Compared", "DocumentsConfig", "Extended", "GemFilter", "MsPoe", "Plain", "Retain",
           "Select", "Share", "TextsConfig", "Variant", "VariantConfig", "compare_stored",
           "measure", "measure_stored"]
