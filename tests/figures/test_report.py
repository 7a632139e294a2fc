"""What the pages show: foreign text never becomes markup, and results say where they come from."""

import io
import math
from html.parser import HTMLParser

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

from rmutils.book.figures import report
from rmutils.book.figures.training_figures import SIGNS
from rmutils.book.findings import Finding
from rmutils.book.verdicts import VERDICTS
from rmutils.corpora.niah import Needle, NiahCase

EVIL = "<script>alert('x')</script> & <b>bold</b> \"quoted\""


class Reader(HTMLParser):
    """Collects the elements of a page, and the text inside of each kind."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.text = [], [], {}
        self.feed(page.data)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in {*self.open}:
            self.text[tag] = self.text.get(tag, "") + data


def test_case_is_shown_whole_and_marked():
    """A browser reads the very prompt, with the needle marked, whatever is in it."""
    needle = Needle(f"The word is {EVIL} today.", "?", EVIL)
    prompt = f"<|im_start|>user\n<book>{EVIL} First. {needle.needle} Last.</book>"
    case = NiahCase("i", 0, 9, 0.5, "part1", prompt, (), (0, 1), (0, 1), (0, 1), needle)
    page = Reader(report.show_case(case))
    assert page.tags == ["div", "mark", "u"]
    assert (page.text["div"], page.text["mark"], page.text["u"]) == (prompt, needle.needle, EVIL)


def test_table_and_quotation_are_escaped():
    page = Reader(report.table(pd.DataFrame({EVIL: [EVIL, None], "n": [1 / 3, 2e-5]}), EVIL))
    assert not {"script", "b"} & {*page.tags}
    assert page.text["p"] == page.text["th"].removesuffix("n").strip() == EVIL
    for shown in (EVIL, "0.333", "2e-05", "–"):
        assert shown in page.text["td"]
    page = Reader(report.quote(EVIL))
    assert (page.tags, page.text["blockquote"]) == (["blockquote"], EVIL)


def test_table_carries_its_data_as_csv():
    """All digits of what is shown with three; and no formula, whoever wrote the text."""
    frame = pd.DataFrame({"n": [1 / 3, -2.0], "text": ["=HYPERLINK(1)", EVIL], "by": ["b", "a"]})
    data, metadata = DisplayFormatter().format(report.table(frame, "c", by="by"))
    assert "text/html" in data
    read = pd.read_csv(io.StringIO(metadata["rmutils"]["csv"]))
    assert read.to_numpy().tolist() == [[1 / 3, "'=HYPERLINK(1)", "b"], [-2.0, EVIL, "a"]]


@pytest.mark.parametrize("rows, folded, said", [
    (12, False, None), (13, False, "Show the table, 13 rows"), (1, True, "Show the table, 1 row")])
def test_a_long_table_is_folded_below_its_caption(rows, folded, said):
    page = Reader(report.table(pd.DataFrame({"n": range(rows)}), EVIL, folded=folded))
    assert page.tags.count("td") == rows and page.text["p"] == EVIL
    assert page.text.get("summary") == said and ("details" in page.tags) == bool(said)


def test_the_box_of_findings_has_few_and_no_markup_of_others():
    page = Reader(report.what_we_found("Does *it* help?", f"**Yes**: 3 [1, 5]. {EVIL}"))
    assert not {"script", "b"} & {*page.tags} and page.tags[0] == "section"
    assert page.text["p"] == "Does it help?What we found" and page.text["em"] == "it"
    assert page.text["li"] == f"Yes: 3 [1, 5]. {EVIL}"
    for findings in ((), ("a",) * 4):
        with pytest.raises(ValueError, match=f"{len(findings)} findings"):
            report.what_we_found("Why?", *findings)


def test_side_by_side_shows_each_text_whole_and_marks_what_differs():
    first = f"Alvin Erbeck lives\n in {EVIL} now."
    same, other, cut = first, f"Alvin Erbek lives\n in {EVIL} again, {EVIL}", "Alvin lives now."
    page = report.side_by_side({"whole": first, "same": same, EVIL: other, "cut": cut}, EVIL)
    read = Reader(page)
    assert not {"script", "b"} & {*read.tags} and page.data.count("<div><strong>") == 4
    assert read.text["p"] == EVIL + first + same + other + cut
    assert read.text["mark"] == f"Erbekagain, {EVIL}"
    gap = '<mark class="rm-gap" title="words are left out"></mark>'
    assert page.data.endswith(f"<p>Alvin{gap} lives{gap} now.</p></div></div>")


def test_chosen_words_are_marked_in_each_copy_of_the_text():
    page = report.chosen_words({EVIL: [("a", True), (EVIL, False)], "later": [(EVIL, True)]}, EVIL)
    read = Reader(page)
    assert not {"script", "b"} & {*read.tags} and page.data.count("<div><strong>") == 2
    assert read.text["p"] == f"{EVIL}a{EVIL}{EVIL}" and read.text["mark"] == f"a{EVIL}"


@pytest.mark.parametrize("values, shown", [
    ((0.623456, 0.55, 0.70), "0.62 [0.55, 0.70]"),
    ((0.62346, 0.6230, 0.6239), "0.6235 [0.6230, 0.6239]"),
    ((0.000488, 0.000469, 0.000507), "0.000488 [0.000469, 0.000507]"),
    ((0.5, 0.5, 0.5), "0.500 [0.500, 0.500]"),
    ((0.5, 0.5 - 2e-16, 0.5 + 2e-16), "0.500 [0.500, 0.500]"),
    ((1.0, 0.9999999999999998, 1.0000000000000002), "1 [1, 1]"),
    ((0.0301, 0.0262, 0.0341), "0.030 [0.026, 0.034]"),
    ((12.345, 11.0, 14.2), "12.3 [11.0, 14.2]"),
    ((123.45, 100.2, 150.7), "123 [100, 151]"),
    ((12, 10, 15), "12 [10, 15]"),
    ((-0.001, -0.4, 0.4), "0.0 [-0.4, 0.4]"),
    ((7.512, 4.1, 11.7), "8 [4, 12]"),
    ((1234.6,), "1,235"),
    ((999.9,), "1,000"),
    ((-0.0,), "0"),
    ((0.12345,), "0.123"),
])
def test_digits_follow_the_interval(values, shown):
    assert report.number(*values) == shown.replace(", ", ",\u00a0")


def test_tables_and_figures_round_as_prose_does():
    """A figure gave 7.5 [4.1, 11.7] where the text beside it gave 8 points (4 to 12)."""
    for value, low, high in (
            (7.5124, 4.1, 11.7), (0.33, -0.12, 0.78), (2.04, 1.4, 2.7), (41, 30, 52)):
        found = Finding("gain", value, low, high, "points", None, math.nan, "", "", (), "")
        assert report.number(value, low, high) == str(found)


@pytest.mark.parametrize("thousandths", [5, 15, 125, 235, 245, 285, 395, 575])
def test_a_share_and_the_same_in_percent_are_rounded_alike(thousandths):
    """As a float, 0.235 is a little less, and was shown as 0.23 beside 24 %."""
    share, percent = (report.number(thousandths / scale, -110 / scale, 308 / scale)
                      for scale in (1000, 10))
    assert round(100 * float(share.split(" ")[0])) == int(percent.split(" ")[0])


def test_comparisons_keep_the_printed_digits_and_escape_text():
    findings = pd.DataFrame({
        "what": ["<b>cell</b>", "name"], "value_a": [48.6814285, "A & B"],
        "place_a": ["en Table 2", "en"], "value_b": [48.68, "C"], "place_b": ["en Table 1", "ja"],
        "difference": [0.0014285, float("nan")], "tolerance": [0.01, 0.0],
    })
    shown = report.comparisons(findings, "a < b").data
    for part in ("48.6814<small>English edition, Table 2</small>",
                 "48.68<small>English edition, Table 1</small>",
                 "0.0014<small>rounding: below 0.01</small>", "–<small>rounding: none</small>",
                 "&lt;b&gt;cell&lt;/b&gt;", "A &amp; B<small>", "a &lt; b"):
        assert part in shown
    assert "<b>cell" not in shown
    assert "<td>0<small>" in report.comparisons(
        findings.assign(difference=-0.00001).head(1), "rounds to zero").data


def test_an_empty_sentence_shows_nothing():
    """A notebook shows an empty `Markdown` as `<IPython.core.display.Markdown object>`."""
    assert report.say("") is None
    assert DisplayFormatter().format(report.say("3 heads."))[0]["text/markdown"] == "3 heads."


def test_each_verdict_has_a_sign_of_its_own():
    assert {*SIGNS} == {*VERDICTS}
    assert len({sign for sign, _ in SIGNS.values()}) == len(VERDICTS)
