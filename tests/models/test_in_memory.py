"""Models in memory: the same numbers as by name, an identity that follows all that decides them."""

import copy
import inspect
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import rmutils
from rmutils import DetectConfig, UserError, detect, export_masked, load_model, wrap
from rmutils.core.paths import SHIPPED_MODELS
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig, evaluate_general_stored
from rmutils.evaluation.helmet.evaluation import evaluate_stored
from rmutils.heads.detection import detect_stored
from rmutils.models.loading import ModelRef
from tests.conftest import make_lm

FOLDER = SHIPPED_MODELS / "tiny-llama"


@pytest.fixture(scope="module")
def plain():
    return AutoModelForCausalLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)


def test_it_is_the_model_that_has_the_name(plain, tmp_path):
    lm, named = wrap(*plain), load_model("tiny-llama")
    assert (lm.name, lm.family, lm.shape, lm.window, lm.corpus, lm.stop_ids, lm.source) == (
        "tiny-llama in memory", "llama", named.shape, 4096, "world", named.stop_ids, "")
    config = DetectConfig(lengths=(256,), depths=(0.5,), needles=1, max_new_tokens=8)
    assert (detect(lm, config).runs == detect(named, config).runs).all()
    assert wrap(*plain, name="mine").name == "mine"
    written = load_model(export_masked(lm, [], tmp_path / "written"))
    assert torch.equal(written.model.lm_head.weight, lm.model.lm_head.weight)


def test_evaluation_mode_and_attention(tokenizer):
    llama = make_lm("llama", tokenizer)
    llama.model.train()
    assert not wrap(llama.model, tokenizer).model.training
    capped = make_lm("llama", tokenizer).model
    capped.config.attn_logit_softcapping = 5.0
    assert wrap(capped, tokenizer).model.config._attn_implementation == "eager"


def test_using_a_model_does_not_change_its_identity(tokenizer):
    lm = wrap(make_lm("qwen3", tokenizer).model, tokenizer)
    lm.tokenizer(["a", "a longer one"], padding=True, truncation=True, max_length=3)
    detect(lm, DetectConfig(lengths=(300,), depths=(0.5,), needles=1, max_new_tokens=2))
    assert wrap(lm.model, tokenizer).identity == lm.identity
    assert wrap(make_lm("qwen3", tokenizer).model, copy.deepcopy(tokenizer)
                ).identity == lm.identity, "made again"
    assert wrap(lm.model.bfloat16(), tokenizer).identity != lm.identity


def smallest_step(model, tokenizer):
    weight = model.model.layers[3].mlp.down_proj.weight.detach()
    weight[7, 5] = torch.nextafter(weight[7, 5], torch.tensor(9.0))


def two_values(model, tokenizer):
    weight = model.model.layers[0].self_attn.q_proj.weight.detach()
    weight[[0, 1]] = weight[[1, 0]]


def untied(model, tokenizer):
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())


@pytest.mark.parametrize("change", [
    smallest_step, two_values, untied,
    lambda model, _: model.model.rotary_emb.inv_freq.mul_(0.5),
    lambda model, _: setattr(model.config, "rms_norm_eps", 1e-3),
    lambda model, _: setattr(model.generation_config, "eos_token_id", 7),
    lambda _, tokenizer: setattr(tokenizer, "chat_template", "{{ messages }}"),
    lambda _, tokenizer: setattr(tokenizer, "eos_token", "<|im_start|>"),
    lambda _, tokenizer: tokenizer.add_tokens(["retrieval"]),
])
def test_whatever_decides_the_output_is_in_the_identity(change, tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    lm = make_lm("llama", tokenizer)
    lm.model.resize_token_embeddings(len(tokenizer) + 8)
    before = wrap(lm.model, tokenizer).identity
    change(lm.model, tokenizer)
    assert wrap(lm.model, tokenizer).identity != before


GIVEN = [(name, parameter) for name in rmutils.__all__ for parameter in ("lm", "model", "backend")
         if inspect.isfunction(function := getattr(rmutils, name)) and name != "wrap"
         and parameter in inspect.signature(function).parameters]


@pytest.mark.parametrize("name, parameter", [*GIVEN, ("load_model", "name")])
def test_a_plain_model_is_told_in_one_line_how_it_becomes_one(name, parameter, plain):
    function = getattr(rmutils, name)
    given = {other: None for other, told in inspect.signature(function).parameters.items()
             if told.default is told.empty}
    with pytest.raises(UserError) as error:
        function(**given | {parameter: plain[0]})
    said = str(error.value)
    assert "got a LlamaForCausalLM. Make it a LanguageModel first: `lm = rmutils.wrap(" in said
    assert "\n" not in said and f"{parameter}: expected " in said
    with pytest.raises(UserError, match="got a LlamaForCausalLM. Make it a LanguageModel first"):
        ModelRef(plain[0])


def test_what_cannot_be_wrapped(plain, tokenizer):
    lm = make_lm("llama", tokenizer)
    with pytest.raises(UserError, match=re.escape("1536 tokens, and my model knows 512. Give the")):
        wrap(lm.model, plain[1], "my model")
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(lm.model.config)
    for unloaded in (empty, AutoModelForCausalLM.from_config(lm.model.config).to("meta")):
        with pytest.raises(UserError, match="weights of llama in memory are not loaded"):
            wrap(unloaded, tokenizer)
    with pytest.raises(UserError, match="is a LlamaModel, which has no output matrix"):
        wrap(lm.model.model, tokenizer)
    with pytest.raises(UserError, match="model: expected a PreTrainedModel, got 'tiny-llama'"):
        wrap("tiny-llama", tokenizer)
    with pytest.raises(UserError, match="model: expected a PreTrainedModel, got a ModuleList"):
        wrap(torch.nn.ModuleList([torch.nn.Linear(2, 2)]), tokenizer)  # its repr takes lines


def test_where_a_name_is_needed_it_says_so(llama, cache):
    for call in (load_model, lambda lm: evaluate_general_stored(lm, GeneralConfig())):
        with pytest.raises(UserError, match="got a LanguageModel. Other processes load this model"):
            call(llama)
    for stored in (detect_stored, evaluate_stored):
        with pytest.raises(UserError, match="random-llama is in memory, and 2 workers .* its name"):
            stored(llama, workers=2)
