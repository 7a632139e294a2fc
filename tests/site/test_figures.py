"""Views of figures in a real browser: by pointer and by keys they show the numbers they were given;
on paper, without scripts and in the dark the pictures are there."""

import io
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from rmutils.book.chapters import interactive
from rmutils.book.chapters.masking_sweep.plots import masking_sweep
from rmutils.book.figures.head_figures import head_map
from rmutils.book.figures.style import to_svg, use_style
from rmutils.core import paths
from rmutils.heads.scores import HeadScores
from tests.site.conftest import fresh_page, visiting
from tests.site.test_browser import TOO_WIDE

EVIL = "</script><img src=x onerror=alert(1)><b>bold</b> \"quoted\""
PAGE = """<!doctype html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"><title>A</title>
<meta name="viewport" content="width=device-width"><style>body {{ margin: 8px }}
:root {{ --pst-color-text-base: #222832; --pst-color-text-muted: #48566b;
--pst-color-background: #fff }}</style><link rel="stylesheet" href="figures/figures.css">
{scripts}</head><body><main><h1>A</h1><figure><img src="a.svg" alt="A picture"><figcaption>Caption
</figcaption></figure><div class="cell">{data}</div></main></body></html>"""
CHAPTERS = {"01_preliminaries": 2, "02_masking_sweep": 2, "heads_at_work": 1, "teaching_models": 1}
"""Views in each."""
VISIBLE = """() => [...document.querySelectorAll('figure img')].filter(
    e => !e.closest('details:not([open])')).map(
    e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 0)"""
"""Visibility of all pictures outside of folds, asked at once: one by one takes seconds."""


@pytest.fixture
def show(browser, tmp_path):
    """A function that opens a page with a picture and its data; nothing may go wrong on it."""
    left = []
    shutil.copytree(paths.BOOK / "_static" / "figures", tmp_path / "figures")

    def opened(figure, data, width=1200):
        (tmp_path / "a.svg").write_text(to_svg(figure), encoding="utf-8")
        scripts = "".join(f'<script src="figures/{p.name}"></script>'
                          for p in sorted((tmp_path / "figures").glob("*.js")))
        (tmp_path / "a.html").write_text(PAGE.format(scripts=scripts, data=data.data),
                                         encoding="utf-8")
        visit = visiting(browser, tmp_path.as_uri(), width)
        page, problems = visit.__enter__()
        left.append((visit, problems))
        page.goto(f"{tmp_path.as_uri()}/a.html")
        return page, json.loads(page.locator("script.rm-figure").text_content())

    use_style()
    yield opened
    for visit, problems in left:
        visit.__exit__(None, None, None)
        assert not problems


@pytest.fixture
def scores():
    return HeadScores(np.random.default_rng(1).random((8, 6, 4)) ** 4, "some", np.arange(8))


@pytest.mark.parametrize("width", [1200, 390])
def test_head_map_by_pointer_keys_and_tau(show, scores, width):
    page, data = show(head_map(scores, 0.2), interactive.head_map(scores, 0.2), width)
    cells, told = page.locator(".rm-heads button"), page.locator(".rm-told")

    def says(layer, head):
        return told.inner_text().startswith(
            f"Layer {layer}, head {head}: score {data['shown'][4 * layer + head]}")

    assert not page.locator("img").is_visible() and not page.evaluate(TOO_WIDE)
    assert says(*scores.ranking()[0])
    cells.nth(4 * 5 + 1).hover()
    assert says(5, 1)
    page.mouse.move(0, 0)
    assert says(*scores.ranking()[0])
    cells.nth(4 * 2 + 1).click()
    page.keyboard.press("ArrowRight")
    assert says(*((3, 1) if width > 600 else (2, 2)))
    page.keyboard.press("ArrowDown")
    assert says(3, 2)
    assert page.locator(":focus").get_attribute("aria-label") == told.inner_text()
    slider = page.get_by_role("slider")
    for tau in (0.2, 0.21, 0.22):
        chosen = [4 * layer + head for layer, head in scores.select(tau=tau)]
        reach = page.locator(".rm-heads button").evaluate_all(
            "cells => cells.flatMap((c, i) => c.matches('.rm-reaches') ? [i] : [])")
        assert reach == sorted(chosen)
        assert f"{data['reach'][round(100 * tau)]} of 24 heads" in page.locator(
            "output").inner_text()
        assert (", masked" in told.inner_text()) == (4 * 3 + 2 in chosen)
        slider.press("ArrowRight")
    if width < 600:
        return
    found = Axe().run(page, options={"preload": False}).response["violations"]
    assert not [v["id"] for v in found if v["impact"] in ("serious", "critical")]


