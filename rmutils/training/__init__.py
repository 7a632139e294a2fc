"""Preference pairs become a trained model."""

from rmutils.training.recipes import RECIPES, TrainRecipe
from rmutils.training.retmask import RetMaskConfig, RetMaskRun, run_retmask
from rmutils.training.running import load_adapter, train
from rmutils.training.store import load_trained, train_stored

__all__ = ["RECIPES", "RetMaskConfig", "RetMaskRun", "TrainRecipe", "load_adapter", "load_trained",
           "run_retmask", "train", "train_stored"]
