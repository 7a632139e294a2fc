"""A name becomes a model, its tokenizer and its chat template."""

from rmutils.models.in_memory import wrap
from rmutils.models.known_models import REGISTRY, ModelSpec
from rmutils.models.language_model import LanguageModel
from rmutils.models.loading import identify, load_model

__all__ = ["REGISTRY", "LanguageModel", "ModelSpec", "identify", "load_model", "wrap"]
