"""Findings are rounded alike everywhere; prose gives way where a rerun says something else."""

import html
import math
import re

import pytest
from markdown_it import MarkdownIt

from rmutils.book import findings as registry
from rmutils.book.figures.report import rounded
from rmutils.book.findings import Measured, declare, finding, say
from rmutils.core.errors import NotStored, UserError
from rmutils.core.registry import Registry
from rmutils.stats import Interval


@pytest.fixture
def lost(monkeypatch):
    """Declares a finding whose interval depends on the model; returns how often it was computed."""
    monkeypatch.setattr(registry, "FINDINGS", Registry("finding", "rmutils.findings"))
    monkeypatch.setattr(registry, "_KNOWN", {})
    calls = []

    @declare("test-lost", unit="points", place="fig-lost",
             otherwise="Without its {count} heads, {value} points {ci} are lost: {verdict}.")
    def measure(model, p=math.nan):
        calls.append(model)
        if model == "none":
            raise NotStored("Make it with `rmutils run x`.")
        found = {"strong": (25.4, 11.2, 38.6), "weak": (3.0, -2.0, 8.0),
                 "other": (-5.2, -9.6, -1.9)}[model]
        return Measured(Interval(*found), ["sweep/a/1"], 32, p, words={"count": 4})

    return calls


@pytest.mark.parametrize("found, shown", [
    ((25.4, 11.2, 38.6), ("25", "11", "39")),
    ((95.1, 90.3, 99.1), ("95", "90", "99")),
    ((2.23, 0.19, 4.4), ("2.2", "0.2", "4.4")),
    ((0.9, 0.02, 6.1), ("0.90", "0.02", "6.10")),  # the end would round to zero
    ((-5.24, -9.6, -1.9), ("-5", "-10", "-2")),
    ((0.017, 0.011, 0.024), ("0.017", "0.011", "0.024")),
    ((8.0, 7.0, 10.0), ("8", "7", "10")),  # a count has no decimals
    ((100 * 0.395 - 1e-14, 0.67, 76.2), ("40", "1", "76")),  # a half, but for the sum's error
    ((83.3, math.nan, math.nan), ("83", "", "")),
    ((3, math.nan, math.nan), ("3", "", "")),
])
def test_digits_are_those_that_the_interval_allows(found, shown):
    assert rounded(Interval(*found)) == shown


@pytest.mark.parametrize("value, shown", [(1, "[1](#f) point"), (-1, "[-1](#f) point"),
                                          (2, "[2](#f) points"), (0, "[0](#f) points")])
def test_one_point_is_no_plural(value, shown):
    one = registry.Finding(
        "n", value, value - 2, value + 2, "points", None, math.nan, "", "", (), "f")
    assert f"{one:points}" == shown


def test_a_standard_sentence_has_no_minus_before_more():
    text = "It finds {value} points {more|fewer} needles {ci}: {verdict}."
    one = registry.Finding(
        "n", -5, -9, -1, "points", None, math.nan, "opposite shown", text, (), "f")
    said = "It finds [5](#f) points fewer needles (95% CI 1 to 9): shown."
    assert one.sentence == (-one).sentence == said
    assert "points more needles" in registry.replace(one, value=5, low=1, high=9).sentence


def test_prose_has_the_numbers_of_what_it_expects(lost):
    text = "It finds {loss} points fewer needles {loss:ci}, as **{name}** says."
    said = say(text, loss=finding("test-lost", "strong"), name="this")
    assert said.data == ("It finds [25](#fig-lost) points fewer needles (95% CI 11 to 39), as "
                         "**this** says.")
    assert said._repr_markdown_()[1] == {"rmutils": {"findings": ["test-lost"]}}
    assert say(text, loss=finding("test-lost", "strong"), name="this").data == said.data
    assert lost == ["strong"]  # computed once


@pytest.mark.parametrize("model, p, told", [
    ("weak", math.nan, "[3](#fig-lost) points (95% CI -2 to 8) are lost: undecided."),
    ("strong", 0.2, "[25](#fig-lost) points (95% CI 11 to 39) are lost: undecided."),
    ("other", math.nan, "are lost: opposite shown."),
])
def test_another_verdict_brings_the_standard_sentence(lost, model, p, told):
    said = say("It loses {loss} points.", loss=finding("test-lost", model, p)).data
    assert said.startswith("*In this run:* Without its 4 heads, ") and said.endswith(told)


def test_what_is_expected_may_be_a_fall_or_nothing(lost):
    fall = -finding("test-lost", "other")
    assert say("It loses {loss}.", loss=fall).data == "It loses [5](#fig-lost)."
    nothing = finding("test-lost", "weak")
    assert say("{a}, {b}", expect={"a": "shown", "b": "undecided"}, a=fall, b=nothing).data == (
        "[5](#fig-lost), [3](#fig-lost)")
    assert "In this run" in say("{a}, {b}", a=fall, b=nothing).data
    assert fall.sentence == (-fall).sentence


def test_what_is_not_stored_says_how_to_make_it(lost):
    assert say("It loses {loss}.", loss=finding("test-lost", "none")).data == (
        "Not computed yet. Make it with `rmutils run x`.")
    finding("test-lost", "none")
    assert lost == ["none", "none"]  # asked again: it may have been made


def test_names_that_do_not_exist_are_refused(lost):
    with pytest.raises(UserError, match="test-lots.*test-lost"):
        finding("test-lots", "strong")
    with pytest.raises(UserError, match="no finding is inserted as gain"):
        say("It loses {loss}.", expect={"gain": "shown"}, loss=finding("test-lost", "strong"))


def test_what_has_no_verdict_is_not_judged_by_its_interval(lost):
    """A share of nothing is no comparison, though its interval holds zero."""
    @declare("test-share", unit="percent", place="fig-lost", otherwise="{value} % {ci}.")
    def share():
        return Measured(Interval(0, 0, 0), [], verdict=registry.NONE)

    assert finding("test-share").verdict == ""
    assert say("{one} %", one=finding("test-share")).data == "[0](#fig-lost) %"


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a*b*c", "{value} {x}", "a`b`c",
                                  "[a](b)", "a & b &lt; c", "$e$", "a\\*b", "qwen_2_5"])
def test_a_string_is_shown_as_it_is(monkeypatch, name):
    """In prose and in standard sentences; a browser's view of CommonMark with HTML."""
    monkeypatch.setattr(registry, "FINDINGS", Registry("finding", "rmutils.findings"))

    @declare("test-named", unit="points", place="f", otherwise="On {model} it loses {value}.")
    def measure(model):
        return Measured(Interval(3.0, -2.0, 8.0), ["sweep/a/1"], 32)

    shown = [say("On {model} it loses 3.", model=name).data,
             finding("test-named", name).sentence.replace("[3](#f)", "3")]
    for text in shown:
        page = MarkdownIt("commonmark").render(text)
        assert html.unescape(re.sub("</?p>", "", page)).strip() == f"On {name} it loses 3."
    code = MarkdownIt("commonmark").renderInline(say("Run `{model}`.", model=name).data)
    assert html.unescape(code) == f"Run <code>{name.replace('`', chr(39))}</code>."
