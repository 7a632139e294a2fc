"""`rmutils detect`, on a small random model whose every answer counts as a success."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.cli import artifacts, heads_commands
from rmutils.core import results
from rmutils.heads import HeadScores
from rmutils.models.known_models import tau_of
from tests.cli.conftest import assert_refused

GRID = ["--lengths", "240", "--depths", "0,1", "--needles", "2", "--max-new-tokens", "3"]


@pytest.fixture
def model(tiny):
    return str(tiny)


def rmutils(*words):
    return CliRunner().invoke(app, ["detect", *words])


def test_heads_are_listed_and_stored(model, tmp_path):
    done = rmutils(model, *GRID, "--tau", "0", "--json", "--save", f"wu={tmp_path / 'wu.json'}")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["cases"], found["successful"], len(found["heads"])) == (4, 4, 16)
    for head in found["heads"]:
        assert head["low"] <= head["score"] <= head["high"]
    assert results.find(found["artifact"]).manifest["config"]["lengths"] == [240]
    assert HeadScores.from_wu_json(tmp_path / "wu.json").runs.shape == (4, 4, 4)
    text = rmutils(model, *GRID, "--tau", "0", "--compute", "never")
    assert text.exit_code == 0 and "4 of 4 needles found; 16 heads at or above tau = 0" in \
        text.stdout
    files = tmp_path / "own.json", tmp_path / "gates.tsv"
    text = rmutils(model, *GRID, "--compute", "never", "--save", str(files[0]), "--save",
                   f"duo={files[1]}")
    assert "gates.tsv does not say single runs" in text.stdout, text.output
    own, gates = (HeadScores.load(file, query_heads=4) for file in files)
    assert own.runs.shape == (4, 4, 4) and own.about["grid"]["lengths"] == [240]
    np.testing.assert_allclose(gates.mean, own.mean.reshape(4, 2, 2).max(-1).repeat(2, 1))


def test_one_needle_is_enough(model):
    done = rmutils(model, "--lengths", "240", "--depths", "0.5", "--needles", "1",
                   "--max-new-tokens", "3", "--tau", "0", "--json")
    found = json.loads(done.stdout)
    assert (found["successful"], len(found["heads"])) == (1, 16)


@pytest.mark.parametrize(("name", "begins"), [("map.png", b"\x89PNG"), ("map.svg", b"<?xml")])
def test_the_map_of_the_heads_is_drawn(model, tmp_path, name, begins):
    """One more file, from the result that is stored already or not."""
    file = tmp_path / name
    done = rmutils(model, *GRID, "--tau", "0.5", "--save", str(file))
    assert done.exit_code == 0 and f"Written: {file}" in done.stdout, done.output
    assert file.read_bytes().startswith(begins)


def test_several_processes_find_the_same(cache):
    """Each share by itself, with a model that finds the needles."""
    words = ["tiny-llama", "--lengths", "256", "--depths", "0.5", "--needles", "2",
             "--max-new-tokens", "16", "--json", "--compute", "always"]
    one, two = (json.loads(rmutils(*words, "--workers", n).stdout) for n in ("1", "2"))
    assert two == one and one["successful"] == 2


def test_interruption_says_how_to_go_on(model, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(heads_commands, "detect_stored", interrupted)
    monkeypatch.setattr(artifacts, "stored_results", interrupted)
    done = rmutils("tiny-llama", "--needles", "3")
    assert done.exit_code == 130 and "Traceback" not in done.output
    assert "`rmutils detect tiny-llama --needles 3` goes on from there" in done.stderr
    done = CliRunner().invoke(app, ["artifacts", "list"])
    assert (done.exit_code, done.stderr.strip()) == (130, "rmutils: stopped.")


def test_a_threshold_that_no_head_reaches_loses_nothing(model):
    done = rmutils(model, *GRID, "--tau", "2", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["heads"] == []
    highest = json.loads(done.stdout)["highest"]
    text = rmutils(model, *GRID, "--tau", "2", "--compute", "never").stdout
    assert f"The highest score is {highest:.3f}" in text


def test_no_needle_found_is_a_result(cache, tmp_path):
    """Three tokens do not hold an answer."""
    words = ["tiny-llama", "--lengths", "256", "--depths", "0.5", "--needles", "2",
             "--max-new-tokens", "3", "--save", f"wu={tmp_path / 'wu.json'}"]
    done, as_json = rmutils(*words), rmutils(*words, "--json")
    assert done.exit_code == 0 and "0 of 2 needles found; 0 heads" in done.stdout
    found = json.loads(as_json.stdout)
    assert (found["successful"], found["highest"], found["heads"]) == (0, None, [])
    table = pd.read_parquet(done.stdout.split("The answers are in ")[1].strip().rstrip("."))
    assert len(table) == 2 and not (tmp_path / "wu.json").exists()


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-qwen3"])
def test_the_threshold_is_the_models_own(name):
    words = [name, "--depths", "0.0,0.25,0.5,0.75,1.0", "--compute", "never", "--json"]
    assert json.loads(rmutils(*words).stdout)["tau"] == tau_of(name)
    assert f"tau = {tau_of(name):g} (the default for this model)" in rmutils(*words[:-1]).stdout


def test_errors_exit_with_2(model, tmp_path):
    """Also those of the grid, before anything runs."""
    (tmp_path / "taken").write_text("mine")
    assert_refused(rmutils, {
        (model, *GRID, "--save", f"wu={tmp_path / 'taken' / 'wu.json'}"): "cannot be written",
        (model, "--save", "do=a.tsv"): "no format of scores is called 'do'. There are rmutils, wu",
        (model, "--compute", "never"): "Make it: `rmutils detect",
        (model, "--save", "/sys/wu.json"): "/sys/wu.json cannot be written: Permission denied",
        (model, "--depths", "1.5"): "depths: expected at most 1.0, got '1.5'",
        ("no-model",): "no model is called 'no-model'",
    })


def test_files_of_scores_are_converted(tmp_path):
    runs = np.array([[[0.0, 0.5, 0.25, 1.0]], [[0.5, 0.5, 0.25, 0.0]]])
    with pytest.warns(UserWarning, match="which runs belong to one needle"):
        HeadScores(runs, "m", np.array([0, 1])).save(tmp_path / "a.json", "wu")

    def convert(*words):
        return CliRunner().invoke(app, ["heads", "convert", *map(str, words)])

    done = convert(tmp_path / "a.json", tmp_path / "own.json")
    assert done.stdout.strip() == f"Written: {tmp_path / 'own.json'}", done.output
    np.testing.assert_array_equal(HeadScores.load(tmp_path / "own.json").runs, runs)
    done = convert(tmp_path / "own.json", tmp_path / "gates.tsv", "--to", "duo", "--key-heads", 2)
    assert "Warning: " in done.stdout and "gates.tsv does not say single runs" in done.stdout
    alone = HeadScores.load(tmp_path / "gates.tsv", shape=(1, 4)).mean
    (tmp_path / "config.json").write_text('{"sink_size": 64, "recent_size": 256}')
    np.testing.assert_array_equal(HeadScores.load(tmp_path / "gates.tsv", shape=(1, 4)).mean, alone)
    np.testing.assert_array_equal(alone, [[0.5, 0.5, 0.5, 0.5]])
    done = convert(tmp_path / "gates.tsv", tmp_path / "back.json", "--to", "wu", "--query-heads", 4)
    assert done.exit_code == 0 and HeadScores.load(tmp_path / "back.json").shape == (1, 4)
    for file, message in (("gates.tsv", "--query-heads"), ("config.json", "not head scores"),
                          ("nowhere", "cannot be read")):
        done = convert(tmp_path / file, tmp_path / "b", "--to", "duo")
        assert done.exit_code == 2 and message in done.stderr, done.output
