"""Scores of all heads: selection, intervals and the published JSON format."""

import io
import json
import random

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from safetensors.numpy import save_file

from rmutils.core.errors import UserError
from rmutils.heads import HeadScores
from rmutils.heads.scores import DECIMALS
from rmutils.stats import SHARE, interval_of


@pytest.fixture
def scores():
    """2 layers x 3 heads, three runs of two needles; layer 1 head 0 and layer 0 head 2 tie."""
    runs = np.array([[[0.0, 0.2, 0.3], [0.3, 0.0, 1.0]],
                     [[0.0, 0.4, 0.3], [0.3, 0.0, 0.5]],
                     [[0.0, 0.0, 0.3], [0.3, 0.1, 0.9]]])
    return HeadScores(runs, "some-model", np.array([0, 0, 1]))


def test_mean_and_ranking(scores):
    np.testing.assert_allclose(scores.mean, [[0, 0.2, 0.3], [0.3, 0.1 / 3, 0.8]])
    assert scores.mean.dtype == np.float64 and scores.shape == (2, 3)
    assert scores.ranking() == [(1, 2), (0, 2), (1, 0), (0, 1), (1, 1), (0, 0)]


def test_select(scores):
    assert scores.select(tau=0.3) == [(1, 2), (0, 2), (1, 0)]
    assert scores.select(top_k=2) == [(1, 2), (0, 2)]
    assert scores.select(tau=0) == scores.select(top_k=6) == scores.ranking()


def test_select_errors(scores):
    with pytest.raises(UserError, match=r"no head of some-model reaches tau=0.9.*layer 1, head 2 "
                                        r"with 0.800"):
        scores.select(tau=0.9)
    for count in (0, 7):
        with pytest.raises(UserError, match=f"top_k={count}: some-model has 6 heads"):
            scores.select(top_k=count)
    for both in ({}, {"tau": 0.1, "top_k": 1}):
        with pytest.raises(UserError, match="give one of the two"):
            scores.select(**both)


def test_ties_are_in_the_order_of_layer_and_head():
    """Six times 0.1 is less than 0.1 + 0.2 + 0.3 in the last bits."""
    runs = np.full((6, 1, 2), 0.1)
    runs[:, 0, 1] = [0.1, 0.2, 0.3, 0, 0, 0]
    scores = HeadScores(runs, "m")
    assert scores.mean[0, 0] < scores.mean[0, 1]
    assert scores.ranking() == [(0, 0), (0, 1)] == scores.select(tau=0.1)
    many = HeadScores((np.arange(300) % 3).reshape(1, 20, 15), "m")
    assert many.ranking() == sorted(np.ndindex(20, 15), key=lambda head: (-many.mean[head], head))
    assert many.runs.dtype == np.float64  # though they were whole numbers


def test_random_heads_as_the_authors_draw_them(scores):
    """Their loop, which draws layer and head until it has enough that are not excluded."""
    excluded, expected = scores.select(tau=0.3), []
    random.seed(42)
    while len(expected) < 3:
        head = random.randrange(scores.shape[0]), random.randrange(scores.shape[1])
        if head not in expected and head not in excluded:
            expected.append(head)
    assert scores.select_random(3, exclude=excluded, published=True) == sorted(expected)
    assert scores.select_random(3, exclude=excluded, published=True, seed=1) != scores.ranking()


def test_select_random(scores):
    """Seeded, without repetition, never an excluded head, and each other head now and then."""
    excluded = scores.select(tau=0.3)
    drawn = [scores.select_random(2, exclude=excluded, seed=seed) for seed in range(60)]
    assert all(len(set(heads)) == 2 and heads == sorted(heads) for heads in drawn)
    assert {head for heads in drawn for head in heads} == set(scores.ranking()) - set(excluded)
    assert scores.select_random(2) == scores.select_random(2, seed=42)
    pool = [(0, 0), (0, 1), (1, 1)]  # by the formula, not as the authors do
    chosen = np.random.default_rng(8).choice(3, size=2, replace=False)
    assert scores.select_random(2, exclude=excluded, seed=8) == sorted(pool[i] for i in chosen)
    assert all(type(i) is int for head in scores.select_random(6) for i in head)
    with pytest.raises(UserError, match="4 random heads asked for, but only 3"):
        scores.select_random(4, exclude=excluded)


