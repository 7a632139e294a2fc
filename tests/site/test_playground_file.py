"""The data of the playground, against the files that they are made from."""

import json
from base64 import b64decode

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from rmutils.core.paths import CORPORA, ROOT
from rmutils.corpora.haystacks import Haystack, load_haystacks, load_needles
from rmutils.corpora.niah import NiahBuilder
from rmutils.experiments.teaching_models import DETECTION
from rmutils.heads.detection import detect_stored
from rmutils.models import load_model
from rmutils.site import playground
from rmutils.site.dependencies import sources


@pytest.fixture(scope="module")
def lm():
    return load_model(str(playground.MODEL), device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A folder of pages with the playground's files in it."""
    folder = tmp_path_factory.mktemp("pages")
    playground.write(folder)
    return folder


@pytest.fixture(scope="module")
def data(pages) -> dict:
    script = (pages / playground.FOLDER / "data.js").read_text(encoding="ascii")
    return json.loads(script.split(".data = ")[1].removesuffix(";\n"))


def test_weights_are_those_of_the_checkpoint_bit_for_bit(data):
    stored = load_file(playground.MODEL / "model.safetensors")
    numbers = np.frombuffer(b64decode(data["weights"]), "<f4")
    names, lengths = zip(*data["layout"], strict=True)
    parts = dict(zip(names, np.split(numbers, np.cumsum(lengths)[:-1]), strict=True))
    assert sorted(parts) == sorted(stored)
    assert all((stored[name].ravel() == part).all() for name, part in parts.items())


def test_tokens_and_merges_are_those_of_the_tokenizer(data, lm):
    """Each token's bytes are its text; each merge makes a token, in the order of the file."""
    tokens = data["tokenizer"]["tokens"]
    assert [t.encode("latin-1").decode("utf-8", "replace") for t in tokens] == [
        lm.tokenizer.decode([i]) for i in range(len(lm.tokenizer))]
    merged = [tokens[left] + tokens[right] for left, right in data["tokenizer"]["merges"]]
    assert merged == tokens[len(tokens) - len(merged):]


def test_scores_choose_the_heads_that_the_package_chooses(data, lm):
    scores, artifact = detect_stored(lm, DETECTION, compute="never")
    means = np.array([head["mean"] for head in data["scores"]])
    assert sorted(np.flatnonzero(means >= data["tau"])) == sorted(
        layer * lm.shape[1] + head for layer, head in scores.select(tau=data["tau"]))
    assert all(head["low"] <= head["mean"] <= head["high"] for head in data["scores"])
    assert data["detection"]["result"] == artifact.name


def test_texts_suffice_for_the_longest_prompt(data, lm):
    """A prompt from the beginning of a haystack is that from the whole text."""
    needles = load_needles(playground.NEEDLES)[: playground.OFFERED]
    whole = NiahBuilder(lm, load_haystacks(CORPORA["world"] / "haystack"))
    short = NiahBuilder(lm, [Haystack("", case["haystack"]) for case in data["cases"]])
    for i, needle in enumerate(needles):
        expected = whole.build(i, needle, playground.LONGEST, 1.0)
        assert short.build(i, needle, playground.LONGEST, 1.0).prompt == expected.prompt
        assert data["cases"][i] == {
            "haystack": data["cases"][i]["haystack"], "needle": needle.needle,
            "question": needle.question, "answer": needle.real_needle}


def test_the_frame_is_that_of_every_prompt(data, lm):
    needle = load_needles(playground.NEEDLES)[0]
    case = NiahBuilder(lm, load_haystacks(CORPORA["world"] / "haystack")).build(0, needle, 99, 0.0)
    before, between, after = data["frame"]
    assert case.prompt.startswith(f"{before}{needle.needle} ")
    assert case.prompt.endswith(f"{between}{needle.question}{after}")


def test_scripts_stand_beside_the_page_and_its_parts_do_not(pages):
    found = {p.name for p in (pages / playground.FOLDER).iterdir()}
    assert {"data.js", "page.js", "page.css"} <= found
    assert not [name for name in found if name.endswith(".html")]  # they would count as pages


def test_the_pages_depend_on_the_model():
    assert {str(p) for p in playground.inputs()} <= set(sources(ROOT))
    assert playground.MODEL / "model.safetensors" in playground.inputs()
