"""Attention rows become retrieval scores, measures and chosen heads."""

from rmutils.heads.detection import DetectConfig, detect
from rmutils.heads.export import export_masked
from rmutils.heads.masking import choose, mask_heads
from rmutils.heads.queries import mask_queries
from rmutils.heads.scores import HeadScores

__all__ = ["DetectConfig", "HeadScores", "choose", "detect", "export_masked", "mask_heads",
           "mask_queries"]
