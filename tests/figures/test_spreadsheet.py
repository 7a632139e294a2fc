"""CSV: what a program reads back is what the table held, and a spreadsheet runs none of it."""

import csv
import io

import numpy as np
import pandas as pd
import pytest

from rmutils.book.figures.report import number
from rmutils.core.files import to_csv


def rows(frame: pd.DataFrame) -> list[list[str]]:
    return list(csv.reader(io.StringIO(to_csv(frame))))


def test_numbers_keep_all_their_digits():
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    frame = pd.DataFrame({"x": values, "n": range(50)})
    read = pd.read_csv(io.StringIO(to_csv(frame)))
    pd.testing.assert_frame_equal(read, frame, check_exact=True)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_no_cell_and_no_name_is_a_formula(start):
    text = f'{start}HYPERLINK("x","y"),\n2'
    assert rows(pd.DataFrame({text: [text]})) == [[f"'{text}"], [f"'{text}"]]


def test_harmless_text_stays_as_it_is():
    frame = pd.DataFrame({"a-b": ["'tis", "1-2", "–", "a,\"b\"\nc", None], "x": [-1.5, 2, 3, 4, 5]})
    assert rows(frame) == [["a-b", "x"], ["'tis", "-1.5"], ["1-2", "2.0"], ["–", "3.0"],
                           ['a,"b"\nc', "4.0"], ["", "5.0"]]


def test_a_number_with_its_interval_becomes_three_columns():
    cells = [number(-0.6123, -0.75, -0.5), number(12, 10, 15), "–", number(1.5), "near 1 [0, 2]"]
    assert rows(pd.DataFrame({"score": cells})) == [
        ["score", "score, low", "score, high"], ["-0.61", "-0.75", "-0.50"], ["12", "10", "15"],
        ["–", "", ""], ["1.5", "", ""], ["near 1 [0, 2]", "", ""]]


def test_columns_of_one_name_stay_apart():
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    assert rows(frame) == [["a", "b", "a (2)"], ["1", "2", "3"]]
