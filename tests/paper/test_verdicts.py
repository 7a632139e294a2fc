"""The rule of the verdicts: hand-made effects with known truth against hand-made claims."""

import numpy as np
import pytest
from scipy import stats

from rmutils.book.verdicts import (
    AGAINST,
    BLIND,
    EXCLUDED,
    MARGIN,
    MODELS,
    NOT_RUN,
    PARTLY,
    QUANTITIES,
    REACHED,
    SHOWN,
    SMALLER,
    UNDECIDED,
    CannotShow,
    Claimed,
    Effect,
    Quantity,
    answers,
    blind_spot,
    quantity,
    together,
)
from rmutils.core.errors import UserError
from rmutils.paper.tables import load_tables
from rmutils.stats import Interval


def effect(low: float, high: float, value: float | None = None, clusters=1000) -> Effect:
    return Effect((low + high) / 2 if value is None else value, low, high, "points", (), clusters)


def verdicts(claimed: Claimed, *effects: Effect):
    return [answer.verdict for answer in answers([(one, claimed) for one in effects])]


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.1, 0.5, SHOWN), (-0.5, -0.1, AGAINST), (-0.1, 0.5, UNDECIDED), (0, 0, UNDECIDED),
    (-0.01, 0.5, UNDECIDED), (-0.5, 0.01, UNDECIDED), (1e-9, 1e-9, SHOWN),
    (np.nan, np.nan, UNDECIDED)])
def test_one_bound(low, high, expected):
    """The bound itself is not on the claimed side."""
    assert verdicts(Claimed(above=0), effect(low, high)) == [expected]
    assert verdicts(Claimed(below=0), effect(-high, -low)) == [expected]
    assert verdicts(Claimed(above=7), effect(low + 7, high + 7)) == [expected]


@pytest.mark.parametrize(("low", "high", "expected"), [
    (2.0, 4.0, REACHED), (3.0, 4.0, REACHED), (0.5, 4.06, REACHED),
    (0.1, 4.0, SHOWN),  # the estimate falls short, the interval does not
    (0.1, 2.0, SMALLER),
    (-1, 2.0, EXCLUDED), (-3, 2.9, UNDECIDED), (-1, 4, UNDECIDED), (-1, -0.5, AGAINST)])
def test_size(low, high, expected):
    assert verdicts(Claimed(above=0, size=2.28), effect(low, high)) == [expected]
    assert verdicts(Claimed(below=0, size=-2.28), effect(-high, -low)) == [expected]


@pytest.mark.parametrize(("low", "high", "expected"), [
    (0.05, 0.09, SHOWN), (0.01, 0.035, AGAINST), (0.11, 0.3, AGAINST), (0.15, 0.15, AGAINST),
    (0.03, 0.06, UNDECIDED), (0.085, 0.11, UNDECIDED), (0.0, 0.5, UNDECIDED)])
def test_two_bounds(low, high, expected):
    assert not any(map(Claimed(above=0.04, below=0.1).holds, (0.04, 0.1)))
    assert verdicts(Claimed(above=0.04, below=0.1), effect(low, high)) == [expected]


def test_parts_are_corrected_by_holm():
    """An interval of 1 around 1.25: z = 2.45 and p = 0.0143 by a table. Of three parts it must
    reach 0.05 / 3, and does; of four it does not. One that has no say does not count."""
    claimed, once, nothing = Claimed(above=0), effect(0.25, 2.25, 1.25), effect(-1, 1)
    assert verdicts(claimed, once, nothing, nothing)[0] == SHOWN
    assert verdicts(claimed, once, nothing, nothing, nothing)[0] == UNDECIDED
    deaf = effect(-1, 1, clusters=5)
    assert verdicts(claimed, once, nothing, nothing, deaf)[0] == SHOWN
    many = answers([(once, claimed), (nothing, claimed), (once, claimed)])
    assert many[0].p == pytest.approx(3 * 0.01429, rel=0.01)
    assert many[1].p == 1
    (against,) = answers([(effect(-2.25, -0.25, -1.25), claimed)])
    assert (against.verdict, against.p) == (AGAINST, pytest.approx(0.01429, rel=0.01))


def test_an_effect_that_is_there_may_be_smaller_than_claimed():
    for claimed, verdict in ((9, SMALLER), (2, REACHED), (2.2, SHOWN)):
        (found,) = answers([(effect(1, 3), Claimed(above=0, size=claimed))])
        assert (found.verdict, found.size_excluded) == (verdict, claimed == 9)


def test_a_p_of_exactly_five_percent_is_enough(monkeypatch):
    """As the plan says: p at most 0.05, of the direction and of the size."""
    monkeypatch.setattr(Effect, "p", lambda self, bound: 0.05)
    found = answers([(effect(1, 3), Claimed(above=0, size=9))])[0]
    assert (found.verdict, found.p, found.size_excluded) == (SMALLER, 0.05, True)
    monkeypatch.setattr(Effect, "p", lambda self, bound: np.nextafter(0.05, 1))
    found = answers([(effect(1, 3), Claimed(above=0, size=9))])[0]
    assert (found.verdict, found.size_excluded) == (UNDECIDED, False)


def test_a_function_becomes_a_quantity(monkeypatch):
    monkeypatch.setattr(QUANTITIES, "_known", {})

    def height(model, place="Foxmoor"):
        """Height."""

    assert quantity("{effect} in {place}")(height) is height
    assert QUANTITIES["height"] == Quantity(height, "{effect} in {place}", 1)
    assert QUANTITIES["height"].said("m") == "{effect} in Foxmoor"
    assert quantity("{effect}", scale=10)(len) is len and QUANTITIES["len"].scale == 10


