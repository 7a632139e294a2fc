"""Lists and records are what the chapters, the audit and the project's files hold."""

import re

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from nbformat.v4 import new_markdown_cell, new_notebook

from rmutils.book.figures.report import edition, what_we_found
from rmutils.book.site.pages import inputs
from rmutils.book.site.pages.generated import bibtex, changes, citation, errata, found
from rmutils.core import paths
from rmutils.core.errors import UserError
from rmutils.paper import audit
from tests.site.pages.conftest import CONTENTS, EVIL, code


def test_lists_hold_all_and_lead_to_it(pages):
    page = BeautifulSoup((pages / "lists.html").read_text(encoding="utf-8"), "html.parser")
    text = page.select_one("div.body").text
    assert text.index("All") < text.index("One chapter") < text.index(
        "Fig. 1")
    items = [li.text.strip() for li in page.select("div.body li")]
    assert items[:4] == ["Fig. 1: A line.", "Fig. 2: Two more lines.", "Fig. 3: Two more lines.",
                         f"Tab. 1: {EVIL}"]
    rows = [[cell.text for cell in row.select("td")] for row in page.select("div.body tr")]
    assert ["name", "None", "str | None", "of *what*"] in rows
    assert ["tau", "0.1", "float", "heads at or above | this score count"] in rows
    lines = [line.text for line in page.select("div.body summary")]
    assert lines == ["1 table", "One chapter: tau, name"]
    chapter = BeautifulSoup((pages / "chapters/05_one.html").read_text("utf-8"), "html.parser")
    pictures = page.select("div.body li img")
    assert len(pictures) == 3 and all((pages / i["src"]).is_file() for i in pictures)
    assert [i["alt"] for i in pictures] == ["A line.", *["Two more lines."] * 2]
    for link in page.select("div.body li a"):
        file, _, anchor = link["href"].partition("#")
        assert file == "chapters/05_one.html" and (not anchor or chapter.find(id=anchor))


def test_a_list_of_chapters_has_what_each_found_first(tmp_path):
    box = what_we_found("Does *it*?", "Yes, by [2](#fig-line) points in `tiny-llama`.", "No.")
    (tmp_path / "chapters").mkdir()
    (tmp_path / "_toc.yml").write_text(CONTENTS)
    for cells in ([new_markdown_cell("(one)=\n# One"), code("box", box)], []):
        nbformat.write(new_notebook(cells=cells), tmp_path / "chapters" / "05_one.ipynb")
        if cells:
            _, *lines, _ = found(tmp_path, "05_one").replace("\\", "").splitlines()
            assert lines == ["- **{ref}`one`**", "  Does it? *Yes, by 2 points in tiny-llama.*"]
    for name in ("05_one", "other"):  # without a box, and without a chapter
        with pytest.raises(UserError, match=name):
            found(tmp_path, name)


def test_errata_are_the_disagreements_of_the_audit():
    findings = audit()
    wrong = findings[~findings["agrees"]]
    text = errata(paths.BOOK).replace("\\", "")
    entries = re.split(r"\| \*\*E\d+\*\* ", text)[1:]
    assert len(entries) == len(wrong)
    largest = wrong.loc[wrong["difference"].abs().idxmax()]
    assert entries[0].startswith(f"| {largest['what']} | ")
    groups = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert len(groups) < len(wrong) / 3
    places = [place for group in groups for place in group.split(", ")]
    assert len(places) == len(set(places))  # what shares a table is in one group
    told = set(entries)
    for row in wrong.itertuples():
        first, second = (f"({edition(place)}) | " for place in (row.place_a, row.place_b))
        mine = [e for e in told if e.startswith(f"| {row.what} | ") and first in e and second in e]
        touched = mine[0].partition(second)[2] if mine else ""
        assert re.match(r"\w.* \|\n", touched)


def test_citation_and_changes_come_from_the_projects_files():
    known = yaml.safe_load((paths.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    told = citation(paths.BOOK)
    for part in (known["title"], str(known["version"]), known["license"]):
        assert f"{{{part}}}" in told
    assert "url" not in told or known.get("url") or known.get("repository-code")
    log = (paths.ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    lines = changes(paths.BOOK).splitlines()
    titles = [line for line in lines if line.startswith("## ")]
    assert titles[:2] == ["## Not released yet",
                          f"## {known['version']}, {known['date-released']}"]
    assert len(titles) == sum(line.startswith("## [") for line in log)
    told = [line for line in lines if line and line not in titles]
    assert {*told} - {*log} == {"Numbers that moved:"}
    moved = sum(line == "### Numbers that moved" for line in log)
    assert moved == told.count("Numbers that moved:") > 1
    entry = bibtex(paths.BOOK, "ma2026retmask")
    assert entry.count("@") == 1 and "2601.11020" in entry
    with pytest.raises(UserError, match="nobody1999"):
        bibtex(paths.BOOK, "nobody1999")


def test_pages_are_made_again_when_a_file_behind_them_changes():
    names = {path.name for path in inputs()}
    assert {"CITATION.cff", "CHANGELOG.md", "tables.csv"} <= names
    assert all(path.is_file() for path in inputs())
