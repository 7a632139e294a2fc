"""The playground as a reader uses it: in a real browser, from a file, without a network."""

import json
import re
from functools import partial
from urllib.parse import parse_qsl

import psutil
import pytest
from playwright.sync_api import Route

from rmutils.book.site import playground
from rmutils.book.site.slides import FOLDER, PLACE
from rmutils.core import paths
from tests.site.conftest import fresh_page, visiting

DONE = "() => document.querySelector('#pg-status').textContent.includes('tokens a second')"
READS = "() => document.querySelector('#pg-status').textContent.includes('model reads')"
NAME = "e => e.closest('[role=group]')?.id || e.id || e.tagName"
"""Of something that can have the focus; a group of buttons is one stop of the Tab key."""
STOPS = f"""() => [...document.querySelectorAll('#pg *')].filter(
    e => e.matches('button, input, select, textarea, summary, [tabindex]')
         && !e.disabled && e.offsetParent).map({NAME})"""
FOCUSED = f"() => ({NAME})(document.activeElement)"


@pytest.fixture
def opened(browser, html):
    """The page with the teaching model, opened as a file, and nothing may go wrong on it."""
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        page.goto(f"{html.as_uri()}/playground.html#model=tiny-llama")
        yield page
        assert not problems


def ask(page) -> None:
    page.get_by_role("button", name="Ask", exact=True).click()


def text(page, name: str) -> str:
    return page.locator(f"#pg-{name}").inner_text()


def test_an_answer_is_there_when_the_page_opens(browser, html):
    """The whole model finds the needle; without its retrieval heads it says something else."""
    with visiting(browser, html.as_uri(), 1280) as (page, problems):
        page.goto(f"{html.as_uri()}/playground.html")
        assert "Right" in text(page, "whole-found")
        assert "Wrong" in text(page, "changed-found")
        assert page.locator("#pg-whole .pg-differs").count()
        assert page.locator("#pg-map span", has_text="●").count()
        hardest = page.locator("#pg-text .pg-hardest")
        assert hardest.evaluate("e => e.tagName") == "U"  # a token of the needle's answer
        written = page.locator("#pg-whole [aria-current=true]").text_content()
        assert hardest.text_content() == written
        assert not problems


def test_masking_the_highest_random_others_and_by_hand(opened):
    ask(opened)
    opened.wait_for_function(DONE)
    highest = text(opened, "changed")
    opened.locator("#pg-choice").select_option("random")
    opened.wait_for_function(DONE)
    assert "heads drawn at random" in text(opened, "changed-name")
    marked = opened.evaluate("() => [...document.querySelectorAll('#pg-map button')].map("
                             "e => [e.textContent.includes('×'), e.matches('.pg-retrieval')])")
    per_layer = [[sum(cell[kind] for cell in marked[16 * layer: 16 * layer + 16])
                  for layer in range(4)] for kind in (0, 1)]
    assert per_layer[0] == [min(n, 16 - n) for n in per_layer[1]]
    assert not any(masked and top for masked, top in marked)
    opened.locator("#pg-choice").select_option("top")
    opened.locator("#pg-count").fill("0")
    assert text(opened, "changed-name") == "No head is masked"
    assert text(opened, "changed") == ""
    opened.get_by_role("button", name="layer 0, head 3,").first.click()
    opened.get_by_role("button", name="Mask layer 0, head 3").click()
    opened.wait_for_function(DONE)
    assert text(opened, "changed-name") == "Without 1 head of your choice"
    assert text(opened, "changed") not in ("", highest)
    assert "change=own&heads=0.3" in opened.url


def test_a_clicked_sentence_is_answered_from(opened):
    """Two sentences contradict each other; the address keeps which one was clicked."""
    opened.get_by_role("button", name="Two answers").click()
    ask(opened)
    opened.wait_for_function(DONE)
    needle = opened.locator("#pg-needle").input_value()
    opened.locator("#pg-choice").select_option("redirect")
    for knob in ("pointed", "strength"):
        opened.locator(f"#pg-{knob}").fill("10")
    opened.wait_for_function(DONE)
    sentences = opened.locator("#pg-sentence option").all_inner_texts()
    for sentence in (sentences[0], needle):
        opened.locator("#pg-text > :not(svg)").nth(opened.evaluate(
            "number => Playground.page.sentences[number][0]", sentences.index(sentence))).click()
        opened.wait_for_function(DONE)
        framed = "".join(opened.locator("#pg-text .pg-framed").all_text_contents())
        assert framed.strip() == sentence
        assert opened.locator("#pg-sentence option:checked").inner_text() == sentence
        assert text(opened, "changed-name") == "10 heads pointed at the framed sentence"
        assert text(opened, "changed").strip() == sentence
        assert ("sentence=" in opened.url) == (sentence != needle)
    opened.locator("#pg-sentence").select_option(index=0)
    opened.wait_for_function(DONE)
    assert "sentence=0" in opened.url


