"""The frame of a page, the moving picture of the front page, and pages with an address."""

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document

from rmutils.book.figures import report
from rmutils.book.site.pages.frame import (
    BESIDE,
    OPEN_TABLES,
    NumberedTable,
    arrange,
    gather,
    lead_across,
)
from rmutils.book.site.pages.walk import PICTURE, picture, walk
from rmutils.core import paths
from tests.site.pages.conftest import ADDRESS


def page(*sections, name="chapters/one"):
    """A document of one section, with further ones in it."""
    document, top = new_document("page"), nodes.section("", nodes.title("", "A title"), ids=["top"])
    document += top
    top.extend(nodes.section("", nodes.title("", f"Section {i}"), *body)
               for i, body in enumerate(sections))
    arrange(SimpleNamespace(env=SimpleNamespace(docname=name)), document)
    return document


def cell(shown):
    inner = nodes.raw("", shown.data, format="html")
    return nodes.container("", inner, cell_index=0, classes=[])


def test_box_moves_below_the_title():
    found = page([cell(report.what_we_found("Why?", "So."))])
    assert found[0][1].astext().startswith('<section class="rm-found"')
    beside = page([cell(report.what_we_found("Why?", "So."))], name="gallery/one/run")
    assert isinstance(beside[0][1], nodes.section)


def test_box_stays_below_what_a_page_opens_with():
    document, top = new_document("page"), nodes.section("", nodes.title("", "A title"), ids=["top"])
    document += top
    shown = nodes.container("", nodes.raw("", "<svg>", format="html"), classes=["cell_output"])
    top.extend([nodes.paragraph("", "What it is."), nodes.container("", cell_index=0, classes=[]),
                nodes.container("", shown, cell_index=1, classes=[]),
                cell(report.what_we_found("Why?", "So.")),
                nodes.section("", nodes.title("", "Next"), nodes.paragraph("", "More."))])
    arrange(SimpleNamespace(env=SimpleNamespace(docname="chapters/one")), document)
    begins = [part.astext()[:11] for part in top[1:4]]
    assert begins == ["What it is.", "<svg>", '<section cl'] and "What we found" in top[3].astext()


def test_aims_are_folded():
    def classes(*own):
        return page([nodes.admonition("", classes=[*own])])[0][1][1]["classes"]
    assert classes("rm-aims") == ["rm-aims", "dropdown"]
    assert classes("rm-remember") == ["rm-remember"]


def test_tables_after_the_fifth_are_folded_with_their_rows_counted():
    frame = pd.DataFrame({"a": ["x", "x", "y"], "b": [1, 2, 3]})
    tables = [cell(report.table(frame, "Numbers", by="a")) for _ in range(OPEN_TABLES + 2)]
    folded = cell(report.table(frame, "Folded by hand", folded=True))
    shown = [raw.astext() for raw in page([folded, *tables]).findall(nodes.raw)]
    assert ["rm-fold" in text for text in shown] == [True] + [False] * OPEN_TABLES + [True] * 2
    assert "Show the table, 3 rows</summary><table" in shown[-1]
    assert shown[-1].endswith("</details></div>") and 'rm-caption">Numbers' in shown[-1]


def test_folded_tables_and_their_notes_share_a_fold():
    def raw(text):
        return nodes.raw("", text, format="html")
    frame = pd.DataFrame({"a": [1]})
    folded, beside = report.table(frame, "Numbers", folded=True).data, f"{BESIDE}>links</div>"
    tables = [NumberedTable("", raw(folded)), NumberedTable("", raw(folded))]
    parts = [raw("<svg>"), raw(beside), nodes.container("", raw(report.how_made({"a": "b"}).data)),
             tables[0], raw(beside), tables[1], raw(beside)]
    outputs = nodes.container("", *parts, classes=["cell_output"])
    gather(outputs)
    shown = [one.astext() for one in outputs.findall(nodes.raw)]
    assert shown[:2] == ["<svg>", beside] and shown[-1] == "</details>" and len(shown) == 9
    assert shown[2].endswith("<summary>The numbers, 2 tables</summary>")
    assert shown[4].count('<details class="rm-fold" open>') == 1
    alone = nodes.container("", NumberedTable("", raw(folded)), raw(beside))
    gather(alone)
    assert alone.children[0].astext().endswith("<summary>The numbers</summary>")


def test_sections_without_data_are_left_out():
    words = "This section lacks its data: nothing is measured."
    lacking = nodes.container("", nodes.paragraph("", words), classes=["cell_output"])
    found = page([nodes.literal_block("", f'say("{words}")')], [lacking])
    assert [title.astext() for title in found.findall(nodes.title)] == ["A title", "Section 0"]


def test_numbers_lead_to_places_on_other_pages():
    links = [nodes.reference("", label, refuri=uri) for label, uri in (
        ("here", "#own"), ("there", "#fig-far"), ("nowhere", "#lost"), ("away", "https://a.b"))]
    document = new_document("page")
    document += nodes.section("", ids=["own"])
    document += nodes.container("", nodes.paragraph("", "", *links), classes=["cell_output"])
    box = '<p><a href="#own">1</a> <a href="#fig-far">2</a></p>'
    document += nodes.raw("", box, format="html")
    document.ids["own"] = document[0]
    app = SimpleNamespace(
        env=SimpleNamespace(get_domain=lambda _: SimpleNamespace(
            anonlabels={"fig-far": ("chapters/two", "fig-far")})),
        builder=SimpleNamespace(get_relative_uri=lambda page, other: f"{other}.html"))
    lead_across(app, document, "index")
    assert [link["refuri"] for link in links] == [
        "#own", "chapters/two.html#fig-far", "#lost", "https://a.b"]
    assert document[-1].astext() == box.replace("#fig-far", "chapters/two.html#fig-far")


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
    assert len(lines) == 2  # the picture begins with a look that copies
    for line, place in zip(lines, by_kind["needle"], strict=True):
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


def test_without_an_address_there_are_no_cards_and_no_map(pages):
    text = (pages / "index.html").read_text(encoding="utf-8")
    assert "og:" not in text and "canonical" not in text
    assert not (pages / "sitemap.xml").exists()


def test_with_an_address_pages_have_cards_and_there_is_a_map(pages):
    html = pages.with_name("addressed")
    text = (html / "chapters" / "05_one.html").read_text(encoding="utf-8")
    assert f'property="og:url" content="{ADDRESS}/chapters/05_one.html"' in text
    assert 'property="og:site_name" content="A book"' in text
    image = text.partition(f'property="og:image" content="{ADDRESS}/')[2].partition('"')[0]
    assert (html / image).read_bytes().startswith(b"\x89PNG")
    places = {place.text for place in ElementTree.parse(html / "sitemap.xml").iter()
              if place.tag.endswith("loc")}
    assert places == {f"{ADDRESS}/{name}.html" for name in ("index", "lists", "chapters/05_one")}
