"""The index and the query cut Japanese into the same pieces, so that parts of words are found."""

import pytest

from rmutils.book.site.pages.links_and_search import English, pieces


@pytest.mark.parametrize("word, found", [
    ("検索ヘッド", ["検索", "索ヘ", "ヘッ", "ッド"]),
    ("閾値", ["閾値"]), ("非", ["非"]),
    ("RHマスク", ["RH", "マス", "スク"]),
    ("検索ヘッドの不活性化", ["検索", "索ヘ", "ヘッ", "ッド", "の", "不活", "活性", "性化"]),
    ("heads", ["heads"]), ("τ", ["τ"]),
])
def test_pieces(word, found):
    assert pieces(word) == found


def test_english_words_are_those_of_plain_english():
    text = "Retrieval heads look at tau_1, the needle's 3 tokens; 48.68 points."
    assert English({}).split(text) == super(English, English({})).split(text)


def test_the_page_is_given_the_same_rule(pages):
    """The script that a page loads; tests/book runs it in a browser."""
    script = (pages / "_static" / "language_data.js").read_text(encoding="utf-8")
    assert "function splitQuery" in script
    index = (pages / "searchindex.js").read_text(encoding="utf-8")
    for piece in pieces("検索ヘッド"):
        assert f'"{piece}"' in index or ascii(piece).strip("'") in index
