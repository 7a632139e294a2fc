"""The playground as a reader uses it: in a real browser, from a file, without a network."""

import re
from contextlib import suppress

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe

from rmutils.core import paths
from rmutils.site import playground
from tests.clock import least
from tests.site.conftest import visiting
from tests.site.test_browser import TOO_WIDE

DONE = "() => document.querySelector('#pg-masked-found').textContent"
WHOLE_DONE = "() => document.querySelector('#pg-whole-found').textContent"
NAME = "e => e.closest('[role=group]')?.id || e.id || e.tagName"
"""Of something that can have the focus; a group of buttons is one stop of the Tab key."""
STOPS = f"""() => [...document.querySelectorAll('#pg *')].filter(
    e => e.matches('button, input, select, textarea, summary, [tabindex]')).map({NAME})"""
FOCUSED = f"() => ({NAME})(document.activeElement)"



@pytest.fixture
def opened(browser, html):
    """The page, opened as a file, and what goes wrong on it; nothing may."""
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        page.goto(f"{html.as_uri()}/playground.html")
        yield page
        assert not problems


def ask(page) -> None:
    page.get_by_role("button", name="Ask", exact=True).click()


def text(page, name: str) -> str:
    return page.locator(f"#pg-{name}").inner_text()


def test_the_first_click_shows_both_answers(opened):
    """The whole model finds the needle; without its retrieval heads it says something else."""
    ask(opened)
    opened.wait_for_function(DONE)
    assert re.match(r"(\d+) of \1 words", text(opened, "whole-found"))
    assert not re.match(r"(\d+) of \1 words", text(opened, "masked-found"))
    assert opened.locator("#pg-map button[aria-pressed=true]").count() == 10
    assert opened.locator("#pg-map span", has_text="●").count()
    hardest = opened.locator("#pg-text .pg-hardest")
    assert hardest.evaluate("e => e.tagName") == "U"  # a token of the needle's answer
    assert hardest.inner_text() == opened.locator("#pg-whole [aria-current=true]").inner_text()


def test_masking_by_slider_by_click_and_not_at_all(opened):
    ask(opened)
    opened.wait_for_function(DONE)
    opened.locator("#pg-tau").fill("0")  # the model begins to answer, and is stopped
    opened.get_by_role("button", name="Unmask all").click()
    assert text(opened, "masked-name") == "No head is masked"
    assert text(opened, "masked") == ""
    opened.get_by_role("button", name="Mask layer 0, head 3").click()
    opened.wait_for_function(DONE)
    assert text(opened, "masked-name") == "1 head masked"
    opened.locator("#pg-tau").fill("0")
    opened.wait_for_function(DONE)
    assert text(opened, "masked-name") == "64 heads masked"
    assert text(opened, "masked") != text(opened, "whole")


def test_markup_stays_text(opened):
    """What is typed and what the model copies is never HTML."""
    opened.evaluate("() => { window.alert = () => console.error('markup was run'); }")
    opened.locator("#pg-needle").fill("The code is <img src=x onerror=alert(1)><b>bold</b> now.")
    opened.locator("#pg-question").fill("<script>alert(2)</script> What is the code?")
    opened.locator("#pg-answer").fill("<img src=x onerror=alert(1)><b>bold</b>")
    ask(opened)
    opened.wait_for_function(DONE)
    assert "<img src=x onerror=alert(1)><b>bold</b>" in text(opened, "text")
    assert "<script>alert(2)</script>" in text(opened, "text")
    assert opened.locator("#pg img, #pg script, #pg-text b").count() == 0


def test_no_script_makes_markup_or_asks_for_anything():
    scripts = [p.read_text(encoding="utf-8") for p in
               (paths.BOOK / playground.FOLDER).glob("*.js")]
    forbidden = (r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\bfetch\b|"
                 r"XMLHttpRequest|WebSocket|sendBeacon|importScripts|https?:")
    assert scripts
    assert not [found for s in scripts for found in re.findall(forbidden, s)]


def test_what_does_not_fit_is_said(opened):
    opened.locator("#pg-answer").fill("words that are not there")
    ask(opened)
    opened.get_by_text("must stand word for word in the needle").wait_for()
    opened.locator("#pg-answer").fill("")
    opened.locator("#pg-needle").fill("1 " * 190)
    ask(opened)
    opened.get_by_text("do not fit into 256 tokens").wait_for()


def test_keys_reach_everything(opened):
    ask(opened)
    opened.wait_for_function(DONE)
    wanted, reached = set(opened.evaluate(STOPS)), []
    opened.locator("#pg-example").focus()
    for _ in range(40):
        reached.append(opened.evaluate(FOCUSED))
        opened.keyboard.press("Tab")
    assert wanted <= set(reached)
    seen = set()
    opened.locator("#pg-map button[tabindex='0']").focus()
    opened.keyboard.press("Home")
    for _ in range(64):
        seen.add(text(opened, "detail").split(":")[0])
        opened.keyboard.press("ArrowRight")  # at the end of a line on to the next one
    assert len(seen) == 64
    opened.keyboard.press("ArrowUp")
    assert text(opened, "detail").startswith("Layer 2, head 15:")
    assert "masked" not in text(opened, "detail")
    opened.keyboard.press("Enter")
    assert "masked" in text(opened, "detail")
    opened.keyboard.press("Space")
    assert "masked" not in text(opened, "detail")
    opened.locator("#pg-whole button[tabindex='0']").focus()
    opened.keyboard.press("Home")
    assert ", token 1 of" in text(opened, "moment")
    opened.keyboard.press("ArrowRight")
    assert ", token 2 of" in text(opened, "moment")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_axe_finds_nothing_serious(browser, html, width, scheme):
    with visiting(browser, html.as_uri(), width) as (page, problems):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{html.as_uri()}/playground.html")
        ask(page)
        page.wait_for_function(DONE)
        assert not page.evaluate(TOO_WIDE)
        # Without preload: axe itself would ask for the style sheets once more.
        found = Axe().run(page, options={"preload": False}).response["violations"]
        assert not [(v["id"], [n["target"] for n in v["nodes"]]) for v in found
                    if v["impact"] in ("serious", "critical")]
    assert not problems


def cpu_seconds() -> dict[int, float]:
    """Of each process of the browser so far."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[process.pid] = sum(process.cpu_times()[:2])
    return found


def test_the_first_answer_takes_less_than_three_seconds(browser, html):
    """Of processor time, for other programs may run beside a test; each try opens the page anew."""
    tries = []

    def first_answer() -> float:
        with visiting(browser, html.as_uri(), 1200) as (page, problems):
            page.goto(f"{html.as_uri()}/playground.html")
            page.wait_for_load_state("networkidle")
            before = cpu_seconds()
            ask(page)
            page.wait_for_function(WHOLE_DONE)
            tries.append(sum(cpu - before.get(pid, 0) for pid, cpu in cpu_seconds().items()))
        assert not problems
        return tries[-1]

    assert least(first_answer, 3) < 3, tries


def test_without_scripts_and_on_paper_it_says_what_it_would_be(browser, html, opened):
    opened.emulate_media(media="print")
    assert opened.get_by_text("On paper the model cannot run").is_visible()
    assert not opened.locator("#pg").is_visible()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{html.as_uri()}/playground.html")
    assert page.locator("noscript p").is_visible()
    assert not page.locator("#pg").is_visible()
    context.close()


def test_no_other_page_loads_its_scripts(html):
    assert 'src="playground/' not in (html / "index.html").read_text(encoding="utf-8")
