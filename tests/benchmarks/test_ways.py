"""What is timed side by side computes the same."""

import pytest

from benchmarks import ways
from benchmarks.watching import Asked, arithmetic, groups, measure
from rmutils import load_model


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
