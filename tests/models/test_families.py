"""Families of models, and one that is added from outside the package."""

import pytest
import torch
from transformers import MistralConfig

from rmutils import DetectConfig, detect, load_model, mask_heads
from rmutils.core.errors import UserError
from rmutils.models.families import FAMILIES, Family, family_of
from rmutils.models.known_models import REGISTRY, check, tau_of
from rmutils.models.teaching import TeachingRecipe
from rmutils.models.teaching.pretraining import build_model
from rmutils.models.teaching.stream import build_tokenizer


class Forbidden(Family):
    def lacks(self, model):
        return "permission"


@pytest.fixture
def mistral(monkeypatch):
    monkeypatch.setattr(FAMILIES, "_known", {**FAMILIES._known})
    return FAMILIES.add("mistral", Family(
        "Mistral", tau=0.07, config=MistralConfig.__name__, teaching={"steps": 9}))


def test_a_family_from_outside_is_taught_loaded_examined_and_masked(mistral, tmp_path):
    recipe = TeachingRecipe(family="mistral", hidden_size=32, intermediate_size=32,
                            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                            head_dim=8, vocab_size=600)
    tokenizer = build_tokenizer(recipe.vocab_size, thinking=recipe.thinking)
    build_model(recipe, tokenizer).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    lm = load_model(str(tmp_path / "m"))
    check(lm)
    assert (lm.family, tau_of(str(tmp_path / "m"))) == ("mistral", 0.07)
    ids = torch.tensor([lm.render("Hello.")])
    before = lm.model(ids).logits
    with mask_heads(lm, [(0, 1)]):
        assert not torch.equal(lm.model(ids).logits, before)
    scores = detect(lm, DetectConfig(lengths=(256,), depths=(0.5,), needles=1, max_new_tokens=4))
    assert scores.success_rate.value == 0  # untrained: nothing is found


def test_a_family_decides_what_can_be_examined(llama, monkeypatch):
    monkeypatch.setattr(FAMILIES, "_known", {"llama": Forbidden("Llama")})
    with pytest.raises(UserError, match="lacks permission"):
        check(llama)


def test_unknown_families_have_the_defaults(tmp_path):
    assert family_of("nobody").tau == tau_of("nobody") == tau_of("no/body") == 0.1
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    assert tau_of(str(tmp_path)) == 0.05
    with pytest.raises(UserError, match="no model family.*llama, qwen3, olmo3"):
        TeachingRecipe(family="nobody")
    assert {spec.family for spec in REGISTRY.values()} <= set(FAMILIES)
