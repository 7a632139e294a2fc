"""Detections as stored results, and the large grid that ships."""

import json
import os
import shlex
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.chapters.preliminaries.experiment import detect_stored_or_small
from rmutils.cli import heads_commands
from rmutils.core.catalog import stored_results
from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.core.results import Stage, find, stored
from rmutils.corpora.niah import load_needles
from rmutils.heads import DetectConfig, HeadScores, detect, detection
from rmutils.heads.detection import DETECT, detect_stored, even_depths, inputs_of
from rmutils.models import identify
from tests.conftest import make_lm

SMALL = DetectConfig(lengths=(240, 300), depths=(0.0, 1.0), needles=2, max_new_tokens=4)


@pytest.fixture
def home(tiny, tmp_path, monkeypatch):
    """A working directory with a model and a haystack in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my texts").mkdir()
    (tmp_path / "my texts" / "a.txt").write_text("It rained. We stayed in the house. " * 90)
    return tmp_path


def own_needles(home, records=None):
    path = home / "own needles.jsonl"
    path.write_text("\n".join(json.dumps(vars(n)) for n in records or load_needles()[:3]))
    return path


def test_computed_once_then_read(home, monkeypatch):
    """What is read is what was computed, and reading needs no model."""
    scores, artifact = detect_stored("tiny model", SMALL)
    monkeypatch.setattr(detection.ModelRef, "load", None)
    again, same = detect_stored("tiny model", SMALL)
    assert same == artifact and artifact.problems() == []
    np.testing.assert_array_equal(again.runs, scores.runs)
    np.testing.assert_array_equal(again.clusters, scores.clusters)
    assert again.cases.equals(scores.cases) and len(again.cases) == 8
    assert artifact.manifest["facts"]["cases"] == artifact.manifest["facts"]["successful"] == 8
    assert {*artifact.manifest["files"]} == {"cases.parquet", "scores.safetensors"}


def parsed(command, monkeypatch):
    """Model and configuration that the command line makes of a command, without running it."""
    asked = []

    def stop(model, config, **kwargs):
        asked.extend((model, config))
        raise UserError("stop here")

    monkeypatch.setattr(heads_commands, "detect_stored", stop)
    words = shlex.split(command)
    assert words[0] == "rmutils" and CliRunner().invoke(app, words[1:]).exit_code == 2
    return asked


@pytest.mark.parametrize("changes", [
    {}, {"definition": "wu", "depths": (0.0, 1 / 3)}, {"haystack": "my texts"},
    {"needle_file": "own needles.jsonl", "needles": 3}])
def test_command_makes_the_same_key(home, monkeypatch, changes):
    """The manifest's command, read back by the command line, names the same result."""
    own_needles(home)
    if "haystack" in changes:
        changes = {"haystack": home / changes["haystack"]}  # as absolute as a shell completes it
    config = DetectConfig(**{**SMALL.model_dump(), **changes})
    artifact = detect_stored(str(home / "tiny model"), config)[1]
    command = artifact.manifest["command"]
    model, again = parsed(command, monkeypatch)
    assert DETECT.key(again, inputs_of(identify(model), again, "book")) == artifact.key
    assert str(home) not in artifact.path("manifest.json").read_text()


def test_key_follows_content_not_place(home):
    """The haystack's text and the needles that are used; not where they are."""
    def key(haystack, needles):
        config = SMALL.model_copy(update={"haystack": haystack, "needle_file": needles})
        return DETECT.key(config, inputs_of("some weights", config, "book"))

    three = load_needles()[:3]
    first = key(home / "my texts", own_needles(home, three))
    shutil.copytree(home / "my texts", home / "copy")
    assert key(home / "copy", own_needles(home, three[:2])) == first  # two are used
    (home / "copy" / "a.txt").write_text("Another text.")
    assert key(home / "copy", own_needles(home, three)) != first
    assert key(home / "my texts", own_needles(home, three[::-1])) != first
    assert key(None, None) != first


def test_name_of_the_shipped_detection_stays(cache):
    """What shipped before there were several corpora is still found."""
    shipped = find("detect-31cc30552b273ce7")
    config = DetectConfig(**shipped.manifest["config"])
    assert inputs_of(identify("smollm2-135m"), config, "book") == shipped.manifest["inputs"]


def test_model_of_the_world_is_asked_about_the_world(home, llama):
    """By name or loaded, it has the key of the world's own text; other text can still be given."""
    world = {"haystack": CORPORA["world"] / "haystack", "needle_file": CORPORA["world"] / "needles"}
    book = {"haystack": CORPORA["book"] / "haystack", "needle_file": CORPORA["book"] / "needles"}
    llama.model.config.corpus = "world"
    llama.model.save_pretrained("tiny model")
    scores, by_name = detect_stored("tiny model", SMALL)
    _, asked_for = detect_stored("tiny model", SMALL.model_copy(update=world), compute="never")
    assert asked_for == by_name
    inputs = by_name.manifest["inputs"]
    _, loaded = detect_stored(llama, SMALL)
    assert loaded.manifest["inputs"] == {**inputs, "model": llama.identity}
    _, other = detect_stored("tiny model", SMALL.model_copy(update=book))
    assert all((other.manifest["inputs"][k] == inputs[k]) == (k == "model") for k in inputs)


