"""Preference pairs become a trained model."""

from rmutils.training.recipes import RECIPES, TrainRecipe
from rmutils.training.running import load_adapter, train

__all__ = ["RECIPES", "TrainRecipe", "load_adapter", "train"]
