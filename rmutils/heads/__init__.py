"""Attention rows become retrieval scores, measures and chosen heads."""

from rmutils.heads.detection import DetectConfig, detect
from rmutils.heads.masking import choose, export_masked, mask_heads, mask_queries
from rmutils.heads.scores import HeadScores

__all__ = ["DetectConfig", "HeadScores", "choose", "detect", "export_masked", "mask_heads",
           "mask_queries"]
