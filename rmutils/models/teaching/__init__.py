"""Teaching models: small models of the paper's three families, trained here from nothing."""

from rmutils.models.teaching.recipes import RECIPES, TeachingRecipe
from rmutils.models.teaching.training import first_steps, train

__all__ = ["RECIPES", "TeachingRecipe", "first_steps", "train"]