def test_a_chosen_head_has_its_card_where_one_is_stored(browser, html):
    with visiting(browser, html.as_uri(), 1280) as (page, problems):
        page.goto(f"{html.as_uri()}/playground.html")
        cards = page.evaluate("() => Playground.page.model.cards")
        work = page.locator("#pg-work")
        if cards:
            one = max(cards["cards"], key=lambda card: card["score"])
            layer, head = one["head"]
            page.get_by_role("button", name=f"layer {layer}, head {head},").first.click()
            work.locator("summary").first.click()
            said = page.locator("#pg-card").inner_text()
            assert f"Layer {layer}, head {head}" in said and "score" not in said
            assert f"looks back {one['distance']} tokens" in said
            name = f"{cards['name']}-{layer}-{head}"
            assert page.locator("#pg-cards").get_attribute("href").endswith(f"#head-{name}")
            page.locator("#pg-cards").click()
            page.locator(".rm-asked").wait_for()
            assert page.locator(".rm-asked").inner_text().startswith(f"Layer {layer}, head {head}")
            page.go_back()
        page.goto(f"{html.as_uri()}/playground.html#model=tiny-llama")
        work.wait_for(state="hidden")
        assert not problems


def test_likely_tokens_are_shown_of_the_one_under_the_pointer(opened):
    shown = opened.locator("#pg-next li").all_inner_texts()
    assert len(shown) == 5
    shares = [int(row.split()[-2]) for row in shown]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 102  # rounded
    for run in ("whole", "changed"):
        for token in opened.locator(f"#pg-{run} button").all()[:3]:
            token.hover()
            written = token.text_content().strip()
            assert text(opened, "next-name") == f"Likely where “{written}” stands"
            assert opened.locator("#pg-next li").first.inner_text().startswith(f"“{written}”")
    opened.mouse.move(0, 0)
    assert opened.locator("#pg-next li").all_inner_texts() == shown


def test_fewer_heads_remember_the_text(opened):
    ask(opened)
    opened.wait_for_function(DONE)
    opened.locator("#pg-choice").select_option("memory")
    left = []
    for share in ("0", "0.5", "1"):
        opened.locator("#pg-share").fill(share)
        opened.wait_for_function(DONE)
        left.append(int(text(opened, "cache").split()[0]))
        assert opened.locator("#pg-map .pg-retrieval").count() == 64 * float(share)
    assert left[0] < left[1] < left[2] == 100
    assert text(opened, "changed") == text(opened, "whole")
    opened.locator("#pg-share").fill("0")
    opened.wait_for_function(DONE)
    assert "Wrong" in text(opened, "changed-found")
    assert "change=memory&share=0" in opened.url


def test_an_address_brings_the_scene_back(browser, html, opened):
    opened.locator("#pg-needle").fill("They say that the code of Corsa Ureld is 4 & <7>.")
    opened.locator("#pg-count").fill("3")
    opened.locator("#pg-choice").select_option("random")
    ask(opened)
    opened.wait_for_function(DONE)
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        page.goto(opened.url)
        for field in ("needle", "question", "answer", "haystack", "depth", "count", "choice"):
            assert (page.locator(f"#pg-{field}").input_value()
                    == opened.locator(f"#pg-{field}").input_value())
        page.goto(f"{html.as_uri()}/playground.html#model=x&scene=99&k=1e9&heads=9.99,a,-1.2&change=z&low=x&head=9.9")
        assert text(page, "whole")
        assert not problems


LINK = re.compile(r"\{scene\}`[^`<]+<([^`>]+)>`")
IN_SLIDES = re.compile(r"\]\(\.\./\.\./playground\.html#([^)]+)\)")
FIELDS = {"change": "choice", "k": "count", "low": "low", "high": "high", "cap": "cap", "p": "p",
          "model": "model"}
"""Parts of the address, and the fields of the form that show them."""


