"""Adapters and stored trainings are models like any other: for loading, commands and other tools.

An adapter's weights are merged by hand here: W + (alpha / r) B A.
"""

import copy
import json
import shutil

import pandas as pd
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from rmutils import load_model
from rmutils.__main__ import app
from rmutils.core import results
from rmutils.core.errors import UserError
from rmutils.models import identify
from rmutils.models.known_models import tau_of
from rmutils.models.loading import base_of, checkpoint_of, corpus_of, window_of
from rmutils.models.trained import load_adapter, origin
from rmutils.training import RECIPES, train
from rmutils.training.running import train_stored
from tests.conftest import make_lm

PAIRS = pd.DataFrame([{"prompt": f"Who hid {n} keys?", "chosen": f"Ann hid {n}.",
                       "rejected": "Nobody did."} for n in range(4)])
LORA = RECIPES["smoke"].changed({"lora_rank": 2, "learning_rate": 1e-2, "min_learning_rate": 1e-3})


def rmutils(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def adapter(tiny, tmp_path):
    """What `rmutils train --lora` writes for a model in a folder."""
    return train(str(tiny), PAIRS, LORA, tmp_path / "adapter")


def merged_by_hand(base, adapter, dtype) -> dict[str, torch.Tensor]:
    """Sums in float32, then rounded."""
    settings = json.loads((adapter / "adapter_config.json").read_text())
    parts = load_file(adapter / "adapter_model.safetensors")
    weights = load_model(str(base), dtype=dtype).model.state_dict()
    for name in weights:
        key = f"base_model.model.{name.removesuffix('.weight')}.lora_{{}}.weight"
        if key.format("A") in parts:
            a, b = (parts[key.format(x)].float() for x in "AB")
            assert b.any()
            weights[name] = (weights[name].float()
                             + settings["lora_alpha"] / settings["r"] * b @ a).to(dtype)
    return weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_is_merged_into_its_base_in_float32(tiny, adapter, dtype):
    lm = load_model(str(adapter), dtype=dtype)
    for name, weight in merged_by_hand(tiny, adapter, dtype).items():
        torch.testing.assert_close(lm.model.state_dict()[name], weight, rtol=0, atol=1e-6)
        assert lm.model.state_dict()[name].dtype == dtype
    assert lm.name == "adapter" and lm.identity == identify(str(adapter), dtype)
    assert base_of(str(adapter)) == str(tiny) and checkpoint_of(str(adapter)) is None
    assert window_of(str(adapter)) == lm.window and corpus_of(str(adapter)) == "book"


@pytest.mark.parametrize("targets", [
    {"target_modules": ["q_proj", "lm_head"]}, {"target_modules": ["embed_tokens"]},
    {"target_modules": ["lm_head", "embed_tokens"]},
    {"target_modules": ["lm_head"], "ensure_weight_tying": True},
    {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}])
def test_an_adapter_of_one_of_two_tied_matrices(tiny, tmp_path, targets):
    """Merged, and written by `rmutils merge`, the model is what peft runs beside its base."""
    base = AutoModelForCausalLM.from_pretrained(tiny).eval()
    assert base.lm_head.weight is base.model.embed_tokens.weight
    torch.manual_seed(0)
    own = get_peft_model(base, LoraConfig(
        task_type="CAUSAL_LM", r=2, init_lora_weights=False, **targets)).eval()
    for name, weight in own.named_parameters():
        if "modules_to_save" in name:
            weight.data += 0.1 * torch.randn_like(weight)
    own.save_pretrained(tmp_path / "lora")
    settings = json.loads((tmp_path / "lora" / "adapter_config.json").read_text())
    (tmp_path / "lora" / "adapter_config.json").write_text(
        json.dumps(settings | {"base_model_name_or_path": str(tiny)}))
    ids = torch.arange(20)[None]
    want = own(ids).logits
    merged = load_model(str(tmp_path / "lora"))
    torch.testing.assert_close(merged.model(ids).logits, want, rtol=1e-3, atol=1e-3)
    done = rmutils("merge", tmp_path / "lora", tmp_path / "whole")
    assert done.exit_code == 0, done.output
    written = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    torch.testing.assert_close(written(ids).logits, want, rtol=1e-3, atol=1e-3)


def test_identity_of_an_adapter_has_base_weights_and_settings(tiny, adapter, tmp_path, tokenizer):
    first = identify(str(adapter))
    copy = shutil.copytree(adapter, tmp_path / "copy")
    assert identify(str(copy)) == first
    settings = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps(settings | {"lora_alpha": 1}))
    other = shutil.copytree(adapter, tmp_path / "other")
    weights = load_file(other / "adapter_model.safetensors")
    save_file({k: 2 * v for k, v in weights.items()}, other / "adapter_model.safetensors")
    found = {first, identify(str(copy)), identify(str(other))}
    (adapter / "training.json").unlink()  # as an adapter that was trained elsewhere
    make_lm("llama", tokenizer, seed=1).model.save_pretrained(tiny)
    found |= {identify(str(adapter))}
    assert len(found) == 4


