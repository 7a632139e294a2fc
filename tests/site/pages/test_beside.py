"""Beside each figure and table: its files, which exist and hold what was shown, and a note."""

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from tests.site.pages.conftest import EVIL


def page(file) -> BeautifulSoup:
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


@pytest.fixture
def chapter(pages):
    return pages, page(pages / "chapters" / "05_one.html")


def test_every_figure_and_table_has_its_files(chapter):
    html, article = chapter
    blocks = article.select("figure, div.rm-scroll")
    bars = article.select(".rm-beside")
    assert len(blocks) == len(bars) == 4
    for block, bar in zip(blocks, bars, strict=True):
        numbered = block if block.name == "figure" else block.find_parent(id=True)
        assert numbered.find_next_sibling() is bar
        links = {a.text: html / "chapters" / a["href"] for a in bar.select("a")}
        wanted = ["image (SVG)"] * (block.name == "figure") + ["data (CSV)", "notebook"]
        assert list(links) == wanted and all(file.is_file() for file in links.values())
        assert links["notebook"].suffix == ".ipynb"
        if block.name == "figure":
            assert links["image (SVG)"] == html / "chapters" / block.img["src"]
            assert links["image (SVG)"].read_text().startswith("<?xml")
            data = pd.read_csv(links["data (CSV)"])
            assert data[["x", "y"]].to_numpy().tolist() == [[0, 1], [1 / 3, 2]]
            assert set(data["series"]) == {"'+line"}


def test_data_of_a_table_are_whole_and_known_as_utf8(chapter):
    html, article = chapter
    link = article.select_one("#tab-1-shown").find_next_sibling().select_one("a")
    file = html / "chapters" / link["href"]
    assert file.read_bytes().startswith(b"\xef\xbb\xbf")
    assert pd.read_csv(file).to_dict("list") == {"n": [1 / 3, 2 / 3], "text": ["'=1+1", EVIL]}


def test_tables_and_figures_have_numbers_and_can_be_referred_to(chapter):
    _, article = chapter
    numbers = [n.text.strip() for n in article.select("div.body .caption-number")]
    assert numbers == ["Fig. 1", "Tab. 1", "Fig. 2", "Fig. 3"]
    links = {a.text: a["href"] for a in article.select("div.body p a.reference")}
    assert links == {"Fig. 1": "#fig-line", "Tab. 1": "#tab-1-shown"}  # a heading has the other
    assert all(len(article.select(link)) == 1 for link in links.values())
    assert article.select_one(".rm-caption").text == f"Tab. 1 {EVIL}" and not article.select(
        "div.body script")


def test_note_of_its_own_moves_beside_and_else_the_run_explains(chapter):
    _, article = chapter
    notes = [[note.text for note in bar.select("details")] for bar in article.select(".rm-beside")]
    assert [len(found) for found in notes] == [1, 1, 1, 1]
    assert [text.count("detect-0123") for (text,) in notes] == [0, 2, 0, 1]
    *others, last = article.select("details.rm-made")
    assert len(others) == 4
    assert all("from 2 results" in text for text in (notes[1][0], last.text))
    for place in (0, 2):
        for said in ("05_one.ipynb, code cell", "name = None, tau = 0.2", "data/paper/*.csv",
                     "rmutils run 05_one -p tau 0.2", "12 s"):
            assert said in notes[place][0]
    assert all("detect-0123" in text for place in (1, 3) for text in notes[place])
    assert "So many." in article.text


def test_a_phone_gets_the_picture_that_is_drawn_for_it(chapter):
    html, article = chapter
    (picture,) = article.select("picture")  # of three figures, one was drawn twice
    assert picture.img["alt"] == "A line." and picture.source["media"].startswith("screen and")
    file = html / "chapters" / picture.source["srcset"]
    assert "<svg" in file.read_text(encoding="utf-8")
