"""Results of benchmarks are kept, told apart, and read back."""

import json
import math

import numpy as np
import pytest

from benchmarks.detection import Settings
from benchmarks.records import Results
from rmutils.book.chapters import speed as tables
from rmutils.book.chapters.speed import load, middle, ratio


def row(way, length, seconds, **more):
    return {"way": way, "length": length, "cases": [f"00-{length}-0.0"] * len(seconds),
            "prefill": seconds, "decode": [1.0] * len(seconds), "steps": [3] * len(seconds),
            "said": ["a"] * len(seconds), "copied": {"0-1": 2}, **more}


@pytest.fixture
def kept(tmp_path):
    def make(*rows):
        results = Results("detection", Settings(), tmp_path)
        for one in rows:
            results.add(one)
        return load("detection", tmp_path)

    return make


def test_rows_are_kept_for_the_same_settings_on_the_same_machine_only(tmp_path, kept):
    kept(row("rmutils", 512, [1.0]))
    again = Results("detection", Settings(), tmp_path)
    assert list(again.find(way="rmutils", length=512)) and not list(again.find(length=1024))
    assert not Results("detection", Settings(rounds=7), tmp_path).rows
    record = json.loads((tmp_path / "detection.json").read_text())
    record["environment"]["hardware"] = "another machine"
    (tmp_path / "detection.json").write_text(json.dumps(record))
    assert not Results("detection", Settings(), tmp_path).rows


def test_ratios_are_of_geometric_means_and_turn_round():
    assert middle([1.0, 4.0])[0] == pytest.approx(2)
    value, low, high = ratio([2.0, 2.2, 1.9], [1.0, 1.1, 0.9])
    other = ratio([1.0, 1.1, 0.9], [2.0, 2.2, 1.9])
    assert low < value < high and value == pytest.approx(1 / other[0])
    assert ratio([3.0, 3.0], [1.0, 1.0]) == pytest.approx((3, 3, 3))
    assert all(map(math.isnan, ratio([3.0], [1.0, 2.0])[1:]))


def test_what_differs_from_the_reference_is_told(kept):
    found = kept(
        row("two-phase", 512, [1.0, 1.0]), row("rmutils", 512, [1.0, 1.0]),
        row("nnsight", 512, [1.0, 1.0], said=["a", "b"], copied={"0-1": 3, "2-2": 1}),
        row("plain generation", 512, [1.0, 1.0], copied=None),
        {"way": "output_attentions", "length": 512, "cases": ["x"], "failed": "out of memory"})
    table = tables.differences(found).set_index("way")
    assert table.loc["rmutils", ["answers", "heads"]].tolist() == [0, 0]
    assert table.loc["nnsight", ["answers", "heads"]].tolist() == [1, 2]
    assert np.isnan(table.loc["plain generation", "heads"])
    assert table.loc["output_attentions", "failed"] == "out of memory"


def test_cost_and_floor_of_a_case(kept):
    found = kept(
        {"way": "matrix products", "length": 0, "rates": [1e9, 1e9]},
        row("rmutils", 512, [1.0, 1.0]), row("two-phase", 512, [4.0, 4.0], arithmetic=[2e9, 2e9]))
    costs = tables.costs_at(found, 512).set_index(["way", "quantity"])["value"]
    assert costs["two-phase", "both, times rmutils"] == pytest.approx(5 / 2)
    floor = tables.floor(found).set_index("way")
    assert floor.loc["plain reading", "floor"] == pytest.approx(2)
    assert floor.loc["plain reading", "share"] == pytest.approx((0.5, 0.5, 0.5))
    assert floor.loc["rmutils", "times"] == pytest.approx((0.5, 0.5, 0.5))


def test_growth_is_beside_that_of_plain_reading(kept):
    """Ours grows from 2 to 8 seconds, reading from 2 to 4; a goal allows no more than alike."""
    found = kept(row("rmutils", 512, [1.0, 1.0]), row("two-phase", 512, [2.0, 2.0]),
                 row("rmutils", 4096, [7.0, 7.0]), row("two-phase", 4096, [4.0, 4.0]))
    assert tables.reading_growth(found) == pytest.approx((2, 2, 2))


def test_sampled_cases_of_the_grid_stand_for_those_of_their_length(kept):
    """Two lengths with three cases each; the reference ran two of one and one of the other."""
    def share(way, cases, prefill):
        return {**row(way, 300, prefill), "needle": 1, "cases": cases}

    ours = [f"01-{n}-{d}" for n in (100, 300) for d in ("0.0", "0.5", "1.0")]
    found = kept(share("rmutils", ours, [1.0]),
                 share("two-phase", ["01-100-0.0", "01-100-1.0", "01-300-0.5"], [1.0, 2.0, 9.0]))
    (one,) = tables.grid_shares(found).to_dict("records")
    assert one["ours"] == pytest.approx(6 * 2) and one["sampled"] == 3
    assert one["reference"] == pytest.approx(3 * 2.5 + 3 * 10)
    assert one["ratio"] == pytest.approx(37.5 / 12)
