"""A name becomes a model, its tokenizer and its chat template."""

from rmutils.models.language_model import LanguageModel
from rmutils.models.loading import identify, load_model
from rmutils.models.registry import REGISTRY, ModelSpec

__all__ = ["REGISTRY", "LanguageModel", "ModelSpec", "identify", "load_model"]