def test_needle_token_by_token_and_markup_stays_text(show, scores):
    prompt = ["A ", "long ", EVIL, "word", " text", "?"]
    heads = [{"name": f"{EVIL}{i}", "looks": looks, "copied": [False, True],
              "inside": [0.25, 0.875], "weights": [[[0, 0.5], [3, 0.25]], [[2, 0.625], [3, 0.25]]]}
             for i, looks in enumerate(([0, 2], [1, 3]))]
    page, data = show(head_map(scores, 0.2), interactive.embed("needle", {
        "prompt": prompt, "written": [EVIL, "!"], "needle": [2, 4], "inserted": [1, 5],
        "heads": heads}))
    hardest, told = page.locator(".rm-prompt .rm-hardest"), page.locator(".rm-told")
    assert data["prompt"] == prompt and page.locator("img").count() == 1
    assert page.locator("img").is_visible() and not page.locator("b").count()
    assert hardest.text_content() == EVIL  # it begins with the first token that is copied
    assert told.inner_text().endswith(
        f"“{EVIL}”, in the needle, and that is what is written: copied. 88 % of its attention is "
        "on the needle.")
    assert page.locator(".rm-prompt").inner_text() == "".join(prompt) + EVIL + "!"
    page.get_by_role("slider").press("ArrowLeft")
    assert hardest.text_content() == "A " and "not in the needle. 25 %" in told.inner_text()
    assert page.locator(".rm-prompt").inner_text() == "".join(prompt) + EVIL
    look = page.locator(".rm-prompt > *").evaluate_all(
        "spans => spans.map(s => Number(s.style.getPropertyValue('--look')))")
    assert look[:6] == [1, 0, 0, 0.5, 0, 0]
    page.get_by_role("combobox").select_option(index=1)
    assert hardest.text_content() == "long "
    assert page.locator("option").all_text_contents() == [head["name"] for head in heads]