def test_a_level_is_a_share():
    scores = HeadScores(np.zeros((2, 1, 1)), "x")
    for level in (95, 1, 0):
        with pytest.raises(UserError, match=f"level={level}: a share is expected, such as 0.95"):
            scores.interval(level)


def test_interval_against_a_slow_bootstrap():
    """Draw needles with replacement, put their runs together, average; 4,000 times. Twelve needles
    are few: ends lie further out by Student's t for the normal quantile, and by a bias."""
    rng = np.random.default_rng(0)
    needles = np.repeat(np.arange(12), rng.integers(2, 9, 12))
    effect = rng.uniform(0, 0.6, (12, 2, 2))
    runs = effect[needles] + rng.uniform(0, 0.2, (len(needles), 2, 2))
    means = [np.concatenate([runs[needles == i] for i in rng.integers(0, 12, 12)]).mean(0)
             for _ in range(4000)]
    want = np.stack([np.quantile(means, q, axis=0) for q in (0.05, 0.95)], axis=-1)
    want += (np.sqrt(12 / 11) * 1.7959 / 1.64485 - 1) * (want - runs.mean(0)[..., None])
    clustered = HeadScores(runs, "m", needles).interval(0.9, resamples=4000)
    np.testing.assert_allclose(clustered, want, atol=0.01)
    below = HeadScores(runs - 1, "m", needles).interval(0.9, resamples=4000)  # a kind below 0
    np.testing.assert_allclose(below, want - 1, atol=0.01)
    single = HeadScores(runs, "m").interval(0.9)
    assert (np.ptp(single, axis=-1) < 0.8 * np.ptp(clustered, axis=-1)).all()


def test_statistics_are_of_the_draws_that_are_asked_for(scores):
    def highest(maps):
        return maps.max((-2, -1))

    drawn = highest(scores.draws(resamples=50, seed=3).round(DECIMALS))
    np.testing.assert_array_equal(scores.statistic(highest, resamples=50, seed=3),
                                  interval_of(drawn, bounds=SHARE, centred=True))
    assert scores.statistic(lambda maps: highest(maps) - 0.75).low == 0  # as of any share
    assert scores.statistic(lambda maps: highest(maps) - 0.75, bounds=(-1, 1)).low < 0


def test_seeds_that_nobody_names(scores):
    """Else a number in the book would not be found again from its scores."""
    def spread(maps):
        return maps.std((-2, -1))

    known = {"resamples": 2000, "seed": 0}
    np.testing.assert_array_equal(scores.draws(), scores.draws(**known, level=0.95))
    np.testing.assert_array_equal(scores.interval(), scores.interval(0.95, **known))
    assert scores.statistic(spread) == scores.statistic(spread, **known)
    assert not np.array_equal(scores.draws(), scores.draws(seed=1))


def test_draws_end_where_a_share_does():
    """Or where the runs do, of kinds of scores that are no shares."""
    runs = np.array([[[0.0, 1.0]]] * 2 + [[[0.1, 0.8]]])
    for made, ends in ((runs, (0, 1)), (2 * runs, (0, 2)), (runs - [0.2, 0], (-0.2, 1))):
        drawn = HeadScores(made, "m").draws()
        assert (drawn.min(), drawn.max()) == pytest.approx(ends)
    assert 0.5 < HeadScores(runs / 2, "m").draws().max() < 1  # more than in any run, but no share


def test_a_single_needle_has_no_interval(scores):
    """Also where the statistic would make a number of what cannot be drawn."""
    one = HeadScores(scores.runs, "m", np.zeros(3))
    found = one.statistic(lambda maps: (maps >= 0.3).mean((-2, -1)))
    assert found.value == 0.5 and np.isnan(found[1:]).all() and np.isnan(one.interval()).all()


def test_draws_of_a_statistic_are_moved_onto_its_value():
    """The highest mean of many equal heads is higher in draws than in the cases."""
    runs = np.random.default_rng(0).random((30, 8, 8))
    made = HeadScores(runs, "m")

    def highest(maps):
        return maps.max((-2, -1))

    draws = highest(made.draws(resamples=200).round(DECIMALS))
    value, rest = draws[0], draws[1:]
    low, middle, high = np.quantile(rest, [0.025, 0.5, 0.975])
    assert middle > value + 0.01
    np.testing.assert_allclose(made.statistic(highest, resamples=200),
                               (value, value - (middle - low), value + (high - middle)))


