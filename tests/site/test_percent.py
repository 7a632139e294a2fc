"""Percent are written in one way on every page."""

import re

import pandas as pd
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document

from rmutils.book.figures import report
from rmutils.book.site.percent import in_html, space


def page(*parts):
    document = new_document("page")
    document += nodes.paragraph("", "", *parts)
    space(document)
    return document


def text(*parts):
    return page(*parts).astext()


def test_a_sign_stands_behind_a_space_that_no_line_breaks():
    assert text(nodes.Text("of 40%, 41 % and a 95% interval")) == (
        "of 40\u00a0%, 41\u00a0% and a 95\u00a0% interval")
    assert text(nodes.reference("", "90"), nodes.Text(" % of them")) == "90\u00a0% of them"
    assert text(nodes.Text("the % sign, "), nodes.reference("", "here"), nodes.Text(" % of")) == (
        "the % sign, here % of")


def test_code_stays_as_it_is():
    for kind in (nodes.literal, nodes.math):
        assert text(kind("", "7%2")) == "7%2"
    block = "<pre>7%2</pre>"
    assert in_html(block) == block


def test_the_box_and_the_numbers_of_tables_follow_and_what_models_say_does_not():
    frame = pd.DataFrame({"share at 5%": ["12%", "12% [3%, 20%]"],
                          "answer": ["It is 12%.", "so"]})
    shown = in_html(report.table(frame, "Shares; 95% intervals").data)
    shown = BeautifulSoup(shown, "html.parser")
    cells = [cell.text for cell in shown.select("th, td, .rm-caption")]
    assert cells == ["Shares; 95\u00a0% intervals", "share at 5\u00a0%", "answer", "12\u00a0%",
                     "It is 12%.", "12\u00a0% [3\u00a0%, 20\u00a0%]", "so"]
    box = report.what_we_found("Why 7%?", "[41](#a) % and 5% (95% CI 1 to 9).").data
    said = BeautifulSoup(in_html(box), "html.parser").text
    assert "7\u00a0%" in said and "41\u00a0% and 5\u00a0% (95\u00a0% CI" in said
    sides = in_html(report.side_by_side({"a": "40%"}, "At 5%").data)
    assert "40%" in sides and "At 5\u00a0%" in sides


def test_every_page_writes_percent_in_one_way(html):
    wrong = {}
    for path in html.rglob("*.html"):
        if {"_modules", "_static", "api"} & {*path.relative_to(html).parts}:
            continue
        article = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").find("article")
        for other in article.select("pre, code, script, style, svg, td, .math, .rm-sides, "
                                    ".rm-case, blockquote, .rm-made") if article else ():
            other.decompose()
        text = re.sub("“[^”]*”", "", article.text) if article else ""  # the paper's own words
        if found := re.findall(r".{0,30}\d%.{0,10}", text):
            wrong[path.relative_to(html).as_posix()] = found
    assert not wrong
