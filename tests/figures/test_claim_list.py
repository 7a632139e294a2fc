"""The list of claims: each claim and effect is there once, with its sign, and no foreign markup."""

import re

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from rmutils.book.claims.claim_list import Claim, Judged, Measure, Part, Saying
from rmutils.book.claims.plots import claim_list, effects_against, opposite_shown
from rmutils.book.figures.training_figures import SIGNS
from rmutils.book.verdicts import AGAINST, BLIND, UNDECIDED, Effect, answers

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


def test_each_claim_opens_on_its_parts(judged):
    page = BeautifulSoup(claim_list(judged).data, "html.parser")
    first, second = page.select(".rm-claims > ol > li")
    assert not page.select("script") and first.q.text == EVIL
    assert (first["data-verdict"], first["data-model"], first["data-section"]) == (
        "undecided", "smollm2-135m", "Abstract")
    assert first.select_one("summary .rm-sign").text == "?"
    assert len(first.select("circle")) == len(first.select("details > ul > li")) == 2
    assert [li.span.text for li in first.select("ul > li")] == [
        SIGNS["direction shown"][0], SIGNS["undecided"][0]]
    assert not second.select("circle") and EVIL in second.select_one("ul").text


def test_dots_lie_within_their_intervals_and_on_their_side_of_the_bound(judged):
    page = BeautifulSoup(claim_list(judged).data, "html.parser")
    bound = float(page.select_one(".rm-bound")["x1"])
    for dot, above in zip(page.select("circle"), (True, False), strict=True):
        line = dot.find_previous("line")
        assert float(line["x1"]) < float(dot["cx"]) < float(line["x2"])
        assert (float(dot["cx"]) > bound) == above
    assert re.fullmatch(r"0 0 240 \d+", page.svg["viewbox"])


def effects(*verdicts, beyond="others"):
    """A row for each (verdict, decides), its sentence being its place in the list."""
    return pd.DataFrame([{
        "verdict": verdict, "decides": decides, "p": 0.01, "value": 1.0, "low": 0.5, "high": 1.5,
        "scale": 1, "over": "", "blocked": "", "quantity": f"lost_beyond_{beyond}",
        "sentence": f"effect {place} is {{effect}}", "claimed_in_units": "above 2"}
        for place, (verdict, decides) in enumerate(verdicts)])


def test_only_effects_that_decide_and_could_have_moved_are_counted():
    blind, beside = (BLIND, True), (AGAINST, False)
    told = effects_against(effects((UNDECIDED, True), (UNDECIDED, True), blind, beside))
    assert "Of 2 deciding effects that could go either way, none go" in told
    assert "1 more could not" in told
    assert "Of 1 deciding effects that could go either way, 1 goes" in effects_against(
        effects((AGAINST, True), blind))
    assert "planned" not in told


def test_planned_controls_that_go_the_other_way_are_named():
    """One that decides, one beside, and one beside that is undecided."""
    told = effects_against(effects((UNDECIDED, True), (AGAINST, False), (UNDECIDED, False),
                                   beyond="same_layers"))
    assert "one planned comparison goes the other way: Effect 1 is 1.0 [0.5," in told
    assert told.endswith("Claimed: above 2.")
    assert "Effect 2" not in told and "none go against" in told


def test_what_is_shown_beside_a_claim_does_not_contradict_it():
    told = opposite_shown(effects((UNDECIDED, True), (AGAINST, False)))
    none, beside = told.split("Shown beside the claims")
    assert "No effect that decides a claim contradicts it." in none and "Effect 1" in beside
    both = opposite_shown(effects((AGAINST, True), (AGAINST, False)))
    assert both.index("Effect 0") < both.index("Shown beside") < both.index("Effect 1")
    assert "No effect" not in both
    assert "Shown beside" not in opposite_shown(effects((AGAINST, True)))
