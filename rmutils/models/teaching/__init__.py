"""Teaching models: small models of the paper's three families, trained here from nothing."""

from rmutils.models.teaching.pretraining import first_steps, steps_taken, train, train_further
from rmutils.models.teaching.stream import RECIPES, TeachingRecipe

__all__ = ["RECIPES", "TeachingRecipe", "first_steps", "steps_taken", "train", "train_further"]
