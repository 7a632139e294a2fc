"""The moving picture of the front page."""

import re

import pytest
from bs4 import BeautifulSoup

from rmutils.book.site.pages.walk import PICTURE, picture, walk
from rmutils.core import paths

CASE = {
    "prompt": ["<|start|>", *(f" far{n}" for n in range(20)), " The", " code", " is", " sev", "en",
               ".", " then", " <b>", " What", " code", "?", "<|end|>"],
    "inserted": [21, 27], "needle": [24, 26], "written": [" code", " sev", "en"],
    "heads": [{"name": "layer 1, head 2: 0.50", "looks": [30, 24, 25],
               "copied": [False, True, True]}]}


def test_lines_join_each_written_token_with_the_place_looked_at():
    drawn = BeautifulSoup(picture(CASE), "html.parser")
    texts = drawn.find_all("text")
    by_kind = {kind: [t for t in texts if kind in t["class"]]
               for kind in ("needle", "copied", "other", "prompt")}
    assert [t.text for t in by_kind["needle"]] == ["sev", "en"]
    assert [t.text for t in by_kind["copied"]] == ["sev", "en"]
    assert {"start", "…", "<b>", "far19"} <= {t.text for t in by_kind["prompt"]}
    assert "far0" not in {t.text for t in texts} and "<|end|>" not in {t.text for t in texts}
    lines = drawn.find_all("g")
    assert len(lines) == 3
    for line, place in zip(lines[1:], by_kind["needle"], strict=True):
        frame = line.find("rect")
        assert abs(float(frame["x"]) + 2 - float(place["x"])) <= 1
        end = re.findall(r"[\d.]+", line.find("path")["d"])[-2]
        middle = float(place["x"]) + float(place["textlength"]) / 2
        assert abs(float(end) - middle) <= 1.5


def test_readme_shows_the_picture_of_the_book():
    if not (paths.BOOK / "chapters" / "01_preliminaries.ipynb").is_file():
        pytest.skip("the book is not built")
    assert PICTURE.read_text(encoding="utf-8") in walk(paths.BOOK)
    assert "book/_static/walk.svg" in (paths.ROOT / "README.md").read_text(encoding="utf-8")