def test_links_of_chapters_and_slides_set_what_they_say(browser, html):
    """Each of them is on its page, and the page that it opens shows every part of it."""
    found = {f"chapters/{path.stem}": LINK.findall("".join(
        "".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]))
        for path in paths.NOTEBOOKS.glob("*.ipynb")}
    found |= {f"{PLACE}/{path.stem}": IN_SLIDES.findall(path.read_text(encoding="utf-8"))
              for path in paths.BOOK.glob(f"{FOLDER}/*.yml")}
    assert sum(map(bool, found.values())) >= 9
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        for place, fragments in found.items():
            written = (html / f"{place}.html").read_text(encoding="utf-8") if fragments else ""
            assert all(f"../playground.html#{fragment}".replace("&", "&amp;") in written
                       for fragment in fragments)
        for fragment in sorted({f for fragments in found.values() for f in fragments}):
            page.goto("about:blank")
            page.goto(f"{html.as_uri()}/playground.html#{fragment}")
            given = dict(parse_qsl(fragment, strict_parsing=True))
            if given["model"] not in page.locator("#pg-model").inner_html():
                continue  # the model was not here when the pages were built
            shown = {part: page.locator(f"#pg-{FIELDS[part]}").input_value()
                     for part in given.keys() & FIELDS.keys()}
            assert shown == {part: given[part] for part in shown}, fragment
            scene = page.locator("#pg-scenes [aria-pressed=true]")
            assert scene.inner_text() == page.locator("#pg-scenes button").nth(
                int(given["scene"])).inner_text()
            if "head" in given:
                layer, head = given["head"].split(".")
                assert f"ayer {layer}, head {head}" in text(page, "detail")
            assert given.keys() <= {*FIELDS, "scene", "head", "seed"}
        assert not problems


def test_another_question_clears_the_old_answer_and_unknown_words_are_named(opened):
    assert text(opened, "whole")
    opened.locator("#pg-needle").fill("")
    assert text(opened, "whole") == text(opened, "changed") == text(opened, "whole-found") == ""
    ask(opened)  # the browser asks for a needle
    assert text(opened, "whole") == ""
    opened.locator("#pg-needle").fill("They say that the secret of Corsa Ureld is an umbrella.")
    ask(opened)
    opened.get_by_text("does not know: umbrella.").wait_for()
    opened.wait_for_function(DONE)
    assert "of the needle's 11 words" in text(opened, "whole-found")
    assert "␣" not in text(opened, "whole")


def test_markup_stays_text(opened):
    """What is typed and what the model copies is never HTML."""
    opened.evaluate("() => { window.alert = () => console.error('markup was run'); }")
    opened.locator("#pg-needle").fill("The code is <img src=x onerror=alert(1)><b>bold</b> now.")
    opened.locator("#pg-question").fill("<script>alert(2)</script> What is the code?")
    opened.locator("#pg-more summary").click()
    opened.locator("#pg-answer").fill("<img src=x onerror=alert(1)><b>bold</b>")
    ask(opened)
    opened.wait_for_function(DONE)
    assert "<img src=x onerror=alert(1)><b>bold</b>" in text(opened, "text")
    assert "<script>alert(2)</script>" in text(opened, "text")
    assert opened.locator("#pg img, #pg script, #pg-text b").count() == 0


