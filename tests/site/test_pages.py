"""The built book: what stands beside figures and tables, and what a first look shows."""

import re
from collections.abc import Iterator

import pandas as pd
from bs4 import BeautifulSoup

from rmutils.book.figures.report import MOST_ROWS
from rmutils.book.figures.style import WIDTH
from rmutils.book.site.pages.frame import OPEN_TABLES
from rmutils.book.site.pages.items import chapters, items
from rmutils.core import paths
from tests.site.conftest import visiting
from tests.site.words import parsed, too_long, words


def figures_and_tables(name, notebook, page, file) -> int:
    """How many a chapter has, each of which has its files and a note."""
    bars = page.select("article .rm-beside")
    found = items(notebook, name)
    drawn = [one for one in page.select(
        "article figure:has(img), article .rm-scroll:has(.rm-caption)")
        if not one.find_parent(class_="rm-tables")]  # these share a file
    assert len(bars) == len(found) == len(drawn), name
    for item, bar in zip(found, bars, strict=True):
        links = {a.text: file.parent / a["href"] for a in bar.select("a")}
        assert all(target.is_file() for target in links.values()), (name, links)
        assert ("image (SVG)" in links) == (item.kind == "figure") and "notebook" in links
        assert bar.select("details.rm-made"), (name, item.label)
        assert pd.read_csv(links["data (CSV)"]).size, (name, item.label)
    return len(found)


def looks(page, file) -> Iterator[str]:
    """What is wrong: findings stand first, few tables are open, figures are as wide as the text."""
    top = page.select_one("article h1").parent
    if not any(one.find_parent("section", id=True) is top for one in top.select(".rm-found li")):
        yield "no finding before the first heading"
    # The claims are what that page is about, and have filters.
    open_tables = [table for table in page.select("article .rm-scroll:not(.rm-claims)")
                   if not table.select("details.rm-fold")]
    if len(open_tables) > OPEN_TABLES:
        yield f"{len(open_tables)} open tables"
    yield from (f"an open table of {rows} rows" for table in open_tables
                if (rows := len(table.select("tbody tr:has(td)"))) > MOST_ROWS)
    for image in page.select("article div.cell_output img[src$='.svg']"):
        drawn = (file.parent / image["src"]).read_text(encoding="utf-8")
        width = re.search(r'<svg[^>]* width="([\d.]+)pt"', drawn)[1]
        if abs(float(width) - 72 * WIDTH) > 1:
            yield f"{image['src']} is {width} points wide"


def not_stored(page) -> Iterator[str]:
    """What it looks up in vain, by its defaults: one that is changed may ask for more."""
    for output in page.select(".cell_output"):
        yield from re.findall(r"[Nn]ot (?:all is )?stored.*|[Nn]o result .*stored.*", output.text)


def test_chapters_keep_what_they_promise(html):
    counted, live, wrong, read = 0, [], {}, {}
    for name, notebook in chapters(paths.BOOK):
        file = html / "chapters" / f"{name}.html"
        page = parsed(file)
        counted += figures_and_tables(name, notebook, page, file)
        here = [title.parent for title in page.select("section > :is(h2, h3)")
                if re.search(r", live\b|While you read", title.text)]
        wrong[name] = [*looks(page, file), *not_stored(page), *(
            shown for section in here for shown in re.findall(r"[\w-]+ \(shipped\)", section.text))]
        live += here
        read[f"chapters/{name}"] = words(page)
    assert not {name: told for name, told in wrong.items() if told}
    assert counted > 100 and len(live) >= 5 and not too_long(read)


def test_no_page_tells_of_the_machine(html):
    """Defaults of functions are shown as the source has them: one is the whole environment."""
    telling = [str(file.relative_to(html)) for file in sorted(html.rglob("*.html"))
               if any(words in file.read_text(encoding="utf-8")
                      for words in (str(paths.ROOT), "environ({"))]
    assert not telling


def test_every_page_says_how_it_may_be_reused(html):
    silent = [file.name for file in [*html.glob("*.html"), *html.glob("chapters/*.html")]
              if "licenses/by/4.0" not in file.read_text(encoding="utf-8")]
    assert silent in ([], ["search.html"])


def test_first_screen_asks_shows_and_says_what_was_found(browser, address):
    for width in (1400, 420):
        with visiting(browser, address, width) as (page, problems):
            page.goto(address + "index.html")
            for shown in ("article h1", ".rm-lede", ".rm-walk svg:visible"):
                box = page.locator(shown).first.bounding_box()
                assert box and box["y"] + box["height"] <= 900, (width, shown)
                assert box["x"] >= 0 and box["x"] + box["width"] <= width, (width, shown)
            assert page.locator(".rm-short").bounding_box()["y"] < 900
            figures = page.locator("article figure > img").all()
            assert len(figures) >= 4
            for figure in figures:  # none is cut
                box = figure.bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= width
            for name in ("01_preliminaries", "playground"):
                assert page.locator(f".rm-doors a[href*='{name}']").count()
            assert not problems


def test_contents_are_short(html):
    """At most twenty entries in four groups; what lies behind them is folded away."""
    page = BeautifulSoup((html / "index.html").read_text(encoding="utf-8"), "html.parser")
    menu = page.select_one(".bd-sidebar-primary nav.bd-links")
    assert len(menu.select("p.caption")) == 4
    assert len(menu.select("p.caption ~ ul > li.toctree-l1")) <= 20
    assert not menu.select("details[open]")


def test_search_finds_pages_and_words_of_either_language(browser, address):
    wanted = {"検索ヘッド": "terms", "量子力学": None, "errata": "errata",
              "compute_large": "parameters"}
    with visiting(browser, address, 1200) as (page, problems):
        for query, name in wanted.items():
            page.goto(f"{address}search.html?q={query}")
            page.locator("#search-results .search-summary").wait_for()
            page.wait_for_function("!document.querySelector('#search-progress')?.textContent")
            links = page.locator("#search-results li > a").all()
            found = [link.get_attribute("href") for link in links]
            assert any(name in link for link in found) if name else not found, query
    assert not problems


def test_one_switch_shows_the_code_of_a_page_and_is_remembered(browser, address):
    with visiting(browser, address, 1200) as (page, problems):
        for name in ("06_training_effect", "01_preliminaries"):
            page.goto(f"{address}chapters/{name}.html")
            switch, folds = page.locator(".rm-code"), page.locator("details.hide.above-input")
            remembered = name == "01_preliminaries"
            assert folds.count() > 3
            assert page.locator("details.hide.above-input[open]").count() == (
                folds.count() if remembered else 0)
            switch.click()
            assert page.locator("details.hide.above-input[open]").count() == (
                0 if remembered else folds.count())
    assert not problems
