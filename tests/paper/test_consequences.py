"""What the audit says about sentences and gains, on hand-made findings and on the real ones."""

import math

import pandas as pd

from rmutils.paper.comparisons import beside_gains, sentences


def _findings(*lines: tuple) -> pd.DataFrame:
    columns = ["check", "what", "place_a", "place_b", "difference", "agrees"]
    return pd.DataFrame(lines, columns=columns)


def test_a_sentence_is_counted_once_for_all_its_comparisons():
    found = sentences(_findings(
        ("statement", "M, 8K: A above B (en Section 1: A (ours) is best)", "", "", -1.0, False),
        ("statement", "M, 16K: A above B (en Section 1: A (ours) is best)", "", "", 1.0, True),
        ("gain in the text", "M, A, B, 8K", "en Abstract: +2", "en Table 1", 0.0, True),
        ("same cell", "M, Average", "en Table 1", "en Table 2", 1.0, False),
    ))
    assert found.values.tolist() == [["en Section 1: A (ours) is best", 2, 1],
                                     ["en Abstract: +2", 1, 0]]


def test_disagreements_beside_gains():
    tables = pd.DataFrame(
        [("en", table, model, row, column, value)
         for table, model, row, column, value in (
             (1, "M", "Before", "8K", 10.0), (1, "M", "RetMask", "8K", 12.0),
             (1, "M", "Before", "16K", 10.0), (1, "M", "RetMask", "16K", 10.5),
             (4, "N", "Before", "8K", 1.0), (4, "N", "RetMask", "8K", 0.0),
             (2, "M", "RetMask", "8K", 99.0))],
        columns=["source", "table", "group", "row", "column", "value"])
    beside = beside_gains(_findings(
        ("same cell", "M, RetMask, 8K, Average", "", "", -0.7, False),
        ("mean of tasks", "M, Before, 8K, Average", "", "", 0.2, False),
        ("same cell", "M, Before, 8K, Cite", "", "", 0.001, True),
        ("English against Japanese", "M, RetMask, MT-Bench", "", "", 5.0, False),
    ), tables)
    assert beside.iloc[0].tolist() == ["M", 0.5, 2.0, 2, 0.7]
    assert beside.iloc[1].tolist()[:4] == ["N", -1.0, -1.0, 0]
    assert math.isnan(beside.iloc[1]["largest"])