def test_no_script_makes_markup_or_asks_for_anything():
    scripts = [p.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "") for p in
               (paths.BOOK / playground.FOLDER).glob("*.js")]
    forbidden = (r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\bfetch\(|"
                 r"XMLHttpRequest|WebSocket|sendBeacon|importScripts|https?:")
    assert scripts
    assert not [found for s in scripts for found in re.findall(forbidden, s)]


def test_what_does_not_fit_is_said(opened):
    opened.locator("#pg-more summary").click()
    opened.locator("#pg-answer").fill("words that are not there")
    ask(opened)
    opened.get_by_text("must stand word for word in the needle").wait_for()
    opened.locator("#pg-answer").fill("")
    opened.locator("#pg-haystack").fill("1 " * 1500)
    ask(opened)
    opened.get_by_text(re.compile(r"have 3\d\d\d tokens, and 1024 fit here")).wait_for()


def test_a_missing_and_a_damaged_part_are_named(browser, html):
    part = "tiny-llama-00.js"
    damaged = f'Playground.part("{part}", () => {{/*AAAA*/}});'
    for answer in ({"status": 404, "body": ""}, {"body": damaged, "status": 200}):
        with visiting(browser, html.as_uri(), 1200) as (page, _):
            page.route(f"**/{part}", partial(Route.fulfill, **answer,
                                             content_type="text/javascript"))
            page.goto(f"{html.as_uri()}/playground.html#model=tiny-llama")
            ask(page)
            page.get_by_text(re.compile(f"The file {part} is .*damaged")).wait_for()
            page.unroute(f"**/{part}")
            ask(page)
            page.wait_for_function(DONE)


STOP_SOON = """() => new Promise(stopped => {
    const status = document.querySelector('#pg-status');
    new MutationObserver((_, watch) => {
        if (!status.innerText.includes('Reading the text')) return;
        watch.disconnect();
        document.querySelector('#pg-stop').click();
        stopped();
    }).observe(status, {childList: true, characterData: true, subtree: true});
    document.querySelector('#pg-ask').click();
})"""
"""From within the page: the answer may be there before a click from outside arrives."""


def test_a_stopped_answer_stops(opened):
    opened.locator("#pg-haystack").evaluate("e => { e.value = e.value.repeat(4); }")
    opened.evaluate(STOP_SOON)
    assert text(opened, "status") == "Stopped."
    said = text(opened, "whole")
    ask(opened)
    opened.wait_for_function(DONE)
    assert text(opened, "whole") != said


FREE = """() => new Promise(free => {  // the thread is idle again
    document.querySelector('#pg-stop').click();
    Playground.page.thread.ask(
        'whole', {needle: '', answer: 'not there', change: {}}, () => free());
})"""


def test_the_real_model_needs_less_than_700_mb_and_stops(browser, html, address):
    """Over http. Memory is all that the tab's process holds, the browser's own code included."""
    with visiting(browser, address, 1280) as (page, problems):
        page.goto(f"{address}playground.html#model={playground.REAL}")
        if page.locator("#pg-model").input_value() != playground.REAL:
            pytest.skip(f"{playground.REAL} was not here when the pages were built")
        shipped = text(page, "whole"), text(page, "changed")
        ask(page)
        page.wait_for_function(READS)
        loaded = tab_memory()
        page.wait_for_function(DONE)
        answered = tab_memory()
        print(f"loaded {loaded / 1e6:.0f} MB, answered {answered / 1e6:.0f} MB")
        assert (text(page, "whole"), text(page, "changed")) == shipped
        assert max(loaded, answered) < 700e6
        page.locator("#pg-choice").select_option("ms-poe")
        page.wait_for_function(READS)
        page.evaluate(FREE)
        assert text(page, "status") == "Stopped."
        assert not problems


def tab_memory() -> int:
    """Bytes of the largest of the browser's processes that hold pages."""
    return max(one.memory_info().rss for one in psutil.Process().children(recursive=True)
               if "--type=renderer" in one.cmdline())


def test_without_simd_the_teaching_model_answers_all_the_same(browser, html):
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        page.add_init_script("WebAssembly.validate = () => false;")
        page.goto(f"{html.as_uri()}/playground.html")
        assert page.locator("#pg-model").input_value() == "tiny-llama"
        assert "has no SIMD" in text(page, "about")
        shipped = text(page, "whole")
        ask(page)
        page.wait_for_function(DONE)
        assert text(page, "whole") == shipped
        assert not problems


def test_keys_reach_everything(opened):
    ask(opened)
    opened.wait_for_function(DONE)
    opened.locator("#pg-more summary").click()
    wanted, reached = set(opened.evaluate(STOPS)), []
    opened.locator("#pg-model").focus()
    for _ in range(40):
        reached.append(opened.evaluate(FOCUSED))
        opened.keyboard.press("Tab")
    assert wanted <= set(reached)
    seen = set()
    opened.locator("#pg-map button[tabindex='0']").focus()
    opened.keyboard.press("Home")
    for _ in range(64):
        seen.add(text(opened, "detail").split(":")[0])
        opened.keyboard.press("ArrowDown")
    assert len(seen) == 16  # a layer is a column
    opened.keyboard.press("End")
    assert text(opened, "detail").startswith("Layer 3, head 15:")
    masked = "masked" in text(opened, "detail")
    opened.keyboard.press("m")
    assert ("masked" in text(opened, "detail")) != masked
    opened.locator("#pg-whole button[tabindex='0']").focus()
    opened.keyboard.press("Home")
    assert ", token 1 of" in text(opened, "moment")
    opened.keyboard.press("ArrowRight")
    assert ", token 2 of" in text(opened, "moment")


def test_without_scripts_and_on_paper_it_says_what_it_would_be(browser, html, opened):
    opened.emulate_media(media="print")
    assert opened.get_by_text("On paper no model can run").is_visible()
    assert not opened.locator("#pg").is_visible()
    page = fresh_page(browser, java_script_enabled=False)
    page.goto(f"{html.as_uri()}/playground.html")
    assert page.locator("noscript p").is_visible()
    assert not page.locator("#pg").is_visible()
    page.context.close()