def test_as_many_models_as_a_correlation_of_half_the_variance_takes():
    """The smallest r that differs from zero (5 %, two-sided) with so many, and with one less."""
    least = [t / (n - 2 + t**2) ** 0.5 for n in (MODELS, MODELS - 1)
             for t in [stats.t.ppf(0.975, n - 2)]]
    assert least[0] ** 2 == pytest.approx(0.5, abs=0.001) and least[1] ** 2 > 0.55


def test_what_has_no_say():
    """Five clusters cannot reach 0.05: two of 32 patterns of signs are the most extreme."""
    few = effect(1, 2, clusters=5)
    assert few.blocked.startswith("5 independent cases") and "0.062" in few.blocked
    assert verdicts(Claimed(above=0), few, effect(1, 2, clusters=6)) == [BLIND, SHOWN]
    (blind,) = answers([(few, Claimed(above=0))])
    assert np.isnan(blind.p) and blind.size_excluded is False
    count = Effect(0.11, 0.11, 0.11, "share", (), None)  # all there are
    assert verdicts(Claimed(above=0.04, below=0.1), count) == [AGAINST]
    silent = CannotShow("nothing moves", "points", ["a"]).effect
    assert verdicts(Claimed(above=0), silent) == [BLIND] and silent.blocked == "nothing moves"
    assert str(CannotShow("nothing moves", "points", [])) == "nothing moves"
    assert (silent.unit, silent.artifacts, silent.note) == ("points", ("a",), "")
    assert np.isnan([silent.value, silent.low, silent.high]).all()
    assert Effect.of(Interval(1, 0, 2), "points", ["a"], 9) == Effect(
        1, 0, 2, "points", ("a",), 9, note="", blind="")


@pytest.mark.parametrize(("before", "chance", "said"), [
    (50, 25, ""), (50, 50 - MARGIN, ""), (100 - MARGIN, 0, ""),
    (50, 50.1 - MARGIN, "hardly better than blind guessing (50.0 of 100 against 44.5)"),
    (99, 0, "close to the ceiling"), (100.01 - MARGIN, 0, "close to the ceiling"),
    (99, 99 - MARGIN, "close to the ceiling"),
    (0, 0, "no better than")])
def test_a_score_needs_room(before, chance, said):
    found = blind_spot(before, chance, "Cite")
    assert (found == "") == (said == "") and said in found
    assert (blind_spot(before, chance, "Cite", ceiling=False) == "") == (before - chance >= MARGIN)


def test_a_constant_answer_is_named():
    said = blind_spot(19, 19, "Re-rank", same=1, answer="[2] > [1]")
    assert said == "Re-rank: the untrained model answers '[2] > [1]' to 100% of the questions"
    assert "answers '' to 95% of" in blind_spot(19, 19, "Re-rank", same=0.95)
    assert not blind_spot(50, 19, "Re-rank", same=0.95, answer="[2] > [1]")  # it still may move


def test_the_margin_is_the_largest_gain_that_the_paper_reports():
    cells = load_tables().query("source == 'en' and table == 2")
    wide = cells.pivot_table(index=["group", "column"], columns="row", values="value")
    assert round((wide["RetMask"] - wide["Before"]).max(), 2) == MARGIN


@pytest.mark.parametrize(("parts", "expected"), [
    ([SHOWN], SHOWN), ([REACHED], REACHED), ([SHOWN, REACHED], SHOWN), ([SMALLER, SHOWN], SMALLER),
    ([AGAINST], AGAINST),
    ([SHOWN, UNDECIDED], PARTLY), ([SHOWN, AGAINST], PARTLY), ([SHOWN, BLIND], PARTLY),
    ([SHOWN, UNDECIDED, UNDECIDED], UNDECIDED), ([SHOWN] * 2 + [UNDECIDED] * 2, PARTLY),
    ([AGAINST] + [UNDECIDED] * 15, UNDECIDED), ([AGAINST] * 8 + [UNDECIDED] * 8, AGAINST),
    ([SHOWN, AGAINST, AGAINST], AGAINST), ([BLIND] * 3 + [SHOWN], BLIND), ([BLIND], BLIND),
    ([EXCLUDED, UNDECIDED], EXCLUDED), ([EXCLUDED, UNDECIDED, UNDECIDED], UNDECIDED),
    ([EXCLUDED, BLIND], EXCLUDED), ([UNDECIDED] * 2, UNDECIDED), ([SHOWN, NOT_RUN], NOT_RUN)])
def test_parts_together(parts, expected):
    assert together(parts) == together(parts[::-1]) == expected


def test_nothing_is_shown_where_nothing_is():
    """Of 400 claims with four parts and no effect, at most about 5 % show a part."""
    rng = np.random.default_rng(0)
    found = 0
    for values in rng.normal(size=(400, 4)):
        parts = [effect(v - 1.96, v + 1.96, v) for v in values]
        found += SHOWN in (said := verdicts(Claimed(above=0), *parts)) or AGAINST in said
    assert found / 400 < 0.08


@pytest.mark.parametrize("wrong", [
    {}, {"size": 1}, {"above": 1, "below": 1}, {"above": 2, "below": 1}, {"above": 0, "size": -1},
    {"above": 0, "size": 0}, {"below": 0, "size": 0},
    {"above": 0, "below": 1, "size": 0.5}, {"over": 0}])
def test_claims_that_make_no_sense(wrong):
    with pytest.raises(UserError):
        Claimed(**wrong)
