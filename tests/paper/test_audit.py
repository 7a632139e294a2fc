"""The audit: against numbers worked by hand, a slow recomputation, and tampered copies."""

import math
import shutil

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.paper import audit, load_tables
from rmutils.paper.comparisons import TASKS, beside_gains, sentences
from rmutils.paper.tables import PAPER

COLUMNS = ["check", "what", "value_a", "place_a", "value_b", "place_b", "tolerance", "agrees",
           "difference"]


@pytest.fixture(scope="module")
def findings():
    return audit()


@pytest.fixture
def tampered(tmp_path):
    """Audit a copy of the transcription in which one line of one file is replaced."""
    folder = shutil.copytree(PAPER, tmp_path / "paper")

    def audit_with(file: str, old: str, new: str):
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new))
        return audit(folder)

    return audit_with


def disagreements(findings, check=None):
    chosen = findings[~findings.agrees & (findings.check == (check or findings.check))]
    return set(zip(chosen.check, chosen.place_a, chosen.place_b, strict=True))


def line(findings, *words):
    """The one finding that has all these words in its texts."""
    text = findings.what + findings.place_a + findings.place_b
    found = findings[[all(word in t for word in words) for t in text]]
    assert len(found) == 1
    return found.iloc[0]


def test_columns_and_types(findings):
    assert findings.columns.tolist() == COLUMNS
    assert findings.agrees.dtype == bool
    assert (findings[["check", "what", "place_a", "place_b"]] != "").all(axis=None)
    assert (findings.tolerance >= 0).all()


def test_average_worked_by_hand(findings):
    """Table 8, Random-Mask: 314.24 / 7 = 44.891, printed 45.37."""
    finding = line(findings[findings.check == "mean of tasks"],
                   "en Table 8: Qwen3-8B / Random-Mask / mean",
                   "en Table 8: Qwen3-8B / Random-Mask / Average")
    assert finding.value_a == pytest.approx(44.8914, abs=1e-4)
    assert finding.value_b == 45.37
    assert finding.tolerance == pytest.approx(0.01)
    assert not finding.agrees


def test_averages_against_a_plain_recomputation(findings):
    """Each row of a table with an Average column, in floats."""
    tables = load_tables()
    wide = tables[tables.table.isin([2, 5, 8, 11]) & (tables.source == "en")].pivot(
        index=["table", "group", "row"], columns="column", values="value")
    off = (wide[list(TASKS)].mean(axis=1) - wide.Average).abs() > 0.01 - 1e-9
    expected = {f"en Table {t}: {g} / {r} / Average" for t, g, r in wide[off].index}
    found = {b for _, a, b in disagreements(findings, "mean of tasks")
             if a.rsplit(" / ", 1)[0] == b.rsplit(" / ", 1)[0]}
    assert found == expected


@pytest.mark.parametrize(("words", "values"), [
    (["en Table 1: Qwen3-8B / Random-Mask / 128K", "en Table 8: Qwen3-8B / Random-Mask / Average",
      "GPT-4o"], (45.86, 45.37)),
    (["en Table 1", "ja Table 2: Qwen3-8B / Random-Mask / 32K"], (45.76, 45.75)),
    (["RetMask* above LongReward", "64K"], (51.97, 52.14)),
    (["Recall", "bold", "en Table 5"], (96.75, 96.38)),
    (["Llama-3.1-8B-Instruct: smaller model"], ("Llama-3.2-3B-Instruct", "Llama-3.1-3B-Instruct")),
    (["published", "Llama-3.1-8B-Instruct: heads at or above tau"], (33, 40)),
    (["published", "Qwen3-8B: heads at or above tau"], (98, 79)),
    (["0.24 points", "en Table 8"], (0.24, -0.25)),
])
def test_disagreements_seen_on_the_page_are_found(findings, words, values):
    finding = line(findings[~findings.agrees & ~findings.check.eq("mean of tasks")], *words)
    assert (finding.value_a, finding.value_b) == values


@pytest.mark.parametrize(("check", "words", "value"), [
    ("relative gain in the text", ["17.6% relative"], 100 * 3 / 17),
    ("relative gain in the text", ["70% relative", "en Table 2"], 100 * (5.25 / 3.09 - 1)),
    ("mean gain", ["en Section 5.3"], (40 * 0.051 + 984 * 0.001) / 1024),
    ("order of gains", ["largest improvements", "Llama-3.1-8B-Instruct gains more"],
     (2.11 + 2.78 + 1.06 + 1.50) / 4),
])
def test_recomputed_values_that_agree(findings, check, words, value):
    """Worked by hand from the numbers as printed."""
    finding = line(findings[findings.check == check], *words)
    assert finding.agrees
    in_the_text = check == "relative gain in the text"
    assert (finding.value_b if in_the_text else finding.value_a) == pytest.approx(value)


