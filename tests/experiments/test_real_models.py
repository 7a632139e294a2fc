"""The plan's own words, against the configurations that are made of them."""

import pytest

from rmutils.book.experiments import real_models as module
from rmutils.core.errors import UserError

PLAN = module.real_models()


def test_detection_is_that_of_the_plan():
    config = module.detection(PLAN)
    assert (config.lengths, config.depths) == ((512, 1024, 2048), (0.0, 0.5, 1.0))
    assert (config.needles, config.needle_set, config.max_new_tokens) == (16, "facts-literal", 32)
    lengths = [getattr(module.long_detection(PLAN, model), "lengths", None)
               for model in PLAN.content["models"]]
    assert lengths == [None, None, (8192,), (4096,)]


def test_maskings_are_those_of_the_plan():
    config = module.masking(PLAN, "smollm2-135m")
    assert (config.counts, config.shares, config.all_at_tau) == ((4,), (0.05, 0.12), True)
    assert config.curve == (1, 2, 4, 8, 16, 32, 64, 128) and config.tau == 0.1
    assert (config.same_layers, config.anywhere, config.seed) == (12, 12, 42)
    assert (config.skipped, config.needles, config.every_position) == (16, 32, 3)
    assert config.asked.lengths == (256, 1024) and config.asked.depths == (0.5,)
    assert module.masking(PLAN, "gemma3-270m").asked.lengths == (1024,)
    assert module.masking(PLAN, "qwen2.5-coder-1.5b").every_position is None


def test_kinds_and_scores_are_those_of_the_plan():
    found = module.kinds(PLAN, "gemma3-270m")
    assert found["english"].sets == tuple(PLAN.content["needles"]["sets"])
    assert found["english"].shares == (0.05,) and not found["english"].counts
    assert found["english"].detect.lengths == (1024,) == found["english"].asked.lengths
    assert (found["japanese"].skipped, found["japanese"].needles) == (6, 6)
    assert module.kind_detections(PLAN)["japanese"].corpus == "japanese"
    config = module.which_heads(PLAN, "gemma3-270m")
    assert config.scores == ("copy", "attention", "dla", "locos", "anchor")
    assert (config.same_layers, config.anywhere, config.every_position) == (12, 0, None)


@pytest.mark.parametrize(("item", "model", "word"), [
    ("maskings", "gemma3-270m", "names: .*masking"), ("masking", "tiny-llama", "gemma3-270m")])
def test_unknown_parts_and_models_are_refused(item, model, word):
    with pytest.raises(UserError, match=word):
        module.make(item, model)
