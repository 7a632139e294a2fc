"""The frame of a page: box on top, later tables folded, sections without data left out."""

from types import SimpleNamespace

import pandas as pd
from docutils import nodes
from docutils.utils import new_document

from rmutils.book.figures import report
from rmutils.book.site.pages.frame import OPEN_TABLES, arrange, lead_across


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