def test_a_tampered_task_is_found_in_exactly_its_three_places(findings, tampered):
    """Table 2 Win-Lose-Pair Summ: its row's mean against two prints, and the Japanese cell."""
    row = "Llama-3.1-8B-Instruct / Win-Lose-Pair"
    mean = f"en Table 2: {row} / mean of the seven tasks"
    new = disagreements(tampered("tables.csv",
                                 "en,2,Llama-3.1-8B-Instruct,Win-Lose-Pair,Summ,30.48",
                                 "en,2,Llama-3.1-8B-Instruct,Win-Lose-Pair,Summ,30.68"))
    assert new - disagreements(findings) == {
        ("mean of tasks", mean, f"en Table 1: {row} / 128K"),
        ("mean of tasks", mean, f"en Table 2: {row} / Average"),
        ("English against Japanese", f"en Table 2: {row} / Summ", f"ja Table 4: {row} / Summ"),
    }
    assert disagreements(findings) <= new


def test_a_mended_cell_agrees(findings, tampered):
    mended = disagreements(tampered("tables.csv", "ja,2,Qwen3-8B,Random-Mask,32K,45.75",
                                    "ja,2,Qwen3-8B,Random-Mask,32K,45.76"))
    gone = disagreements(findings) - mended
    assert [b for _, _, b in gone] == ["ja Table 2: Qwen3-8B / Random-Mask / 32K"]
    assert mended < disagreements(findings)


def test_a_tampered_number_of_the_text(findings, tampered):
    """+1.35 at 64K becomes +1.45: both papers' tables contradict it."""
    new = disagreements(tampered("text_numbers.csv", "64K,1.35,points", "64K,1.45,points"))
    assert {(check, "Table 1" in b or "Table 2" in b)
            for check, _, b in new - disagreements(findings)} == {("gain in the text", True)}
    assert len(new - disagreements(findings)) == 2


def test_a_tampered_bin(findings, tampered):
    """Fewer heads at zero: the masked heads, their share and the text's tenths no longer follow."""
    new = disagreements(tampered("score_bins.csv", "= 0,67.9", "= 0,47.9"))
    checks = sorted(check for check, *_ in new - disagreements(findings))
    assert checks == ["score bins", "score bins", "share masked"]


def test_failure_that_others_have_too(findings, tampered):
    """Figure 8: "unique", yet the format is broken with other heads masked as well. Figure 7 not,
    until its line says so."""
    eight = ("unique failure", "en Figure 8: a distinctive failure mode unique to retrieval head "
             "ablation", "en Figure 8: ignores the format constraint")
    assert disagreements(findings, "unique failure") == {eight}
    new = tampered("failure_examples.csv", "entity name,non-retrieval,yes",
                   "entity name,non-retrieval,no")
    assert len(disagreements(new, "unique failure")) == 2


def test_bold_on_the_wrong_row(findings, tampered):
    new = disagreements(tampered("bold.csv", "en,10,Qwen3-8B,Llama-3.1-8B-Instruct,16K",
                                 "en,10,Qwen3-8B,Before,16K"))
    assert new - disagreements(findings) == {
        ("bold is best", "en Table 10: Qwen3-8B / Llama-3.1-8B-Instruct / 16K",
         "en Table 10: Qwen3-8B / Before / 16K")}


@pytest.mark.parametrize(("file", "words", "message"), [
    ("tables.csv", "en,3,Llama-3.1-8B-Instruct,RetMask*", "statements.csv refers to .*RetMask"),
    ("tables.csv", "en,12,LMSYS-Chat-1M,Llama", "text_numbers.csv refers to LMSYS-Chat-1M"),
    ("table_info.csv", "ja,4", "table_info.csv has no line for Table 4 of source 'ja'"),
    ("text_numbers.csv", "threshold tau", "text_numbers.csv has no 'threshold tau' for Llama"),
])
def test_missing_lines_are_said(tmp_path, file, words, message):
    folder = shutil.copytree(PAPER, tmp_path / "paper")
    lines = (folder / file).read_text().splitlines(keepends=True)
    (folder / file).write_text("".join(text for text in lines if words not in text))
    with pytest.raises(UserError, match=message):
        audit(folder)


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
