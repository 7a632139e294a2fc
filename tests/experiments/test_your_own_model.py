"""Forecasts of RetMask's gain: what a line says, and when it says nothing."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.your_own_model import NO_BETTER, NO_SLOPE, OUTSIDE, TOO_FEW, forecast
from rmutils.stats import fit_line


def models(sparsity, gain) -> pd.DataFrame:
    return pd.DataFrame({"model": map(str, range(len(sparsity))), "sparsity": sparsity,
                         "gain": gain})


GOOD = models([0.5, 0.6, 0.7, 0.8, 0.9], [1.0, 2.1, 2.9, 4.1, 5.0])


def test_prediction_intervals_hold_one_more_model_in_95_of_100_cases():
    """Drawn from lines with normal errors, also for a model beyond the others."""
    rng, held = np.random.default_rng(0), []
    for _ in range(300):
        x = rng.uniform(0, 1, 8)
        line = fit_line(x, 2 + 3 * x + rng.normal(0, 0.7, 8))
        new = np.array([0.5, 1.5])
        _, low, high = line.at(new)
        gains = 2 + 3 * new + rng.normal(0, 0.7, 2)
        held.append((low <= gains) & (gains <= high))
    assert 0.92 < np.mean(held) < 0.98


def test_leaving_out_by_hand():
    """Three points: the line through two of them, and the mean of two, predict the third."""
    line = fit_line([0.0, 1.0, 2.0], [1.0, 0.0, 1.0])
    assert line.errors() == pytest.approx(((2 + 1 + 2) / 3, (0.5 + 1 + 0.5) / 3))


def test_a_forecast_where_all_conditions_hold():
    found = forecast(GOOD, (0.75, 0.74, 0.76))
    assert not found.reasons and found.models == 5
    assert found.low < found.value < found.high and abs(found.value - 3.5) < 0.1
    exact = forecast(GOOD, (0.75, 0.75, 0.75))
    assert found.low < exact.low and exact.high < found.high  # its own sparsity is uncertain, too


@pytest.mark.parametrize(("known", "sparsity", "unmet"), [
    (GOOD[:3], 0.6, TOO_FEW),
    (models([0.5, 0.6, 0.7, 0.8], [1.0, 3.0, 1.0, 3.0]), 0.6, NO_SLOPE),
    (models([0.5, 0.6, 0.7, 0.8], [2.0, 3.0, 3.0, 2.0]), 0.6, NO_BETTER),
    (GOOD, 0.95, OUTSIDE), (GOOD[:2], 0.6, TOO_FEW), (pd.DataFrame(), 0.6, TOO_FEW)])
def test_unmet_conditions_are_named_where_there_is_no_forecast(known, sparsity, unmet):
    assert unmet in forecast(known, (sparsity,) * 3).reasons


def test_models_of_which_one_of_both_is_unknown_do_not_count():
    unknown = models([np.nan, 0.7], [9.0, np.nan])
    assert forecast(pd.concat([GOOD, unknown]), (0.75,) * 3).value == \
        forecast(GOOD, (0.75,) * 3).value
