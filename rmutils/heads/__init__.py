"""Attention rows become retrieval scores, measures and chosen heads."""

from rmutils.heads.detection import DetectConfig, detect
from rmutils.heads.masking import mask_heads
from rmutils.heads.scores import HeadScores

__all__ = ["DetectConfig", "HeadScores", "detect", "mask_heads"]
