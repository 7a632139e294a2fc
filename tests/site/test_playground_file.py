"""The data of the playground, against the files that they are made from."""

import json
import re
import zlib
from base64 import b64decode

import numpy as np
import pytest
import torch

from rmutils.book.site import playground
from rmutils.book.site.dependencies import sources
from rmutils.core.paths import ROOT
from rmutils.heads.detection import detect_stored
from rmutils.models import load_model


@pytest.fixture(scope="module")
def lm():
    return load_model(str(playground.TEACHING), device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A folder of pages with the playground's files in it, made where no real model is cached."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(playground, "_cached", lambda: folder / "missing.gguf")
        playground.write(folder)
    return folder / playground.FOLDER


@pytest.fixture(scope="module")
def models(pages) -> list[dict]:
    script = (pages / "models.js").read_text(encoding="ascii")
    return json.loads(script.split(".models = ")[1].removesuffix(";\n"))


def joined(pages, model: dict) -> bytes:
    """The file that a model's parts make up, each checked."""
    whole = b""
    for part in model["parts"]:
        said, text = re.fullmatch(r'Playground\.part\("(.*)", \(\) => \{/\*(.*)\*/\}\);\n',
                                  (pages / part["file"]).read_text(encoding="ascii")).groups()
        piece = b64decode(text)
        assert (said, part["at"], part["checksum"]) == (part["file"], len(whole), zlib.crc32(piece))
        whole += piece
    assert len(whole) == model["bytes"]
    return whole


def test_without_the_real_model_the_teaching_model_is_there(models):
    assert [model["name"] for model in models] == ["tiny-llama"]


def test_the_parts_are_a_gguf_file_of_the_same_model(pages, models, lm, tmp_path):
    """Read by transformers, it gives the same logits and splits texts in nearly the same way."""
    file = tmp_path / "model.gguf"
    file.write_bytes(joined(pages, models[0]))
    again = load_model(str(file), device="cpu", dtype=torch.float32)
    ids = torch.arange(300).reshape(3, 100)
    with torch.inference_mode():
        assert torch.equal(again.model(ids).logits, lm.model(ids).logits)
    text = models[0]["scenes"][0]["haystack"]
    assert again.tokenizer(text)["input_ids"] == lm.tokenizer(text)["input_ids"]


def test_a_file_is_cut_into_parts_that_make_it_up(tmp_path, monkeypatch):
    monkeypatch.setattr(playground, "PART", 1000)
    packed = np.random.default_rng(0).bytes(2500)
    parts = playground._write_parts(tmp_path, "x", packed)
    assert [part["at"] for part in parts] == [0, 1000, 2000]
    assert joined(tmp_path, {"parts": parts, "bytes": len(packed)}) == packed


def test_scores_choose_the_heads_that_the_package_chooses(models, lm):
    scores, artifact = detect_stored(lm, playground._grid(lm.name), compute="never")
    means = [head["mean"] for head in models[0]["scores"]]
    top = sorted(range(len(means)), key=lambda head: -means[head])[: playground.MASKED]
    assert top == [layer * lm.shape[1] + head
                   for layer, head in scores.select(top_k=playground.MASKED)]
    assert all(head["low"] <= head["mean"] <= head["high"] for head in models[0]["scores"])
    assert models[0]["detection"]["result"] == artifact.name


def test_the_teaching_model_s_scenes_are_made_of_words_that_it_knows(models):
    known = set(models[0]["words"])
    for scene in models[0]["scenes"]:
        assert scene["answer"] in scene["needle"]
        assert set(scene["answer"].lower().split()) <= known
    assert not {"ferry", "umbrella"} & known


def test_scripts_stand_beside_the_page_and_its_parts_do_not(pages):
    found = {p.name for p in pages.iterdir()}
    assert {"models.js", "page.js", "page.css", "kernel.js"} <= found
    assert not [name for name in found if name.endswith((".html", ".wat", ".yml"))]


def test_the_pages_depend_on_the_models():
    assert {str(p) for p in playground.inputs()} <= set(sources(ROOT))
    assert playground.TEACHING / "model.safetensors" in playground.inputs()


def test_a_model_fetched_meanwhile_does_not_build_the_pages_again(cache):
    """The first build begins before the real model is here, in this empty cache say."""
    before = playground.inputs()
    file = playground._cached()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"weights")
    assert playground.inputs() == before
