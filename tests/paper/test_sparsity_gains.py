"""The paper's points, with gains worked out from the printed tables by hand."""

import pytest

from rmutils.paper.gains import sparsity_gains


def test_gains_by_hand():
    table = sparsity_gains().set_index("model")
    # Table 1, Llama: 58.14 - 56.03, 56.92 - 54.14, 53.48 - 52.42, 53.15 - 51.65, 48.68 - 46.40
    assert table.loc["Llama-3.1-8B-Instruct", "gain"] == pytest.approx(
        (2.11 + 2.78 + 1.06 + 1.50 + 2.28) / 5)
    # Table 4, four lengths only: 46.69 - 46.53, 46.07 - 45.83, 43.09 - 42.41, 35.54 - 35.07
    assert table.loc["Olmo-3-7B-Think", "gain"] == pytest.approx((0.16 + 0.24 + 0.68 + 0.47) / 4)
    assert list(table.index[table["sparsity"].isna()]) == ["Olmo-3-7B-Instruct"]
