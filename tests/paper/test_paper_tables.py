"""The transcription: complete, in the promised layout, refused when damaged; its command."""

import json
import shutil

import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.cli.paper_commands import paper_app
from rmutils.core.errors import UserError
from rmutils.paper import audit, load_tables
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


def run(*arguments: str) -> str:
    result = CliRunner().invoke(paper_app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tables_keep_their_digits():
    shown = run("tables", "--source", "en", "--table", "9")
    assert shown.startswith("en Table 9\n")
    assert "37.34" in shown
    assert "46.40" in shown


def test_tables_as_json():
    records = json.loads(run("tables", "--source", "ja", "--json"))
    tables = load_tables()
    assert records == json.loads(tables[tables.source == "ja"].to_json(orient="records"))


def test_audit_as_text_and_as_json():
    findings = audit()
    disagree = int((~findings.agrees).sum())
    shown = run("audit")
    assert shown.count("(disagrees)") == disagree
    assert shown.endswith(f"{disagree} of {len(findings)} comparisons disagree.\n")
    assert run("audit", "--all").count("(agrees)") == len(findings) - disagree
    assert len(json.loads(run("audit", "--json"))) == disagree
    assert len(json.loads(run("audit", "--json", "--all"))) == len(findings)


def test_bad_usage():
    with pytest.raises(UserError, match="no Table 13"):
        run("tables", "--table", "13")
    assert CliRunner().invoke(paper_app, ["tables", "--source", "fr"]).exit_code == 2