def test_a_large_grid_fits_the_window_or_gives_way_to_a_small_one():
    grid = DetectConfig(lengths=[96, 5000], depths=[0.5])
    scores, _ = detect_stored_or_small("tiny-llama", grid, compute="never")
    assert {*scores.cases["length"]} == {96} and {*scores.cases["depth"]} == {0, 0.5, 1}


def test_scores_of_a_stored_detection(home, llama):
    """By name, key, folder and file, with what is known of it: the same scores."""
    found, artifact = detect_stored(llama, SMALL)
    where = (artifact.name, artifact.key, artifact.folder, artifact.path("scores.safetensors"),
             os.path.relpath(artifact.folder), artifact.path("manifest.json"))
    for one in where:
        loaded = HeadScores.load(one, llama)
        np.testing.assert_array_equal(loaded.runs, found.runs)
        np.testing.assert_array_equal(loaded.clusters, found.clusters)
        assert loaded.cases.equals(found.cases) and loaded.model == "random-llama"
        assert (loaded.score, loaded.about) == ("copy", found.about)
    with pytest.raises(UserError, match="kind 'locos'. It has copy"):
        HeadScores.load(artifact.name, score="locos")
    with pytest.raises(UserError, match="scores of another model, random-llama"):
        HeadScores.load(artifact.name, make_lm("llama", llama.tokenizer, seed=1))
    with pytest.raises(UserError, match="4 layers x 4 heads, but the model has 4 x 8"):
        HeadScores.load(artifact.name, shape=(4, 8))
    artifact.path("cases.parquet").write_bytes(b"damaged")
    for one in where:
        with pytest.raises(UserError, match="It is not used"):
            HeadScores.load(one)


def test_one_of_several_stored_kinds(home, llama):
    found, artifact = detect_stored(llama, SMALL.changed({"score": "anchor"}))
    loaded = HeadScores.load(artifact.name, score="anchor")
    np.testing.assert_array_equal(loaded.runs, found.runs)
    assert loaded.score == "anchor" and loaded.cases.equals(found.cases)
    assert artifact.stage == "scores" and HeadScores.load(artifact.name).score == "copy"


def test_what_holds_no_scores(home, llama, tmp_path):
    other = Stage("evaluation", 1).obtain_folder(SMALL, {}, lambda folder: {
        "written": (folder / "a.txt").write_text("nothing")}, command="", model="random-llama")
    for where, said in ((other.name, "of the stage evaluation, which holds no head scores"),
                        (tmp_path / "my texts", "is a folder without manifest.json"),
                        ("detect/random-llama/240-300-01234567", "No such file")):
        with pytest.raises(UserError, match=said):
            HeadScores.load(where)


def test_a_table_of_what_is_stored(home, llama):
    _, artifact = detect_stored(llama, SMALL)
    other = Stage("evaluation", 1).obtain_folder(SMALL, {}, lambda folder: {
        "written": (folder / "a.txt").write_text("nothing")}, command="", model="another")
    assert {*stored_results()["name"]} == {artifact.name, other.name}
    row, = stored_results("detect", model="random-llama").itertuples()
    assert (row.name, row.key, row.folder) == (artifact.name, artifact.key, artifact.folder)
    assert stored_results(model="another").stage.to_list() == ["evaluation"]
    assert stored_results("evaluation", "random-llama").empty
    other.path("a.txt").write_text("damaged")
    assert stored_results().name.to_list() == [artifact.name]
    with pytest.raises(UserError, match="no stored result of the stage 'detct'. Did you mean det"):
        stored_results("detct")
    with pytest.raises(UserError, match="no stored result of the model 'anothr'. Did you mean"):
        stored_results(model="anothr")


LENGTHS = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
LARGE = DetectConfig(lengths=LENGTHS, depths=even_depths(10))


@pytest.fixture(scope="module")
def large():
    return detect_stored("smollm2-135m", LARGE, compute="never")


def test_all_shipped_results_match_their_manifests():
    shipped = [artifact for artifact in stored() if artifact.shipped]
    assert shipped
    assert [problem for artifact in shipped for problem in artifact.problems()] == []


def test_some_of_its_cases_come_out_again(large, smollm):
    """On this machine, now: the same needles are found, and the same heads copy."""
    again = detect(smollm, DetectConfig(lengths=(256,), depths=(0.0, 1.0), needles=1))
    cases = large[0].cases
    same = large[0].where(cases["case"].isin(again.cases["case"]).to_numpy())
    assert again.cases["case"].tolist() == same.cases["case"].tolist()
    assert again.cases["success"].tolist() == same.cases["success"].tolist()
    np.testing.assert_allclose(again.runs, same.runs, atol=0.1)
    assert (again.runs != same.runs).mean() < 0.01