@pytest.mark.parametrize("width", [1200, 390])
def test_cards_are_sorted_and_one_is_opened_by_the_address(show, scores, width):
    kinds = [["first token", "#ffffff"], ["copy", "#0072b2"], ["other", "#d3d9e0"]]
    rng = np.random.default_rng(2)

    def model(name, mean):
        return {"name": name, "kinds": kinds, "mean": mean, "cards": [
            {"head": [i // 4, i % 4], "score": float(rng.random()), "distance": i,
             "shares": [90.0 - i, i, 10], "entropy": 1.25, "adds": None if mean is None else i - 5,
             "examples": [[EVIL, 0.5, "copy", EVIL, "seen", "here", "next"]]}
            for i in range(16)]}

    models = [model("one", 1.5), model("two", 2.5)]
    page, _ = show(head_map(scores, 0.2), interactive.embed("cards", {"models": models}), width)
    cards, menu = page.locator(".rm-card"), page.get_by_label("Sort by")
    assert cards.count() == 12 and not page.evaluate(TOO_WIDE)
    by_score = sorted(models[0]["cards"], key=lambda card: -card["score"])
    assert [f"Layer {card['head'][0]}, head {card['head'][1]} copy score {card['score']:.2f}"
            for card in by_score[:12]] == page.locator(".rm-card-name").all_inner_texts()
    page.get_by_role("button", name="All 16 heads").click()
    assert cards.count() == 16
    for order, first in (("copies", "Layer 3, head 3"), ("layer", "Layer 0, head 0"),
                         ("contribution to the next token", "Layer 3, head 3"),
                         ("rest on the first token", "Layer 0, head 0")):
        menu.select_option(order)
        assert cards.first.inner_text().startswith(first)
    assert "first token 90\u00a0%" in cards.first.inner_text()
    assert "adds -3.3 times as much as the mean of these heads" in cards.first.inner_text()
    page.evaluate("location.hash = '#head-two-2-1'")
    asked = page.locator(".rm-asked")
    asked.wait_for()
    assert asked.inner_text().startswith("Layer 2, head 1")
    assert EVIL in asked.locator("details").inner_text()
    assert not page.locator(".rm-card img").count()
    assert page.get_by_label("Model").input_value() == "two"
    assert asked.evaluate("e => e === document.activeElement")
    if width < 600:
        return
    found = Axe().run(page, options={"preload": False}).response["violations"]
    assert not [v["id"] for v in found if v["impact"] in ("serious", "critical")]


def test_a_head_of_the_map_leads_to_its_card(show, scores):
    page, _ = show(head_map(scores, 0.2), interactive.head_map(scores, 0.2, cards=True))
    page.locator(".rm-heads button").nth(4 * 5 + 1).click()
    link = page.get_by_role("link", name="its card")
    assert link.get_attribute("href") == "heads_at_work.html#head-some-5-1"


def test_sweep_by_pointer_and_keys(show, scores):
    curve = pd.DataFrame([(policy, n, 0.9 / (n + 1), 0.8 / (n + 1), 0.95 / (n + 1))
                          for policy in ("retrieval", "non-retrieval") for n in (0, 2, 8, 24)
                          if n < 24 or policy == "retrieval"],
                         columns=["policy", "count", "value", "low", "high"])
    curves = {"haystack": curve, EVIL: curve.assign(value=curve["value"] / 2)}
    figure = masking_sweep(curves, {})
    page, data = show(figure, interactive.masking_sweep(figure, curves, scores))
    slider, line = page.get_by_role("slider"), page.locator(".rm-line")
    assert "8 of 24" in slider.get_attribute("aria-valuetext")  # not at 0, where all are alike
    slider.press("Home")
    for at in (1, 2, 3):
        slider.press("ArrowRight")
        assert page.locator("tbody td").all_text_contents() == [
            measure[policy][at] or "–" for measure in data["measures"]
            for policy in ("retrieval", "non-retrieval")]
        assert page.locator("tbody th").all_text_contents() == [*curves]
        assert f"{data['counts'][at]} of 24" in slider.get_attribute("aria-valuetext")
    box = page.locator("img").bounding_box()
    page.mouse.move(box["x"] + box["width"] * data["across"][2], box["y"] + 20)
    assert slider.input_value() == "2"
    middle = line.bounding_box()["x"] + 1
    assert middle == pytest.approx(box["x"] + box["width"] * data["across"][2], abs=2)
    page.emulate_media(media="print")
    assert page.locator("img").is_visible() and not slider.is_visible()


def test_chapters_have_their_views_and_without_scripts_their_pictures(browser, html):
    bare = fresh_page(browser, java_script_enabled=False)
    for name, count in CHAPTERS.items():
        url = f"{html.as_uri()}/chapters/{name}.html"
        with visiting(browser, html.as_uri(), 1200) as (page, problems):
            page.goto(url)
            assert page.locator(".rm-view").count() == count
            page.emulate_media(media="print")
            assert all(page.evaluate(VISIBLE)), name
            assert not problems
        bare.goto(url)
        assert all(bare.evaluate(VISIBLE)), name
        assert not bare.locator(".rm-view").count()
    bare.context.close()


def test_pictures_follow_the_mode_of_the_page(browser, html):
    """The ground of a figure is that of the page, and its ink can be read on it."""
    with visiting(browser, html.as_uri(), 1200) as (page, _):
        page.emulate_media(color_scheme="light")  # the reader's system does not matter
        page.goto(f"{html.as_uri()}/chapters/01_preliminaries.html")
        for scheme in ("light", "dark"):
            page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            shot = page.locator("figure img >> visible=true").first.screenshot()
            pixels = np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)
            paper = [int(n) for n in re.findall(r"\d+", ground)][:3]
            assert abs(pixels[2, 2] - paper).max() <= 2
            assert abs(pixels - paper).sum(-1).max() > 3 * 150
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
