"""The report: what it says are findings, what it names exists, and it stays short."""

import json
import re
from string import Formatter

import pytest
import yaml

from rmutils.book import findings as registry
from rmutils.book.findings import FINDINGS, Measured, declare
from rmutils.book.site import short_report
from rmutils.book.site.short_report import DRAWN, SOURCE, document, written
from rmutils.core import paths
from rmutils.core.errors import NotStored, UserError
from rmutils.core.registry import Registry
from rmutils.stats import Interval

HEAD, BODY = SOURCE.read_text(encoding="utf-8").split("---\n", 2)[1:]
ABOUT = yaml.safe_load(HEAD)
CHECK = yaml.safe_load((paths.ROOT / "codecheck.yml").read_text(encoding="utf-8"))
TEXT = """---
title: A title
findings:
  gain: [made-up, 2]
  loss: [-made-up, 2]
undecided: []
---

# Part

It gains {gain} points {gain:ci} [ma2026retmask].

![A caption.](few-heads)
"""


@pytest.fixture
def made_up(monkeypatch):
    """A finding; set what it measures by calling this."""
    monkeypatch.setattr(registry, "FINDINGS", Registry("finding", "rmutils.findings"))
    monkeypatch.setattr(registry, "_KNOWN", {})
    measured = []

    @declare("made-up", unit="points", place="fig-x", otherwise="It is {value} {ci}: {verdict}.")
    def measure(factor):
        if isinstance(measured[-1], Exception):
            raise measured[-1]
        return Measured(Interval(*(factor * x for x in measured[-1])), ["some-result"])

    return measured.append


def test_all_that_the_report_names_exists_and_all_of_it_is_used():
    used = {name for _, name, _, _ in Formatter().parse(BODY) if name}
    assert used == set(ABOUT["findings"]) >= set(ABOUT["undecided"])
    assert {name.removeprefix("-") for name, *_ in ABOUT["findings"].values()} <= set(FINDINGS)
    assert set(re.findall(r"!\[[^]]*\]\((.+)\)", BODY)) == set(DRAWN)
    entries = (paths.BOOK / "references.bib").read_text(encoding="utf-8")
    cited = re.findall(r"\[(\w+\d{4}\w+)\]", BODY)
    assert cited and all(f"{{{key}," in entries for key in cited)


def test_numbers_are_those_of_the_findings(made_up):
    made_up((10, 5, 15))
    assert written(TEXT).splitlines() == [
        "# A title", "", "## Part", "", "It gains 20 points (95% CI 10 to 30) [ma2026retmask].",
        "", "![A caption.](few-heads)"]
    made_up((-10, -15, -5))
    registry._KNOWN.clear()
    assert "It gains 20 [ma" in written(TEXT.replace("{gain} points {gain:ci}", "{loss}"))


@pytest.mark.parametrize(("found", "text", "said"), [
    ((10, -5, 15), TEXT, "undecided"), (NotStored("Make it with X."), TEXT, "Make it with X"),
    ((10, 5, 15), TEXT.replace("{gain:ci}", "{other}"), "no finding is called other")])
def test_a_text_that_its_results_do_not_bear_out_is_refused(made_up, found, text, said):
    made_up(found)
    with pytest.raises(UserError, match=said):
        written(text)


def test_the_paper_has_figures_and_numbered_references(monkeypatch):
    monkeypatch.setitem(DRAWN, "few-heads", short_report.Figure)
    html = document("# A title\n\nBy [ma2026retmask] and [wu2025retrieval], [ma2026retmask].\n\n"
                    "![A caption.](few-heads)\n")
    assert "By [1] and [2], [1]." in html
    assert '<img alt="" src="data:image/svg+xml' in html
    assert "<figcaption>A caption.</figcaption>" in html
    titles = "optimizing retrieval heads", "mechanistically explains"
    first, second = (html.lower().index(title) for title in titles)
    assert first < second
    assert not re.search(r'(?:src|href)="(?!data:|https?:)', html)


def test_codecheck_names_files_that_are_there_and_how_to_make_them_again():
    assert CHECK["version"] == "https://codecheck.org.uk/spec/config/1.0/"
    assert CHECK["paper"]["title"] == ABOUT["title"] and CHECK["paper"]["authors"][0]["name"]
    assert len(CHECK["manifest"]) >= 5
    for item in CHECK["manifest"]:
        file = paths.ROOT / item["file"]
        assert file.is_file(), item["file"]
        record = json.loads((file.parent / "manifest.json").read_text(encoding="utf-8"))
        command = re.search(r"`(rmutils .+)`", item["comment"])[1]
        assert record["command"].startswith(command), item["file"]
    assert (paths.ROOT / "codecheck.yml").read_text(encoding="utf-8").startswith("---\n")
