"""Search finds Japanese words in English pages, whole ones and parts of them.

The search of an English book takes what stands between blanks for a word, and Japanese has none. So
stretches of Kanji and Katakana are indexed, and searched for, as pairs of neighbouring characters.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sphinx.search.en import SearchEnglish

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LETTERS = r"\u30a1-\u30ff\u3400-\u9fff"
"""Katakana and Kanji. Hiragana holds words together and is no help in finding one."""

PARTS = re.compile(f"[{LETTERS}]+|[^{LETTERS}]+")


def pieces(word: str) -> list[str]:
    """The word itself, or what stands for it where it is Japanese.

    >>> pieces("検索ヘッド"), pieces("heads")
    (['検索', '索ヘ', 'ヘッ', 'ッド'], ['heads'])
    """
    found = []
    for part in PARTS.findall(word):
        pairs = len(part) > 2 and re.match(f"[{LETTERS}]", part)
        found += [part[i: i + 2] for i in range(len(part) - 1)] if pairs else [part]
    return found


class English(SearchEnglish):
    """The search of English pages that may hold Japanese words."""

    js_splitter_code = rf"""
function splitQuery(query) {{  // as rmutils.book.pages.search.pieces
  const words = query.split(/[^\p{{Letter}}\p{{Number}}_\p{{Emoji_Presentation}}]+/gu);
  const parts = words.flatMap((word) => word.match(/[{LETTERS}]+|[^{LETTERS}]+/g) ?? []);
  return parts.flatMap((part) => part.length > 2 && /[{LETTERS}]/.test(part)
    ? [...Array(part.length - 1).keys()].map((i) => part.slice(i, i + 2)) : [part],
  ).filter((part) => part.length > 2 || !/^[\u3041-\u3096]/.test(part));
}}
"""

    def split(self, input: str) -> list[str]:
        """The words of a text, for the index."""
        return [piece for word in super().split(input) for piece in pieces(word)]


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.add_search_language(English)
