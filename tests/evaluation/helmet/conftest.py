"""A teaching model, and one with the same tokenizer that counts as any other model."""

import copy

import pytest

from rmutils.models import LanguageModel, load_model


@pytest.fixture(scope="session")
def teaching() -> LanguageModel:
    return load_model("tiny-llama")


@pytest.fixture(scope="session")
def stranger(teaching) -> LanguageModel:
    """The same weights, but not known to be of this project's own training."""
    model = copy.deepcopy(teaching.model)
    del model.config.corpus
    return LanguageModel(model, teaching.tokenizer, "stranger", "llama", "stranger")
