"""Rotary positions: the angles of a loaded model are those its files ask for, or it is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from rmutils import load_model
from rmutils.core.errors import Refused, UserError
from rmutils.models.engine.caches import Trunk
from rmutils.models.engine.generation import generate, next_token_logits
from rmutils.models.loading import window_of
from rmutils.models.rotary import check_angles
from tests.conftest import make_lm

NUMBERS = [1.0, 1.5, 2.5, 4.0]
RULES = {
    "default": {"rope_theta": 12345.0},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256},
    "yarn, all": {"factor": 16.0, "original_max_position_embeddings": 64, "beta_fast": 16.0,
                  "beta_slow": 2.0, "attention_factor": 1.5, "truncate": False},
    "yarn, scales": {"factor": 16.0, "original_max_position_embeddings": 64, "mscale": 0.7,
                     "mscale_all_dim": 0.4},
    "longrope": {"short_factor": NUMBERS, "long_factor": NUMBERS,
                 "original_max_position_embeddings": 256},
    "longrope, all": {"short_factor": NUMBERS, "long_factor": NUMBERS, "attention_factor": 1.25,
                      "factor": 8.0, "original_max_position_embeddings": 256},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 256}}


@pytest.fixture
def saved(request, tokenizer, tmp_path):
    """A function that saves a family's model, and changes its config.json afterwards."""
    def save(family, **changes):
        lm = make_lm(family, tokenizer)
        lm.model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        settings = json.loads(path.read_text())
        for key, value in changes.items():
            settings.pop(key, None)
            if value is not None:
                settings[key] = value
        path.write_text(json.dumps(settings))
        return tmp_path
    return save


def rule(name):
    return {"rope_theta": 10000.0, "rope_type": name.partition(",")[0], **RULES[name]}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("old", [False, True])
def test_every_rule_is_as_transformers_computes_it(name, old, saved):
    """In both layouts; a small change of any angle or of the factor is noticed."""
    said = rule(name)
    folder = saved("llama", rope_parameters=None if old else said, rope_scaling=said if old else
                   None)
    model, settings = load_model(folder).model, json.loads((folder / "config.json").read_text())
    rope = model.model.rotary_emb
    rope.inv_freq[-1] *= 1.001
    with pytest.raises(Refused, match="kind full_attention would turn by other angles"):
        check_angles(model, settings)
    rope.inv_freq[-1] /= 1.001
    check_angles(model, settings)
    rope.attention_scaling *= 1.001
    with pytest.raises(Refused, match="other angles"):
        check_angles(model, settings)


