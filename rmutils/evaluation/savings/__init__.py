"""What Share- and Select-Attention save, where they look, and in which layers they may."""

from rmutils.evaluation.savings.costs import CostsConfig, Unshared
from rmutils.evaluation.savings.layers import LayersConfig
from rmutils.evaluation.savings.likeness import LikenessConfig
from rmutils.evaluation.savings.recall import RecallConfig
from rmutils.evaluation.savings.store import look_up, saved

__all__ = ["CostsConfig", "LayersConfig", "LikenessConfig", "RecallConfig", "Unshared", "look_up",
           "saved"]
