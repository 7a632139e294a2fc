"""The gains of section 5.3, against arithmetic by hand."""

import itertools

import pytest

from rmutils.paper import load_published_scores
from rmutils.paper.gains import score_gains


@pytest.fixture(scope="module")
def gains():
    return score_gains().set_index("quantity")[["value", "low", "high"]]


def test_printed_numbers_by_hand(gains):
    """40 heads of 1,024 gain 0.051, the others 0.001; the mean goes from 0.017 to 0.020."""
    assert gains["value"][:4].tolist() == pytest.approx(
        [0.003, (40 * 0.051 + 984 * 0.001) / 1024, 0.003 / 0.017, 2.04 / (2.04 + 0.984)])
    low, high = gains.loc["relative gain of the mean", ["low", "high"]]
    assert (low, high) == pytest.approx((0.0195 / 0.0175 - 1, 0.0205 / 0.0165 - 1))


def test_range_of_the_share_holds_all_that_the_digits_allow(gains):
    corners = [40 * masked / (40 * masked + 984 * other) for masked, other in
               itertools.product((0.0505, 0.0515), (0.0005, 0.0015))]
    low, high = gains.loc["share of the gain in masked heads", ["low", "high"]]
    assert (low, high) == pytest.approx((min(corners), max(corners)))


def test_groups_before_come_from_the_published_scores(gains):
    """What both groups had before, and gained, adds up to the whole again."""
    scores = load_published_scores().query("model == 'Llama-3.1-8B-Instruct'")["mean"]
    top = 0.051 / gains.loc["relative gain of masked heads", "value"]
    rest = 0.001 / gains.loc["relative gain of other heads", "value"]
    assert 40 * top + 984 * rest == pytest.approx(scores.sum())
    assert gains.loc["share of the scores in masked heads", "value"] == pytest.approx(
        40 * top / scores.sum())
    assert top == pytest.approx(scores.nlargest(40).mean())
