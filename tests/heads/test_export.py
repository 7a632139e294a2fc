"""An exported model computes what the masked one does, and is there whole or not at all."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, MistralConfig, MistralForCausalLM

import rmutils
from rmutils.core.errors import UserError
from rmutils.heads import export_masked, mask_heads
from rmutils.models import LanguageModel, load_model
from tests.conftest import two_families

IDS = torch.arange(100, 160)[None]
HEADS = [(2, 3), (0, 1), (2, 0)]


@torch.inference_mode()
def logits(lm) -> torch.Tensor:
    return lm.model(IDS).logits


def weights(lm) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in lm.model.state_dict().items()}


def assert_unchanged(lm, before):
    assert all(torch.equal(tensor, before[name]) for name, tensor in lm.model.state_dict().items())


def assert_same_model(lm, heads, folder, how="zero"):
    """Bit for bit what `lm` computes with the heads masked, and the same words."""
    loaded = load_model(str(folder))
    with mask_heads(lm, heads, how):
        assert torch.equal(logits(loaded), logits(lm))
    assert not torch.equal(logits(loaded), logits(lm))
    text = "The meeting\n is at 7 o'clock; naïve."
    assert loaded.tokenizer(text)["input_ids"] == lm.tokenizer(text)["input_ids"]
    assert loaded.user_turn() == lm.user_turn() and loaded.stop_ids == lm.stop_ids
    assert (loaded.family, loaded.shape, loaded.window) == (lm.family, lm.shape, lm.window)


def told(path) -> dict:
    """What a file of JSON says, a line each, so that people can read it, too."""
    text = path.read_text()
    found = json.loads(text)
    assert len(text.splitlines()) > len(found) and text.endswith("}\n")
    return found


def test_nothing_is_to_be_seen_before_all_is_written(llama, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(type(llama.tokenizer), "save_pretrained", lambda *folder: seen.extend(
        path.name for path in tmp_path.iterdir()))
    export_masked(llama, HEADS, tmp_path / "masked")
    assert [path.name for path in tmp_path.iterdir()] == ["masked"]
    (scratch,) = seen
    assert scratch.startswith(".masked.")


def test_loads_as_the_masked_model(lm, tmp_path):
    lm.model.generation_config.eos_token_id = [2, 7]  # not what the configuration alone says
    before = weights(lm)
    folder = export_masked(lm, HEADS, tmp_path / "a" / "new" / "masked")
    assert folder == tmp_path / "a/new/masked" and [*folder.parent.iterdir()] == [folder]
    assert_unchanged(lm, before)
    assert_same_model(lm, HEADS, folder)
    assert told(folder / "masked_heads.json") == {
        "model": lm.name, "identity": lm.identity, "heads": [[0, 1], [2, 0], [2, 3]],
        "how": "zero", "rmutils": rmutils.__version__}


@two_families
@pytest.mark.parametrize("how", ["mean", "query"])
def test_other_ablations_are_plain_checkpoints_too(lm, tmp_path, how):
    """transformers alone computes what the masked model does; layers without masked heads are as
    they were, and so is the model."""
    before = weights(lm)
    folder = export_masked(lm, HEADS, tmp_path / "masked", how)
    assert_unchanged(lm, before)
    assert_same_model(lm, HEADS, folder, how)
    plain, unused = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(unused.values())
    with mask_heads(lm, HEADS, how), torch.inference_mode():
        assert torch.equal(plain(IDS).logits, logits(lm))
    assert told(folder / "masked_heads.json")["how"] == how
    assert told(folder / "config.json")["num_hidden_layers"] == 4
    changed = {name for name, tensor in load_file(folder / "model.safetensors").items()
               if not torch.equal(tensor, before.get(name, torch.zeros_like(tensor)))}
    parts = {"mean": ["o_proj.bias", "o_proj.weight"],
             "query": ["q_norm.weight" if lm.family == "olmo3" else "q_proj.weight"]}[how]
    assert changed == {f"model.layers.{i}.self_attn.{part}" for i in (0, 2) for part in parts}


def test_a_family_without_the_bias_is_told(tokenizer, tmp_path):
    """The mean can be masked in this process all the same."""
    config = MistralConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64,
                           num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    lm = LanguageModel(MistralForCausalLM(config).eval(), tokenizer, "some", "mistral", "random")
    with pytest.raises(UserError, match="family mistral have no bias in W_o.*zero, query"):
        export_masked(lm, [(0, 1)], tmp_path / "masked", "mean")
    assert not any(tmp_path.iterdir())
    usual = logits(lm)
    with mask_heads(lm, [(0, 1)], "mean"):
        assert not torch.equal(logits(lm), usual)
    assert torch.equal(logits(lm), usual)


def test_others_may_read_the_folder(llama, tmp_path):
    """As any folder and file that this user makes: a server often runs under another name."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").touch()
    folder = export_masked(llama, HEADS, tmp_path / "masked")
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert {p.stat().st_mode for p in folder.iterdir()} == {
        (tmp_path / "plain" / "file").stat().st_mode}


def test_nothing_is_overwritten(llama, tmp_path):
    (tmp_path / "full").mkdir()
    for taken in (tmp_path / "full" / "notes", tmp_path / "file"):
        taken.write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(UserError, match=f"{name} exists and is not an empty folder"):
            export_masked(llama, HEADS, tmp_path / name)
    assert (tmp_path / "full" / "notes").read_text() == (tmp_path / "file").read_text() == "mine"
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["notes"]


def test_an_empty_folder_is_taken(llama, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert export_masked(llama, HEADS, ".") == tmp_path / "empty"
    assert_same_model(llama, HEADS, tmp_path / "empty")


@pytest.mark.fault("full disk", "while a masked model is written")
def test_a_full_disk_leaves_nothing(llama, tmp_path, full_disk):
    """The configuration fits, the weights do not."""
    before = weights(llama)
    too_large = "masked could not be written: .*File too large"
    with full_disk(), pytest.raises(UserError, match=too_large):
        export_masked(llama, HEADS, tmp_path / "masked")
    assert [*tmp_path.iterdir()] == []
    assert_unchanged(llama, before)


def test_real_model(smollm, tmp_path):
    """It comes from a GGUF file; its export is a plain folder that says nothing of that."""
    heads = [(12, 4), (29, 8)]
    folder = export_masked(smollm, heads, tmp_path / "masked")
    assert_same_model(smollm, heads, folder)
    assert not hasattr(AutoConfig.from_pretrained(folder), "quantization_config")
    again = load_model(folder)  # vLLM is given its stop tokens, window and prompts, too
    assert (again.stop_ids, again.window) == (smollm.stop_ids, smollm.window)
    for text in ("Hello.", "<|im_end|> 日本 é"):
        assert again.render(text) == smollm.render(text)
    shutil.rmtree(folder)  # half a gigabyte
