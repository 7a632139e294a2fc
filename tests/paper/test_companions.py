"""The tables of the other texts, against what they say of themselves."""

import shutil

import pytest

from rmutils.core.errors import UserError
from rmutils.paper.tables import COMPANIONS, PAPER, load_companions


def test_printed_gains_are_the_differences_of_their_rows():
    tables = load_companions().query("source == 'ms-poe'")
    wide = tables.pivot_table(index=["table", "row"], columns="column", values="value").dropna(
        subset=["Before"])
    assert len(wide) == 4 + 3
    assert (wide["Ms-PoE"] - wide["Before"]).round(6).tolist() == wide["gain"].tolist()


def test_recommended_ranges_follow_one_another():
    advice = load_companions().query("table == 'Choice of hyperparameters'")
    ends = advice.pivot(index="group", columns="column", values="value").loc[
        ["4K-32K", "32K-128K", "128K-4M"]]
    assert ends["lowest"].tolist() == [4, 8, 16] and ends["highest"].tolist() == [8, 16, 32]


def test_tables_of_share_and_select_attention_agree_where_they_repeat_each_other():
    """Table 3 prints the scores of Table 2 again, but for two tasks of the unchanged model."""
    tables = load_companions().query("source == 'share-select'")
    by_table = {n: part.pivot(index=["group", "row"], columns="column", values="value")
                for n, part in tables.groupby("table")}
    assert [by_table[n].shape for n in "123"] == [(3, 4), (10, 4), (11, 6)]
    assert by_table["1"].loc["", "unchanged"].equals(by_table["2"].loc["score", "unchanged"])
    again = by_table["3"].rename(columns={
        "multi_news": "Multi_news", "qasper": "Qasper", "2wikimqa": "2wikiqa",
        "hotpotqa": "Hotpotqa"})
    for p in ("0.99", "0.97", "0.95"):
        first = by_table["2"].loc["score", f"Select-Attention (p={p})"]
        assert first.equals(again.loc["at prefill", f"p={p}"][first.index])
    kept = by_table["2"].loc["tokens kept (%)"]
    assert (kept.loc["unchanged"] == 100).all()
    assert (kept.iloc[1:].diff().dropna() > 0).all(axis=None)  # more with a higher p


def test_refused_when_damaged(tmp_path):
    folder = shutil.copytree(PAPER, tmp_path / "paper")
    path = folder / COMPANIONS.file
    path.write_text(path.read_text() + "ms-poe,Zero-SCROLLS,,Llama-2-13B,gain,much\n")
    with pytest.raises(UserError, match="companions.csv, line .*much"):
        load_companions(folder)
