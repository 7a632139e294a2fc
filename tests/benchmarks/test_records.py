"""Benchmarks: rows are kept and distinguished, and what is timed side by side computes the same."""

import json
import math

import numpy as np
import pytest

from benchmarks import llama_cpp, ways
from benchmarks.detection import Settings
from benchmarks.measuring import OTHERS
from benchmarks.records import Results
from benchmarks.watching import Asked, arithmetic, groups, measure
from rmutils import load_model
from rmutils.book.chapters import speed as tables
from rmutils.book.chapters.speed import load, middle, ratio
from tests.faults.table import LONG


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


@pytest.fixture(scope="module")
def lm():
    return load_model("tiny-llama")


@pytest.fixture(scope="module")
def cases(lm):
    (found,) = groups(lm, Asked(lengths=(256,), depths=(0.0, 0.5, 1.0)))
    return found


@pytest.fixture(scope="module")
def reference(lm, cases):
    return list(ways.two_phase(lm, cases, 50, lm.stop_ids))


def test_detection_says_and_counts_what_the_published_algorithm_does(lm, cases, reference):
    runs = list(ways.ours(lm, cases, 50, lm.stop_ids))
    assert [run.said for run in runs] == [run.said for run in reference]
    assert [run.copied for run in runs] == [run.copied for run in reference]
    assert all(run.copied for run in runs), "nothing was copied, so nothing is compared"
    made, steps = (round(sum(shares)) for shares in zip(*(run.passes for run in runs), strict=True))
    assert steps == max(len(run.said) for run in runs) + 1 > made > 1


def test_all_attention_of_generate_says_the_same(lm, cases, reference):
    runs = list(ways.all_attentions(lm, cases, 50, lm.stop_ids))
    assert [(run.said, run.copied) for run in runs] == \
        [(run.said, run.copied) for run in reference]
    plain = list(ways.generate(lm, cases, 50, lm.stop_ids))
    assert [run.said for run in plain] == [run.said for run in reference]
    assert plain[0].copied is None


def test_published_algorithm_goes_on_after_the_end_of_an_answer(reference):
    assert all(run.steps == 50 > len(run.said) for run in reference)


def test_a_row_has_a_sample_per_case_or_per_round(lm, cases):
    asked = Asked(lengths=(256,), depths=(0.0, 0.5, 1.0), new_tokens=2, rounds=2)
    ours, other = (measure(lm, way, cases, asked) for way in ("rmutils", "plain generation"))
    assert len(ours["prefill"]) == len(ours["decode"]) == 2 and len(ours["said"]) == 3
    assert len(other["prefill"]) == 3 and other["copied"] is None
    assert ours["said"] == other["said"]
    assert ours["base_mib"] <= ours["peak_mib"]


def test_arithmetic_counts_each_product_once(lm):
    """Per token and layer: query, key, value, output and the three of the MLP; attention twice."""
    config, tokens = lm.model.config, 7
    width = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    weights = config.hidden_size * (2 * width + 2 * keys + 3 * config.intermediate_size)
    attention = 2 * 2 * width * tokens**2 / 2  # two products, half of them masked
    expected = config.num_hidden_layers * (2 * weights * tokens + attention) \
        + 2 * config.hidden_size * config.vocab_size
    assert arithmetic(lm, tokens) == expected


def test_agreement_by_hand():
    """At one of two positions the same token; the divergence of two tokens, of 1/2 and of 3/4."""
    ours, theirs = np.log([[3, 1], [1, 1.1]]), np.log([[3, 1], [3, 1]])
    found = llama_cpp.agreement(ours, theirs)
    p = 1 / 2.1
    nats = p * math.log(p / 0.75) + (1 - p) * math.log((1 - p) / 0.25)
    assert (found["positions"], found["top"]) == (2, 0.5)
    assert found["kl"] == pytest.approx(nats / 2) and found["kl_most"] == pytest.approx(nats)


@pytest.mark.skipif(not (LONG and OTHERS.exists()),
                    reason="takes a minute, after `make bench`: RMUTILS_FAULTS=long")
def test_llama_cpp_reads_the_same(tmp_path):
    """It rounds activations to eight bits, so numbers differ a little, and now and then a token;
    of the same weights as float32 it rounds nothing."""
    settings = llama_cpp.Settings(**llama_cpp.QUICK)
    assert llama_cpp.measure(settings, tmp_path)
    found = {row["what"]: row for row in Results("llama_cpp", settings, tmp_path).rows}
    assert found["agreement"]["top"] >= 0.95 and found["agreement"]["kl"] < 0.02
    assert len({*found["answers"]["found"]}) == 1
    assert found["exact"]["top"] == 1 and found["exact"]["kl"] < 1e-5