@pytest.mark.parametrize("words", [
    ["detect", "--lengths", "200", "--depths", "0.5", "--needles", "1", "--max-new-tokens", "4"],
    ["mask", "--scores", "scores.json", "--top-k", "1", "--out", "masked"],
    ["evaluate", "--datasets", "labels_coarse", "--lengths", "300", "--samples", "1"],
    ["abilities", "--tasks", "letters", "--samples", "1", "--passages", "1",
     "--passage-tokens", "20"],
    ["generate", "--count", "1", "--max-new-tokens", "3"],
    ["pairs", "--pairs", "2", "--max-new-tokens", "3", "--strategy", "random-mask", "--top-k", "1",
     "--scores", "scores.json", "--out", "pairs.parquet"],
    ["merge", "whole"],
], ids=lambda words: words[0])
def test_commands_take_adapters(adapter, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.json").write_text(json.dumps(
        {f"{i}-{j}": [0.1 * i] for i in range(4) for j in range(4)}))
    done = rmutils(words[0], adapter, *words[1:])
    assert done.exit_code == 0, done.output
    identities = [a.manifest["inputs"]["model"] for a in results.stored() if "model" in
                  a.manifest["inputs"] and a.stage != "instructions"]
    assert all(one == identify(str(adapter)) for one in identities), identities


def test_stored_trainings_are_models_by_their_names(tiny, tmp_path, monkeypatch):
    lm = load_model(str(tiny))
    trained, artifact = train_stored(lm, PAIRS, LORA)
    name = artifact.key
    again = load_model(name)
    assert (again.name, again.identity) == (name, name) == (name, identify(name))
    assert all(torch.equal(a, b) for a, b in zip(
        again.model.state_dict().values(), trained.model.state_dict().values(), strict=True))
    assert identify(name, "bfloat16") == f"{name} bfloat16" != identify(name, "float32") == name
    assert trained.identity == identify(str(artifact.folder))
    assert not lm.model.state_dict().keys() ^ trained.model.state_dict().keys()
    ids = torch.arange(100, 140)[None]
    done = rmutils("merge", name, tmp_path / "whole")
    assert done.exit_code == 0 and done.stdout.strip() == str(tmp_path / "whole"), done.output
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype=torch.float32)
    assert torch.equal(plain(ids).logits, again.model(ids).logits)
    assert not torch.equal(plain(ids).logits, lm.model(ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "whole")
    assert tokenizer.chat_template == lm.tokenizer.chat_template
    taken = rmutils("merge", name, tmp_path / "whole")
    assert taken.exit_code == 2 and "exists and is not an empty folder" in taken.stderr


def test_tau_of_a_trained_model_is_its_bases(tiny, adapter):
    config = tiny / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "qwen3"}))
    assert tau_of(str(adapter)) == 0.05
    settings = adapter / "adapter_config.json"
    told = json.loads(settings.read_text()) | {"base_model_name_or_path": "olmo-3-7b-think"}
    settings.write_text(json.dumps(told))
    assert tau_of(str(adapter)) == 0.05 and tau_of("train-0123456789abcdef") == 0.1


def test_what_an_adapter_lacks_is_told(tiny, adapter, tokenizer, tmp_path):
    """One sentence each: another base, a base of another shape, none, no LoRA."""
    settings = adapter / "adapter_config.json"
    told = json.loads(settings.read_text())
    other = make_lm("llama", tokenizer, seed=1)
    other.model.save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="was trained on tiny model with other weights"):
        load_model(str(adapter), base=str(tmp_path / "other"))
    (adapter / "training.json").unlink()
    for change, message in (
        ({"base_model_name_or_path": str(tmp_path / "gone")},
         r"is a LoRA adapter of .*gone, which is not there. Write its place into .*\.json"),
        ({"base_model_name_or_path": None}, "does not say which model it was trained on"),
        ({"peft_type": "LOHA"}, "cannot be read: it is no LoRA adapter but LOHA"),
        ({"base_model_name_or_path": "tiny-qwen3"}, "adapter.*do(es)? not fit"),
        ({"base_model_name_or_path": "tiny-llama"}, "adapter.*does not fit.*has the shape"),
    ):
        settings.write_text(json.dumps(told | change))
        with pytest.raises(UserError, match=message) as error:
            load_model(str(adapter))
        assert len(str(error.value).splitlines()) == 1


