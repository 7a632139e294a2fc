"""The list of claims: each claim and effect is there once, with its sign, and no foreign markup."""

import re
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

from rmutils.book.claims.claim_list import Claim, Judged, Measure, Part, Saying
from rmutils.book.claims.plots import claim_list, page_of
from rmutils.book.verdicts import QUANTITIES, Effect, answers
from rmutils.core import paths

EVIL = "<script>x</script> & \"quoted\""


@pytest.fixture
def judged():
    measure = Measure(above=0, quantity="q", of=("smollm2-135m",))
    effects = [Effect(2, 1, 3, "points", (), 100), Effect(-0.5, -2, 1, "points", (), 100)]
    given = answers([(effect, measure) for effect in effects])
    parts = tuple(Part(measure, ("smollm2-135m", EVIL), effect, answer, "{effect}", 1, "")
                  for effect, answer in zip(effects, given, strict=True))
    said = (Saying(source="en", place="Abstract", as_printed=EVIL),)
    return [Judged(Claim(id="a", said=said, test=EVIL, measures=(measure,)), parts, "undecided",
                   ""),
            Judged(Claim(id="b", said=said, test=EVIL, untestable=EVIL), (),
                   "not testable at this size", "")]


def test_each_claim_has_a_row_with_its_number_and_its_page(judged):
    page = BeautifulSoup(claim_list(judged).data, "html.parser")
    first, second = page.select(".rm-claims tr[data-verdict]")
    assert not page.select("script") and first.q.text == EVIL
    assert (first["data-verdict"], first["data-model"], first["data-section"]) == (
        "undecided", "smollm2-135m", "Abstract")
    assert first.select_one(".rm-sign").text == "?" and len(first.select("circle")) == 2
    assert first.select("td")[2].text == "-0.5 [-2.0,\u00a01.0]"
    assert (paths.NOTEBOOKS / first.a["href"].replace(".html", ".ipynb")).is_file()
    assert not second.select("circle") and EVIL in second.select("td")[2].text


def test_pages_of_all_quantities_exist():
    for quantity in QUANTITIES:
        part = SimpleNamespace(measure=SimpleNamespace(quantity=quantity))
        assert (paths.NOTEBOOKS / f"{page_of(part)[0]}.ipynb").is_file()


def test_dots_lie_within_their_intervals_and_on_their_side_of_the_bound(judged):
    page = BeautifulSoup(claim_list(judged).data, "html.parser")
    bound = float(page.select_one(".rm-bound")["x1"])
    for dot, above in zip(page.select("circle"), (True, False), strict=True):
        line = dot.find_previous("line")
        assert float(line["x1"]) < float(dot["cx"]) < float(line["x2"])
        assert (float(dot["cx"]) > bound) == above
    assert re.fullmatch(r"0 0 240 \d+", page.svg["viewbox"])
