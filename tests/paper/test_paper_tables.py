"""The transcription: complete, in the layout that is promised, and refused when damaged."""

import shutil

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.paper import load_tables
from rmutils.paper.tables import PAPER, printed_table


@pytest.fixture
def folder(tmp_path):
    """A copy of the transcription to damage."""
    return shutil.copytree(PAPER, tmp_path / "paper")


def test_columns_and_types():
    tables = load_tables()
    assert tables.columns.tolist() == ["source", "table", "group", "row", "column", "value"]
    assert tables.table.dtype.kind == "i"
    assert tables.value.dtype.kind == "f"
    assert tables.value.notna().all()
    assert not tables.duplicated(["source", "table", "group", "row", "column"]).any()


@pytest.mark.parametrize(("source", "table", "group", "row", "digits"), [
    ("en", 1, "Qwen3-8B", "Random-Mask", "49.99 47.02 45.76 43.85 45.86"),
    ("ja", 2, "Qwen3-8B", "Random-Mask", "49.99 47.02 45.75 43.85 45.86"),
    ("en", 5, "Llama-3.1-8B-Instruct", "RetMask", "48.83 95.81 59.63 6.10 19.27 85.32 41.87 33.83"),
    ("en", 6, "Olmo-3-7B-Think", "After", "0.63 0.52 0.96 0.94 0.63"),
    ("ja", 6, "Olmo-3-7B-Think", "After", "0.64 0.53 0.95 0.93 0.63"),
    ("en", 11, "Guru-RL-92K", "RetMask", "41.59 60.38 53.58 13.53 16.93 81.92 47.43 17.40"),
    ("en", 12, "LMSYS-Chat-1M", "Llama-3.1-8B-Instruct", "294121 63.62 494.69"),
    ("ja", 3, "Olmo-3-7B-Think", "Non-Retrieval-Mask", "45.54 44.65 42.95 34.22"),
])
def test_rows_read_from_the_page(source, table, group, row, digits):
    assert printed_table(source, table).loc[(group, row)].tolist() == digits.split()


def test_table_7_splits_its_headings_into_model_and_length():
    assert printed_table("en", 7).loc[("Qwen3-8B", "0.05")].to_dict() == {"128K": "41.82",
                                                                        "64K": ""}


def test_round_trip(tmp_path):
    load_tables().to_csv(tmp_path / "tables.csv", index=False)
    pd.testing.assert_frame_equal(load_tables(tmp_path), load_tables())


@pytest.mark.parametrize(("damage", "message"), [
    (lambda s: s.replace("column,value", "column", 1), "line 1: columns are"),
    (lambda s: s.replace("source,table", "table,source", 1), "line 1: columns are"),
    (lambda s: s.replace(",56.03", ",56.O3", 1), "line 2: value: '56.O3' is not a number"),
    (lambda s: s.replace(",56.03", ",", 1), "line 2: value"),
    (lambda s: s.replace(",56.03", "", 1), "line 2: 5 fields, expected 6"),
    (lambda s: s.replace("en,1,", "en,one,", 1), "line 2: table is 'one'"),
    (lambda s: s + s.splitlines()[1] + "\n", "line 630: .* is already on line 2"),
    (lambda s: "", "line 1"),
])
def test_damaged_tables_are_refused(folder, damage, message):
    path = folder / "tables.csv"
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match=rf"tables\.csv, {message}"):
        load_tables(folder)


def test_missing_and_undecodable_files_are_named(folder):
    (folder / "tables.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"tables\.csv is not a CSV file in UTF-8"):
        load_tables(folder)
    (folder / "tables.csv").unlink()
    with pytest.raises(UserError, match=r"tables\.csv does not exist"):
        load_tables(folder)


def test_a_table_that_does_not_exist():
    with pytest.raises(UserError, match="no Table 8 in source 'ja'"):
        printed_table("ja", 8)