def test_no_needle_found_is_a_result(tmp_path):
    """The cases are there, and kept; every score says why there is none."""
    cases = pd.DataFrame({"needle": [0, 1], "success": False, "response": ["no", "idea"]})
    scores = HeadScores(np.zeros((0, 2, 3)), "m", np.zeros(0, int), cases)
    again = HeadScores.load(scores.save(str(tmp_path / "m.scores")))
    assert again.cases["response"].tolist() == ["no", "idea"] and again.success_rate.value == 0
    assert repr(again) == "HeadScores(m, copy: 2 layers x 3 heads, 0 successful runs of 2 cases)"
    for of in (lambda: again.mean, again.interval, again.ranking, lambda: again.select(tau=0.1),
               lambda: again.statistic(np.max), again.plot):
        with pytest.raises(UserError, match="m: no successful run"):
            of()


def test_saved_scores_come_back_whole(scores, tmp_path):
    cases = pd.DataFrame({"case": [*"abcd"], "needle": [0, 0, 1, 2], "rouge": [1, 0.9, 0.6, 0.1],
                          "success": [True, True, True, False], "response": [*"wxyz"]})
    whole = HeadScores(scores.runs, "a model", np.array(["x", "x", "y"], dtype=object), cases)
    again = HeadScores.load(whole.save(tmp_path / "a.scores"))
    pd.testing.assert_frame_equal(again.cases, cases)
    np.testing.assert_array_equal(again.runs, whole.runs)
    np.testing.assert_array_equal(again.interval(), whole.interval())
    assert (again.model, again.clusters.tolist()) == ("a model", ["x", "x", "y"])
    with pytest.warns(UserWarning, match="intervals from it are too narrow.*HeadScores.save"):
        whole.to_wu_json(tmp_path / "a.json")
    bare = HeadScores(scores.runs, "a model")
    assert HeadScores.load(bare.save(tmp_path / "b.scores")).clusters is None


def test_other_files_are_no_saved_scores(scores, tmp_path):
    scores.save(tmp_path / "new.scores")
    whole = (tmp_path / "new.scores").read_bytes()
    (tmp_path / "new.scores").write_bytes(whole.replace(b'"version": 2', b'"version": 7'))
    (tmp_path / "cut.scores").write_bytes(whole[:-9])
    (tmp_path / "a.json").write_text("{}")
    save_file({"runs": scores.runs}, tmp_path / "other.scores")
    for name, message in (("none", "cannot be read"), ("cut.scores", "not head scores"),
                          ("a.json", "not head scores"), ("new.scores", "version 7; .* version 2"),
                          ("other.scores", "not UTF-8")):
        with pytest.raises(UserError, match=message):
            HeadScores.load(tmp_path / name)
    with pytest.raises(UserError, match="cannot be written"):
        scores.save(tmp_path / "no" / "folder")