@pytest.mark.parametrize("changes", [
    {}, {"rope_parameters": None, "rope_theta": 1e6, "rope_local_base_freq": 2e4},
    {"rope_parameters": None, "rope_theta": 1e6, "rope_local_base_freq": 2e4,
     "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    {"rope_parameters": {"full_attention": rule("yarn"), "sliding_attention": rule("linear")}}])
def test_kinds_of_layers_turn_each_in_its_way(changes, saved):
    rope = load_model(saved("gemma3_text", **changes)).model.model.rotary_emb
    if "rope_local_base_freq" in changes:
        factor = changes.get("rope_scaling", {}).get("factor", 1.0)
        torch.testing.assert_close(rope.full_attention_inv_freq,
                                   1e6 ** -(torch.arange(4) / 4) / factor)
        torch.testing.assert_close(rope.sliding_attention_inv_freq, 2e4 ** -(torch.arange(4) / 4))


@pytest.mark.parametrize(("family", "changes", "named"), [
    ("olmo3", {"rope_parameters": rule("yarn")}, "kind full_attention would turn by other"),
    ("olmo3", {"rope_parameters": None, "rope_theta": 7e4}, "kind sliding_attention would turn"),
    ("olmo3", {"rope_parameters": {"full_attention": rule("yarn") | {"truncate": False},
                                   "sliding_attention": rule("linear")}}, "full_attention would"),
    ("llama", {"rope_parameters": {"full_attention": rule("yarn")}}, "no layers of that kind"),
    ("llama", {"rope_scaling": rule("linear")}, "are not the same"),
    ("llama", {"rope_parameters": rule("linear"), "rope_theta": 5e5}, "names two bases"),
    ("llama", {"rope_parameters": rule("yarn"), "original_max_position_embeddings": 99},
     "two windows"),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "factor": 4.0}},
     "does not read factor"),
    ("llama", {"rope_parameters": rule("linear") | {"interpolation": 4}}, "not read interpol"),
    ("llama", {"rope_parameters": rule("linear") | {"partial_rotary_factor": 0.5}},
     "turns whole heads"),
    ("llama", {"rope_parameters": None, "rope_theta": 1e4, "partial_rotary_factor": 0.5},
     "turns whole heads"),
    ("llama", {"rope_parameters": {"rope_type": "su", "rope_theta": 1e4}}, "su|short_factor"),
    ("llama", {"rope_parameters": rule("linear") | {"factor": None}}, "linear .* has no factor"),
    ("llama", {"rope_parameters": rule("linear") | {"factor": "4"}}, "factor .* is '4'"),
    ("llama", {"rope_parameters": rule("linear") | {"factor": float("inf")}}, "factor .* is inf"),
    ("llama", {"rope_parameters": rule("longrope") | {"short_factor": [1.0]}},
     "1 numbers|length 1|size"),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": -1.0}}, "rope_theta"),
    ("llama", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}},
     "longrope .* no short_factor"),
    ("llama", {"rope_parameters": {"rope_type": "banana", "rope_theta": 1e4}}, "no rule 'banana'"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "factor"),
], ids=str)
def test_settings_that_the_library_drops_are_refused(family, changes, named, saved):
    with pytest.raises(UserError, match=named) as error:
        load_model(saved(family, **changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("family", "changes", "named"), [
    ("llama", {"sliding_window": 64}, "sliding_window = 64"),
    ("llama", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("llama", {"logits_scaling": 8.0}, "logits_scaling"),
    ("llama", {"layer_types": ["sliding_attention"] * 4}, "layer_types"),
    ("llama", {"norm_eps": 1e-3}, "norm_eps = 0.001.*rms_norm_eps"),
    ("llama", {"hidden_activation": "gelu"}, "hidden_activation = gelu.*hidden_act = silu"),
    ("llama", {"num_key_value_head": 1}, "num_key_value_head = 1"),
    ("olmo3", {"layer_types": None, "sliding_window_pattern": 2}, "sliding_window_pattern"),
], ids=str)
def test_settings_of_other_families_are_refused(family, changes, named, saved):
    with pytest.raises(UserError, match=named) as error:
        load_model(saved(family, **changes))
    assert "damaged" not in str(error.value)


@pytest.mark.parametrize("changes", [
    {"sliding_window": None}, {"logits_scaling": 1.0}, {"layer_types": ["full_attention"] * 4},
    {"norm_eps": 1e-6}, {"hidden_activation": "silu"}, {"made_by": "a script"},
    {"rope_interleaved": False}, {"is_llama_config": True}, {"mlp_bias": False}])
def test_settings_that_change_nothing_are_taken(changes, saved):
    load_model(saved("llama", **changes))


def test_weights_that_belong_nowhere_are_refused(saved):
    folder = saved("llama")
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"  # of old files: computed anew
    save_file(weights | {name: torch.ones(4)}, folder / "model.safetensors", {"format": "pt"})
    load_model(folder)
    name = "model.layers.0.self_attn.q_proj.bias"
    save_file(weights | {name: torch.ones(32)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=f"1 of its weights belong nowhere .* as {name}"):
        load_model(folder)


LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": NUMBERS,
        "long_factor": [8.0] * 4, "original_max_position_embeddings": 600}


@pytest.mark.parametrize(("changes", "most"), [
    ({"rope_parameters": LONG}, 600),
    ({"max_position_embeddings": 600,
      "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}, 600)])
def test_texts_that_would_turn_otherwise_are_refused(changes, most, saved):
    """Up to the bound, in parts as in one pass; beyond it, neither."""
    folder = saved("llama", **changes)
    lm = load_model(folder)
    assert lm.window == window_of(str(folder)) == most
    ids = [*range(20, 420)] + [*range(20, 220)]
    whole = next_token_logits(lm, ids)
    cache = Trunk(lm.model, ids[:550]).read(ids)
    with torch.inference_mode():
        last = lm.model(torch.tensor([ids[-1:]]), past_key_values=cache).logits[0, -1]
    torch.testing.assert_close(last, whole[-1], rtol=1e-2, atol=1e-2)
    assert len(generate(lm, [ids[:590]], max_new_tokens=10, stop_ids=())[0]) == 10
    for read in (lambda: next_token_logits(lm, [*ids, 5]), lambda: Trunk(lm.model, [*ids, 5]),
                 lambda: generate(lm, [ids], max_new_tokens=10, stop_ids=())):
        with pytest.raises(UserError, match=f"beyond {most} tokens"):
            read()
    torch.testing.assert_close(next_token_logits(lm, ids), whole)


def test_the_same_numbers_for_all_lengths_are_no_bound(saved):
    """The way out that the message names."""
    lm = load_model(saved("llama", rope_parameters=LONG | {"short_factor": [8.0] * 4}))
    assert lm.window == 1024 and len(next_token_logits(lm, [5] * 700)) == 700


def test_gemma_4_turns_a_share_of_wider_heads(tokenizer, tmp_path):
    """The rule proportional: by transformers' own function, and by hand."""
    make_lm("gemma4_text", tokenizer, num_hidden_layers=6, global_head_dim=16,
            vocab_size_per_layer_input=64, rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                   "partial_rotary_factor": 0.25}}).model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    rope = load_model(tmp_path).model.base_model.rotary_emb
    torch.testing.assert_close(rope.full_attention_inv_freq,
                               torch.tensor([1.0, 1e6 ** (-2 / 16)] + [0.0] * 6))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    settings = json.loads(path.read_text())
    settings["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 0.5
    with pytest.raises(Refused, match="other angles"):
        check_angles(load_model(tmp_path).model, settings)
    config["rope_parameters"]["full_attention"]["low_freq_factor"] = 1.0
    path.write_text(json.dumps(config))
    with pytest.raises(UserError, match="proportional of its rotary positions does not read low"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", ["nemotron", "afmoe", "gemma4_text"])
def test_other_families_are_read_or_refused_in_one_sentence(kind, tokenizer, tmp_path):
    small = {"vocab_size_per_layer_input": 64} if kind == "gemma4_text" else {}
    make_lm(kind, tokenizer, **small).model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    try:
        lm = load_model(tmp_path)
    except UserError as error:
        assert "\n" not in str(error) and "damaged" not in str(error)
    else:
        generate(lm, [[5, 6, 7]], max_new_tokens=2)
