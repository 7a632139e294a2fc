"""Files of head scores come back, are what others read, and are refused if they are another's."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.heads import DetectConfig, HeadScores, detect
from rmutils.heads.detection import detect_stored
from rmutils.models import load_model

RUNS = np.array([[[0.0, 0.5, 0.25, 1.0], [0.75, 0.0, 0.0, 0.5]],
                 [[0.5, 0.5, 0.25, 0.0], [0.25, 0.0, 0.0, 1.0]]])


@pytest.fixture
def scores() -> HeadScores:
    """2 layers x 4 heads, two runs of two needles."""
    return HeadScores(RUNS, "a model", np.array([0, 1]), score="locos",
                      about={"weights": "sha256:abc float32", "grid": {"lengths": [256]}})


def saved(scores, path, *how, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scores.save(path, *how, **more)


def test_the_own_format_tells_everything(scores, tmp_path):
    record = json.loads(saved(scores, tmp_path / "a.json").read_text())
    assert (record["format"], record["version"]) == ("rmutils.HeadScores", 2)
    assert record["meta"] == {
        "model": "a model", "method": "locos", "weights": "sha256:abc float32",
        "grid": {"lengths": [256]}, "num_trials_passed": 2, "num_trials_total": None}
    assert record["scores"]["1-3"] == [0.5, 1.0] and record["means"]["1-3"] == 0.75
    low, high = record["confidence_intervals"]["1-3"]
    assert low <= 0.75 <= high
    again = HeadScores.load(tmp_path / "a.json")
    np.testing.assert_array_equal(again.runs, RUNS)
    assert (again.score, again.about, again.clusters.tolist()) == ("locos", scores.about, [0, 1])


def test_layers_without_heads_come_back(tmp_path):
    runs = np.array([[[0.5, 0.0], [np.nan, np.nan]]])
    np.testing.assert_array_equal(HeadScores.load(
        saved(HeadScores(runs, "m"), tmp_path / "a.json")).runs, runs)
    with pytest.raises(UserError, match="wu has no place for layers without heads"):
        HeadScores(runs, "m").save(tmp_path / "b.json", "wu")


def test_a_file_of_locos_is_read(tmp_path):
    """As its detectors write it: no version, ids of trials, more in `meta` than is known here."""
    table = {f"{i}-{j}": RUNS[:, i, j].tolist() for i in range(2) for j in range(4)}
    (tmp_path / "l.json").write_text(json.dumps({
        "meta": {"model": "org/m", "method": "dla", "num_trials_passed": 2, "seed": 1},
        "scores": table, "trial_ids": ["x", "y"]}))
    found = HeadScores.load(tmp_path / "l.json")
    np.testing.assert_array_equal(found.runs, RUNS)
    assert (found.model, found.score, found.about) == ("org/m", "dla", {"seed": 1})


def test_qrhead_has_means_highest_first(scores, tmp_path):
    with pytest.warns(UserWarning, match="scores of single runs"):
        scores.save(tmp_path / "q.json", "qrhead")
    listed = json.loads((tmp_path / "q.json").read_text())
    assert listed[0] == ["1-3", 0.75] and [s for _, s in listed] == sorted(
        (s for _, s in listed), reverse=True)
    np.testing.assert_array_equal(HeadScores.load(tmp_path / "q.json").mean, scores.mean)


def test_gates_are_of_key_heads(scores, tmp_path):
    """Two query heads share a key head; read as DuoAttention and kvpress read it."""
    with pytest.warns(UserWarning, match="which query head of a key head"):
        scores.save(tmp_path / "d.tsv", "duo", key_heads=2)
    gates = np.loadtxt(tmp_path / "d.tsv", dtype=float, delimiter="\t")
    np.testing.assert_array_equal(gates, [[0.5, 0.5], [0.5, 0.75]])
    for known in ({"shape": (2, 4)}, {"query_heads": 4}):
        found = HeadScores.load(tmp_path / "d.tsv", **known).mean
        np.testing.assert_array_equal(found, gates.repeat(2, 1))
    for known, message in (({}, "gates of 2 key heads, which are no query heads"),
                           ({"query_heads": 5}, "5 query heads cannot share the gates of 2"),
                           ({"query_heads": -8}, "query_heads: expected at least 1, got -8"),
                           ({"shape": (2, 5)}, "5 query heads cannot share the gates of 2")):
        with pytest.raises(UserError, match=message):
            HeadScores.load(tmp_path / "d.tsv", **known)
    for key_heads in (None, 3):
        with pytest.raises(UserError, match="4 query heads cannot share"):
            scores.save(tmp_path / "e.tsv", "duo", key_heads=key_heads)
    with pytest.warns(UserWarning, match="outside of 0 to 1"):
        HeadScores(RUNS[:1] - 1, "m").save(tmp_path / "f.tsv", "duo", key_heads=4)


def test_gates_of_a_single_key_head(tmp_path):
    """Without a tab in the file."""
    (tmp_path / "d.tsv").write_text("0.5\n0.25\n")
    assert HeadScores.load(tmp_path / "d.tsv", query_heads=2).mean.tolist() == [
        [0.5, 0.5], [0.25, 0.25]]
    with pytest.raises(UserError, match="gates of 1 key head.*how many"):
        HeadScores.load(tmp_path / "d.tsv")


@pytest.mark.parametrize(("score", "message"), [
    ("1e9", r"from 0 to 10, and these from 0 to 1e\+09"), ('"1.2"', '"1.2" is no number'),
    ("true", "true is no number"), ("-0.5", "from 0 to 10"), ("[0.5]", "is no number")])
def test_published_scores_that_are_none(tmp_path, score, message):
    (tmp_path / "wu.json").write_text(f'{{"0-0": [{score}, 0.0], "0-1": [0.5, 0.5]}}')
    with pytest.raises(UserError, match=message):
        HeadScores.from_wu_json(tmp_path / "wu.json")


def test_published_scores_count_a_token_twice(scores, tmp_path):
    """Of one needle in two of Wu's own seven files, say. What is computed by Equation 1 cannot."""
    (tmp_path / "wu.json").write_text('{"0-0": [1.8, 0.0], "0-1": [0.5, 0.5]}')
    published = HeadScores.from_wu_json(tmp_path / "wu.json")
    assert published.select(tau=0.9) == [(0, 0)]
    assert HeadScores.load(published.save(tmp_path / "again.json")).runs.max() == 1.8
    for definition, fits in (("wu", True), ("paper", False)):
        made = HeadScores(scores.runs * 2, "m", about={"grid": {"definition": definition}})
        path = made.save(tmp_path / "own.json")
        if fits:
            assert HeadScores.load(path).mean.max() > 1
        else:
            with pytest.raises(UserError, match="copy go from 0 to 1, and these from 0 to 2"):
                HeadScores.load(path)
    record = json.loads((tmp_path / "own.json").read_text())  # as of LOCOS, whatever its detector
    (tmp_path / "locos.json").write_text(json.dumps({
        "meta": {"model": "m"}, "scores": record["scores"]}))
    assert HeadScores.load(tmp_path / "locos.json").mean.max() > 1