def test_the_interval_of_a_success_rate_stays_a_share():
    """Of 3 needles of which one is found in one case less: drawn means are spread beyond 1."""
    found = np.array([1, 1, 1, 1, 1, 0, 1, 1, 1], dtype=bool)
    cases = pd.DataFrame({"needle": np.arange(9) // 3, "success": found})
    rate = HeadScores(np.zeros((8, 1, 1)), "m", None, cases).success_rate
    assert rate.value == pytest.approx(8 / 9) and 0 < rate.low < rate.value < rate.high == 1


def test_plot_shows_every_head_and_outlines_those_chosen(scores):
    """Two layers of three heads, and three layers of two: layers go across."""
    for made in (scores, HeadScores(scores.runs.swapaxes(1, 2), "m")):
        axes = made.plot(tau=0.5).axes[0]
        mesh = axes.collections[0]
        np.testing.assert_array_equal(
            np.reshape(mesh.get_array(), made.mean.T.shape), made.mean.T)
        assert mesh.get_clim() == (0, scores.mean.max())
        assert axes.figure.axes[1].get_ylabel() == "retrieval score (copy)"
        assert [axes.get_xlabel(), axes.get_ylabel()] == ["layer", "head"]
        assert axes.yaxis_inverted()
        assert {patch.get_bbox().bounds for patch in axes.patches} == {
            (x - 0.5, y - 0.5, 1, 1) for x, y in np.argwhere(made.mean >= 0.5)}
        assert not any(patch.get_fill() for patch in axes.patches)
    below = HeadScores(scores.runs - 1, "m").plot().axes[0].collections[0]
    assert below.get_clim() == ((scores.mean - 1).min(), 0)
    assert scores.plot(axes=axes).axes[0] is axes
    whole = Figure()
    assert scores.plot(axes=whole.subfigures().subplots()) is whole
    made.plot().savefig(drawn := io.StringIO(), format="svg")
    assert "<image" not in drawn.getvalue(), "a picture of pixels, which blurs in print"


GOOD = {"0-0": [0.1, 0.2], "0-1": [0.3, 0], "1-0": [1, 1], "1-1": [0, 0]}


@pytest.mark.parametrize("text, message", [
    ("{", "not head scores"),
    (json.dumps({**GOOD, "first": [1, 2]}), "not head scores.*first"),
    (json.dumps({**GOOD, "1-1-1": [1, 2]}), "not head scores"),
    (json.dumps({**GOOD, "1-1": ["high", 1]}), "not head scores.*high"),
    (json.dumps({k: v for k, v in GOOD.items() if k != "0-1"}), "head 0-1 is missing"),
    (json.dumps({"0-0": [1], "0-123456789012": [1]}), "0-5 and 123456789006 more are missing"),
    (json.dumps({"0-0": [10**400]}), "too large"),
    (json.dumps({"3-1": [1, 1]}), "head 0-0, 0-1, 1-0, 1-1, 2-0 and 2 more are missing"),
    (json.dumps({**GOOD, "1-1": [0.5]}), r"different numbers of runs \(1 to 2\)"),
    pytest.param(json.dumps({**GOOD, "1-0": [float("nan"), 1]}), "head 1-0 is not finite",
                 marks=pytest.mark.fault("NaN in a score file", "as a score")),
    pytest.param(json.dumps({**GOOD, "1-0": [float("inf"), 1], "0-0": [float("nan"), 1]}),
                 "head 0-0, 1-0 are not finite",
                 marks=pytest.mark.fault("NaN in a score file", "infinity, or nothing")),
    (json.dumps({**GOOD, "1-0": [None, 1]}), "null is no number"),
    ('{"0-0": [0.1], "0-0": [0.2]}', "'0-0' occurs twice"),
    ('[["0-0", 0.1], ["0-0", 0.2]]', "a head occurs twice"),
    ('{"00-0": [0.1]}', "'00-0' is no head"), ('{"0-1_0": [0.1]}', "'0-1_0' is no head"),
    ('{"0--0": [0.1]}', "not head scores"), ('{"\u0660-0": [0.1]}', "is no head"),
    ('{"0-0": [-0.1]}', "go from 0 to 10"),
])
def test_malformed_json_is_told(tmp_path, text, message):
    (tmp_path / "heads.json").write_text(text)
    with pytest.raises(UserError, match=message):
        HeadScores.from_wu_json(tmp_path / "heads.json")


def test_json_of_another_model_or_none(tmp_path):
    (tmp_path / "heads.json").write_text(json.dumps(GOOD))
    with pytest.raises(UserError, match=r"2 layers x 2 heads, but the model has 2 x 3"):
        HeadScores.from_wu_json(tmp_path / "heads.json", shape=(2, 3))
    (tmp_path / "latin.json").write_bytes(b'{"0-0": "\xe9"}')
    for name, message in (("latin.json", "not UTF-8"), ("no.json", "No such file"),
                          (".", "no stored detection")):
        with pytest.raises(UserError, match=message):
            HeadScores.from_wu_json(tmp_path / name)


def test_some_cases_only():
    """Failed cases have no run: rows of cases and of runs must not be mixed up."""
    cases = pd.DataFrame({"length": [1, 1, 2, 2], "success": [True, False, False, True]})
    scores = HeadScores(np.array([[[1.0]], [[3.0]]]), "m", np.array([7, 8]), cases, "sink",
                        {"by": "me"})
    long = scores.where((cases["length"] == 2).to_numpy())
    assert long.mean[0, 0] == 3 and long.clusters.tolist() == [8] and len(long.cases) == 2
    assert (long.model, long.score, long.about) == ("m", "sink", {"by": "me"})


def test_a_seed_below_zero_is_refused():
    """NumPy knows none, and Python's generator takes -1 for 1."""
    scores = HeadScores(np.zeros((1, 2, 4)), "a model")
    for published in (False, True):
        with pytest.raises(UserError, match="seed: expected at least 0"):
            scores.select_random(2, seed=-1, published=published)
    with pytest.raises(UserError, match="top_k: expected numbers, got True"):
        scores.select(top_k=True)
