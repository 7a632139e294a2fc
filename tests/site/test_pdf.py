"""A book of three small pages, printed."""

import shutil
from functools import partial

import pytest
from pypdf import PdfReader

from rmutils.book.site import pdf
from rmutils.book.site.pdf import join
from rmutils.core import paths
from rmutils.core.errors import UserError

PAGE = """<!DOCTYPE html><title>{name}</title><link rel="stylesheet" href="{style}">
<body class="bd-article"><main><article><section id="{name}"><h1>Title of {name}
<a class="headerlink" href="#{name}">#</a></h1>{body}</section></article></main>"""
FAR = '<div style="break-before: page"></div><section id="far"><h2>Far & away</h2>Here.</section>'
WIDE = f"<table><tr>{'<td>inseparable</td>' * 11}<td>thelastcell</td></tr></table>"
FOLDED = ('<details class="hide above-input"><summary>Show the code</summary>hidden</details>'
          '<details class="rm-made"><summary>How</summary>by hand</details>')
ROWS = "".join(f"<tr><td>row{i}</td></tr>" for i in range(40))
LONG = ('<div class="cell_output"><details class="rm-fold"><summary>Show it</summary>'
        f"<table><tbody>{ROWS}</tbody></table></details>"
        '<div class="rm-beside"><a href="#" download="tab-9.csv">data</a></div></div>')
ASKED = ('<div class="exercise admonition"><p class="admonition-title">'
         '<span class="caption-number">Exercise 7.1 </span>(Why?)</p>Asked.</div>'
         '<div class="solution admonition">'
         '<p class="admonition-title">Solution</p>Solved.</div><p>After it.</p>'
         '<section id="next"><h2>Next</h2></section>')
TOC = {"root": "index", "parts": [
    {"caption": "First part", "chapters": [{"file": "one", "sections": [{"file": "deep/two"}]}]},
    {"caption": "Never built", "chapters": [{"file": "missing"}]}]}


@pytest.fixture(scope="module")
def printed(browser, tmp_path_factory):
    """The PDF."""
    html = tmp_path_factory.mktemp("html")
    (html / "deep").mkdir()
    shutil.copy(paths.BOOK / "_static" / "print.css", html)
    bodies = {"index": '<a href="deep/two.html#far">far</a><a href="nowhere.html">gone</a>',
              "one": WIDE + FOLDED + LONG + ASKED, "deep/two": FAR + '<a href="#far">here</a>'}
    for name, body in bodies.items():
        style = "../print.css" if "/" in name else "print.css"
        (html / f"{name}.html").write_text(PAGE.format(
            name=name.rpartition("/")[2], body=body, style=style), encoding="utf-8")
    output = html / "book.pdf"
    count = join([*pdf.print_pages(browser, html, pdf.contents(TOC, html))], output,
                 partial(pdf.print_html, browser))
    reader = PdfReader(output)
    assert len(reader.pages) == count
    return reader


def test_pages_in_order_with_numbers_and_a_list(printed):
    texts = [page.extract_text() for page in printed.pages]
    assert printed.page_labels == ["i", "1", "2", "3", "4"]
    for text, title, number in zip(texts[1:], ("index", "one", "two", "two"), "1234", strict=True):
        assert f"Title of {title}" in text and number in text
    listed = texts[0].split()
    assert [listed[i + 1] for i, word in enumerate(listed) if word in ("index", "one", "two")] == \
        ["1", "2", "3"]
    assert "First part" in texts[0] and "Never built" not in texts[0]


def test_bookmarks_lead_to_parts_pages_and_sections(printed):
    def walk(items):
        return [walk(item) if isinstance(item, list) else
                (item.title, printed.get_destination_page_number(item)) for item in items]

    assert walk(printed.outline) == [
        ("Title of index", 1), ("First part", 2),
        [("Title of one", 2), [("Solutions", 2), ("Next", 2),
                               ("Title of two", 3), [("Far & away", 4)]]]]


def test_links_lead_within_the_pdf_and_no_longer_to_what_is_not_in_it(printed):
    def targets(number):
        links = [a.get_object() for a in printed.pages[number].get("/Annots", ())]
        return [printed.get_page_number(link["/Dest"][0].get_object()) for link in links
                if "/A" not in link]

    assert targets(0) == [1, 2, 3]
    assert targets(1) == [4]
    assert 4 in targets(4)


def test_wide_tables_shrink_and_code_and_how_made_go(printed):
    text = printed.pages[2].extract_text()
    assert "thelastcell" in text
    right = max(float(place[4]) for place in _places(printed.pages[2], "thelastcell"))
    assert right < float(printed.pages[2].mediabox.right) - 40
    assert "hidden" not in text and "by hand" not in text


def test_long_tables_are_cut_and_say_where_they_go_on(printed):
    text = printed.pages[2].extract_text()
    assert "row7" in text and "row8" not in text
    assert "32 more rows: in the HTML, tab-9.csv" in text


def test_solutions_come_last_with_the_numbers_of_their_exercises(printed):
    text = printed.pages[2].extract_text()
    places = [text.index(words)
              for words in ("Asked.", "After it.", "Solutions", "Solved.", "Next")]
    assert places == sorted(places)
    assert text.count("Exercise 7.1") == 2


@pytest.mark.parametrize(("name", "most"), [
    ("index", 8), ("chapters/02_masking_sweep", 12), ("chapters/07_general_abilities", 12)])
def test_pages_of_the_book_stay_within_their_share_of_300(browser, html, name, most):
    page, = pdf.print_pages(browser, html, [pdf.Entry(0, name)])
    assert len(PdfReader(page.pdf).pages) <= most


def _places(page, wanted):
    found = []
    page.extract_text(visitor_text=lambda text, cm, tm, *_: found.append(
        [*tm[:4], tm[4] * cm[0] + cm[4]]) if wanted in text else None)
    return found


def test_without_chromium_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(pdf.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="apt-get install chromium"):
        pdf.chromium()