@pytest.mark.parametrize("change, message", [
    ({"format": "other"}, "not head scores"), ({"version": 9}, "version 9"),
    ({"meta": None}, "not head scores"), ({"scores": {"0-0": "x"}}, "not head scores"),
    ({"scores": [1]}, "not head scores"), ({"cases": {"a": [1], "b": [1, 2]}}, "damaged"),
    ({"scores": {"0-0": [1, 1]}}, "1 layers x 1 heads, but the model has 2 x 4")])
def test_damaged_files_are_told(scores, tmp_path, change, message):
    record = json.loads(saved(scores, tmp_path / "a.json").read_text()) | change
    (tmp_path / "a.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=message):
        HeadScores.load(tmp_path / "a.json", shape=(2, 4))


def test_scores_of_other_weights_are_refused(llama, tmp_path):
    """The precision does not matter; a file that does not tell its weights is taken."""
    for weights, fits in (("random llama 0", True), ("random llama 0 bfloat16", True),
                          ("random llama 1", False), ("", True)):
        scores = HeadScores(np.zeros((1, 4, 4)), "m", about={"weights": weights})
        path = saved(scores, tmp_path / "a.json")
        if fits:
            assert HeadScores.load(path, llama).shape == llama.shape
        else:
            with pytest.raises(UserError, match="scores of another model, m "):
                HeadScores.load(path, llama)
    (tmp_path / "d.tsv").write_text("0.5\t0.25\n" * 4)  # of two key heads
    assert HeadScores.load(tmp_path / "d.tsv", llama).shape == (4, 4)
    with pytest.raises(UserError, match="format: expected one of .*qrhead"):
        scores.save(tmp_path / "b", "qr")


def test_a_detection_tells_weights_and_grid(tiny, tmp_path):
    """Computed or looked up, and so does its file."""
    config = DetectConfig(lengths=(200,), depths=(0.5,), needles=2, max_new_tokens=2)
    lm = load_model(str(tiny))
    for found in (detect(lm, config), detect_stored(str(tiny), config)[0],
                  detect_stored(str(tiny), config, compute="never")[0]):
        again = HeadScores.load(saved(found, tmp_path / "a.json"), lm)
        assert again.about["weights"] == lm.identity
        assert again.about["grid"] == config.identity()
        assert again.about["grid"]["lengths"] == [200] and again.score == "copy"
        np.testing.assert_array_equal(again.runs, found.runs)
        assert again.cases["response"].tolist() == found.cases["response"].tolist()


CASES = {"case": ["a", "b", "c"], "needle": [0, 1, 1], "success": [True, False, True]}


@pytest.mark.parametrize("part, change", [
    ("record", {"shape": [3, 4]}), ("record", {"trial_ids": ["a"]}),
    ("record", {"layers_without_heads": [2]}),
    ("meta", {"num_trials_passed": 3}), ("meta", {"model": ["a model"]}), ("meta", {"method": 1}),
    ("clusters", [0, None]), ("cases", {"success": [1, 0, 1]}), ("cases", {"needle": [{}, 1, 2]}),
    ("cases", {"success": ["True", "False", "True"]}), ("cases", {"success": [True] * 3})])
def test_a_file_that_contradicts_itself_is_refused(tmp_path, part, change):
    """Layers, runs or cases may have been lost or edited since it was written."""
    scores = HeadScores(RUNS, "a model", np.array([0, 1]), pd.DataFrame(CASES))
    record = json.loads(saved(scores, tmp_path / "a.json").read_text())
    assert HeadScores.load(tmp_path / "a.json").where([True, False, False]).runs.shape[0] == 1
    if part == "clusters":
        record["clusters"] = change
    else:
        (record if part == "record" else record[part]).update(change)
    (tmp_path / "a.json").write_text(json.dumps(record))
    with pytest.raises(UserError):
        HeadScores.load(tmp_path / "a.json")


def test_a_file_without_its_last_layer_is_refused(scores, tmp_path):
    record = json.loads(saved(scores, tmp_path / "a.json").read_text())
    record["scores"] = {head: runs for head, runs in record["scores"].items() if head[0] == "0"}
    (tmp_path / "a.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"shape: \[2, 4\], but the scores have \[1, 4\]"):
        HeadScores.load(tmp_path / "a.json")


@pytest.mark.parametrize("gates", ["inf\t0.5", "# 1\t1\n0.5\t0.5", "0.5\t0.5#"])
def test_nothing_in_a_file_of_gates_is_skipped_or_cut(tmp_path, gates):
    (tmp_path / "g.tsv").write_text(gates)
    with pytest.raises(UserError, match="not head scores"):
        HeadScores.load(tmp_path / "g.tsv", query_heads=4)
