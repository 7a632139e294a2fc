"""Count the words of prose on each page of the built book: `python -m tests.site.words [FOLDER]`.

The pages are counted as they are read, so sentences that code composes count, too. *Open* is what a
reader passes when scrolling; *all* adds what waits or belongs to something else: captions, folds,
exercises, solutions, quizzes. Neither counts tables, code, formulas, texts that models read or
wrote, notes of how something was made, or the lists that a build makes (contents, figures,
parameters). `words.csv` holds the most that each page may have, which only ever falls.
"""

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bs4 import BeautifulSoup, CData, NavigableString, Tag
from bs4.element import PageElement

CEILINGS = Path(__file__).with_name("words.csv")
APART = ("api/", "_modules/", "gallery/", "genindex", "py-modindex", "search", "slides/")
"""The reference, and pages that nobody writes."""
NO_PROSE = {
    "script", "style", "svg", "pre", "table", "nav", "form", "iframe", "math", "mjx-container",
    "button", "label", ".math", ".cell_input", ".toctree-wrapper", ".headerlink", ".rm-beside",
    ".rm-made", ".rm-walk", ".rm-case", ".rm-sides", ".rm-thumbs", ".rm-listing", ".rm-parameters",
    ".sd-btn", ".caption-number"}
WAITING = {
    "details", "figcaption", ".rm-caption", ".exercise", ".solution", ".rm-quiz", ".footnote-list",
    ".citation", ".citation-list", ".dropdown", ".toggle"}
"""Elements by their name or a class."""
WORD = re.compile(r"[^\W_]")


class Words(NamedTuple):
    """How many words of a page are open, and how many there are in all."""

    open: int
    all: int


def parsed(file: Path) -> BeautifulSoup:
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


def words(page: BeautifulSoup) -> Words:
    """Count the words of a page."""
    counted = Counter()
    for text, waits in _prose(page.find("article") or (), False):
        counted[waits] += sum(bool(WORD.search(word)) for word in text.split())
    return Words(counted[False], counted.total())


def _prose(parent: Iterable[PageElement], waits: bool) -> Iterator[tuple[str, bool]]:
    """Yield the texts that count, and whether they wait."""
    for child in parent:
        if isinstance(child, Tag):
            kinds = {child.name, *(f".{name}" for name in child.get("class", ()))}
            if not kinds & NO_PROSE:
                yield from _prose(child, waits or bool(kinds & WAITING))
        elif type(child) in (NavigableString, CData):  # and no comment
            yield child, waits


def pages(html: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each page that somebody wrote, and its file."""
    for file in sorted(html.rglob("*.html")):
        name = file.relative_to(html).with_suffix("").as_posix()
        if not name.startswith(("_static/", "playground/", *APART)):
            yield name, file


def ceilings() -> dict[str, Words]:
    """Return the most words of each page."""
    with CEILINGS.open(encoding="utf-8") as file:
        return {row["page"]: Words(int(row["open"]), int(row["all"]))
                for row in csv.DictReader(file)}


def too_long(found: dict[str, Words]) -> dict[str, object]:
    """Pages with more words than they may have; one without a line in words.csv may have none."""
    most = ceilings()
    return {name: (own, may) for name, own in found.items()
            if own.open > (may := most.get(name, Words(0, 0))).open or own.all > may.all}


if __name__ == "__main__":
    folder = Path(*sys.argv[1:2] or ["book/_build/html"])
    found, most = {name: words(parsed(file)) for name, file in pages(folder)}, ceilings()
    print(f"{'page':50} {'open':>7} {'at most':>8} {'all':>7} {'at most':>8}")
    for name, own in found.items():
        least = most.get(name, Words(0, 0))
        over = " OVER" if own.open > least.open or own.all > least.all else ""
        print(f"{name:50} {own.open:7,} {least.open:8,} {own.all:7,} {least.all:8,}{over}")
    print(f"{'together':50} {sum(w.open for w in found.values()):7,} {'':8} "
          f"{sum(w.all for w in found.values()):7,}")
