"""The roofline of a step, by hand from the sizes of Llama 3.1 8B."""

import pytest

from rmutils.book.experiments.run_costs import H100, LLAMA_8B, roofline, step


def test_a_plain_step_reads_all_weights_and_keys():
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
    numbers = 32 * layer + 4096 * 128256 + 32 * 2 * 8 * 128 * 10_000
    found = step(LLAMA_8B, H100, 10_000)
    assert found["memory"] == pytest.approx(2 * numbers / 3.35e12)
    assert found["bound"] == found["memory"] > found["arithmetic"]
    assert found["held"] == 131_072 * 10_000  # 128 KiB a token


def test_selected_tokens_pass_through_later_layers_again():
    table = roofline([10_000], [0.01, 0.1, 1]).set_index("kept")
    one = table.loc[0.1]
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
    assert one["arithmetic"] == pytest.approx(2 * 16 * layer * 1000 / 989e12, rel=0.1)
    assert table["times"].is_monotonic_increasing and table.loc[0.01, "times"] < 1
    assert table.loc[1, "times"] > 10
    assert one["held_share"] == pytest.approx(18 / 32)  # half of the layers, and hidden states
