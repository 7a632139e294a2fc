"""The plan's own words, against the configurations that are made of them."""

import pytest

from rmutils.book.experiments import real_models as module
from rmutils.core.errors import UserError


@pytest.mark.parametrize(("item", "model", "word"), [
    ("maskings", "gemma3-270m", "names: .*masking"), ("masking", "tiny-llama", "gemma3-270m")])
def test_unknown_parts_and_models_are_refused(item, model, word):
    with pytest.raises(UserError, match=word):
        module.make(item, model)
