"""Table 6 against its own digits, and the yardstick of chance against a simulation."""

import numpy as np
import pandas as pd
import pytest

from rmutils.paper import load_tables
from rmutils.paper.gains import general_gains


@pytest.mark.parametrize("source, models", [("en", 4), ("ja", 3)])
def test_gains_are_those_of_the_table(source, models):
    found = general_gains(source)
    assert len(found) == 5 * models
    cells = load_tables().query("source == @source and table == 6").set_index(
        ["group", "column", "row"])["value"]
    for row in found.itertuples():
        before, after = (cells[row.model, row.benchmark, when] for when in ("Before", "After"))
        assert (row.before, row.after) == pytest.approx((100 * before, 100 * after))
        assert row.gain == pytest.approx(100 * (after - before))
        assert (row.low, row.high) == pytest.approx((row.gain - 1, row.gain + 1))


def test_chance_as_coins_fall():
    """GPQA of Llama-3.1: 25 and 33 of a hundred, 198 questions."""
    found = general_gains().set_index(["model", "benchmark"])
    row = found.loc["Llama-3.1-8B-Instruct", "GPQA"]
    assert row["questions"] == 198
    rng = np.random.default_rng(0)
    gains = 100 * (rng.binomial(198, 0.33, 40000) - rng.binomial(198, 0.25, 40000)) / 198
    assert row["chance"] == pytest.approx(1.96 * gains.std(), rel=0.02)
    mt_bench = found.xs("MT-Bench", level="benchmark")
    assert pd.isna(mt_bench["chance"]).all() and pd.isna(mt_bench["questions"]).all()