def test_weights_that_an_adapter_lacks_are_told(adapter):
    weights = load_file(adapter / "adapter_model.safetensors")
    gone = min(weights)
    save_file({name: weight for name, weight in weights.items() if name != gone},
              adapter / "adapter_model.safetensors")
    with pytest.raises(UserError, match=f"1 of its weights do not fit the model, as {gone}"):
        load_model(str(adapter))
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="holds no adapter_model.safetensors"):
        load_model(str(adapter))


@pytest.mark.parametrize("between", [False, True])
def test_an_adapter_of_itself_is_refused(adapter, tmp_path, between):
    """Also by way of another one; wherever its base is asked for."""
    other = shutil.copytree(adapter, tmp_path / "other") if between else adapter
    for folder, base in ((adapter, other), (other, adapter)):
        settings = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(
            json.dumps(settings | {"base_model_name_or_path": str(base)}))
    for ask in (load_model, identify, base_of, corpus_of, window_of, tau_of):
        if ask is tau_of:
            ask(str(adapter))
            continue
        with pytest.raises(UserError, match="names itself as its base"):
            ask(str(adapter))


def test_an_adapter_of_an_adapter_began_with_the_model_of_both(tmp_path):
    for name, base in (("one", "tiny-qwen3"), ("two", str(tmp_path / "one"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text(
            json.dumps({"base_model_name_or_path": base}))
    assert origin(str(tmp_path / "two")) == "tiny-qwen3"


@pytest.mark.parametrize(("change", "told"), [
    ({"lora_gamma": 3}, "lora_gamma = 3, which is not applied"),
    ({"use_qalora": True}, "use_qalora = True, which is not applied"),
    ({"init_lora_weights": "pissa"}, "pissa changes the weights of the base"),
    ({"megatron_config": {"a": 1}}, "No module named 'megatron'"),
    ({"arrow_config": {"a": 1}}, "cannot be read"),
    ({"monteclora_config": {"a": 1}}, "cannot be read")])
def test_settings_that_peft_would_ignore_or_fail_on_are_refused(adapter, change, told):
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | {"lora_beta": None}))
    load_model(str(adapter))
    (adapter / "adapter_config.json").write_text(json.dumps(settings | change))
    with pytest.raises(UserError, match=told):
        load_model(str(adapter))


@pytest.mark.parametrize("change", [{"r": 2**31 - 1}, {"rank_pattern": {"q_proj": 2**31 - 1}}])
def test_a_rank_that_is_not_the_weights_is_refused(adapter, change):
    """peft would take a terabyte for it."""
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | change))
    with pytest.raises(UserError, match=r"lora_A.* the shape \[2, 32\], and \[2147483647, 32\]"):
        load_model(str(adapter))


def test_ranks_by_module(tiny, tmp_path):
    """Also where no module has the rank `r`."""
    lm = load_model(tiny)
    adapted = get_peft_model(copy.deepcopy(lm.model), LoraConfig(
        task_type="CAUSAL_LM", r=8, rank_pattern={"q_proj": 3}, target_modules=["q_proj"],
        init_lora_weights=False))
    adapted.save_pretrained(tmp_path)
    merged, ids = load_adapter(lm, tmp_path), torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(merged.model(ids).logits, adapted(ids).logits)
    assert not torch.allclose(merged.model(ids).logits, lm.model(ids).logits)


def test_a_bias_that_cannot_be_merged_is_refused(tiny, tmp_path):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny), LoraConfig(
        task_type="CAUSAL_LM", r=2, target_modules=["q_proj"], lora_bias=True))
    model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="base layer has no bias"):
        load_adapter(load_model(tiny), tmp_path)


def test_a_merged_model_turns_by_unrounded_angles(adapter):
    rope = load_model(str(adapter), dtype="bfloat16").model.model.rotary_emb
    assert rope.inv_freq.dtype == torch.float32
