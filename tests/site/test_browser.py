"""The book as a reader sees it, in a real browser."""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

from bs4 import BeautifulSoup

from tests.site.accessibility import barriers, faint
from tests.site.conftest import visiting

PICTURES = """() => [...document.querySelectorAll('article img')].map(
    i => [i.getAttribute('src'), i.naturalWidth, i.getAttribute('alt') || ''])"""
MATH = """() => [...document.querySelectorAll('article .math')].map(
    m => [m.textContent.slice(0, 60), !!m.querySelector('mjx-container'),
          !!m.querySelector('mjx-merror')])"""
SETTLED = """async () => {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
    for (const i of document.images) i.loading = 'eager';
    for (const i of document.images) if (!i.complete) await new Promise(on => {
        i.addEventListener('load', on);
        i.addEventListener('error', on);
    });
}"""
RAW = r"""() => [...document.querySelectorAll('article :is(p, li, td):not(.rm-sides *)')]
    .map(e => e.innerText)
    .filter(text => /\|[-–—]+\||\*\*\w|\{(ref|doc|cite\S*)\}/.test(text))
    .map(text => text.slice(0, 80))"""
"""Marks of Markdown that nothing has set, outside of what models write."""
LINKS = "() => [...document.querySelectorAll('a[href]')].map(a => a.href)"
SCENE = re.compile(r"model=[\w.-]+&|head-[\w.-]+-\d+-\d+$")
"""The anchor of a scene of the playground, or of a head's card, which scripts of the pages open:
tests/site/test_playground.py, test_figures.py."""
IDS = "() => [...document.querySelectorAll('[id]')].map(e => e.id)"
TOO_WIDE = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll('body *')]
        .filter(e => e.getBoundingClientRect().right > width + 1)
        .map(e => e.tagName + '.' + e.className).slice(0, 5).concat('page is too wide');
}"""


def pages(html: Path) -> list[str]:
    """Small ones first: what text looks like in them is not looked at again in large ones."""
    found = sorted(html.rglob("*.html"), key=lambda p: (p.stat().st_size, p))
    return [str(p.relative_to(html)) for p in found
            if not p.relative_to(html).parts[0].startswith("_")]


def settle(page) -> None:
    """Until formulas, fonts and pictures are there. Playwright's "networkidle" waits longer, and on
    a busy machine sometimes for ever."""
    page.evaluate(SETTLED)


def wide(page) -> None:
    page.goto("about:blank")  # or the page before would be laid out once more
    page.set_viewport_size({"width": 1200, "height": 900})
    page.emulate_media(color_scheme="light")


def phone_at_night(page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.emulate_media(color_scheme="dark")


def test_every_page_is_whole_and_fits_a_phone_and_loads_nothing_from_elsewhere(
    browser, address, html
):
    found, links, ids, looks, dark = {}, {}, {}, set(), set()
    with visiting(browser, address, 1200) as (page, problems):
        for name in pages(html):
            wide(page)
            page.goto(address + name)
            settle(page)
            for src, width, alt in page.evaluate(PICTURES):
                if not width:
                    problems.append(f"picture {src} does not show")
                if not alt or alt.endswith((".png", ".svg")):
                    problems.append(f"picture {src} has no text for those who cannot see it")
            for text, rendered, wrong in page.evaluate(MATH):
                if not rendered or wrong:
                    problems.append(f"formula is not set: {text}")
            problems += [f"not set: {text}" for text in page.evaluate(RAW)]
            links[name], ids[name] = page.evaluate(LINKS), set(page.evaluate(IDS))
            problems += [*barriers(page, frame=not found), *faint(page, looks)]
            phone_at_night(page)
            problems += [*page.evaluate(TOO_WIDE), *faint(page, dark)]
            found[name] = problems.copy()
            problems.clear()
    for name, targets in links.items():
        for url, anchor in (urldefrag(urljoin(address + name, t)) for t in targets):
            target = unquote(url.removeprefix(address)) or "index.html"
            if url.startswith(address) and (
                not (html / target).is_file()
                or (anchor and target in ids and unquote(anchor) not in ids[target]
                    and not SCENE.match(anchor))
            ):
                found[name].append(f"link to {target}#{anchor} leads nowhere")
    assert len(found) >= 5
    assert not {name: told for name, told in found.items() if told}


def test_stored_results_can_be_searched(browser, address):
    with visiting(browser, address, 1200) as (page, problems):
        page.goto(f"{address}chapters/provenance.html")
        table = page.locator("details.rm-numbers:has(input[type=search])").first
        table.locator("summary").first.click()
        rows = table.locator("tbody tr:visible")
        whole = rows.count()
        table.get_by_role("searchbox").fill("SMOLLM2-135m detect")
        found = rows.all_inner_texts()
        assert 0 < len(found) < whole
        assert all("smollm2-135m" in row and "detect" in row for row in found)
        assert table.locator("output").inner_text() == f"{len(found)} of {whole} rows"
    assert not problems


def test_contents_lead_from_page_to_page(html):
    """Following "next" from the first page visits every page of the table of contents."""
    seen, name = [], "index.html"
    while name not in seen:
        seen.append(name)
        text = (html / name).read_text(encoding="utf-8")
        page = BeautifulSoup(text[text.rfind("prev-next-footer"):], "html.parser")
        if following := page.select_one("a.right-next"):
            name = unquote(urljoin(name, following["href"]))
    made = {"search.html", "genindex.html", "py-modindex.html"}
    assert set(seen) == set(pages(html)) - made


GOOD = """<!DOCTYPE html><html lang="en"><title>A page</title><main><h1>One</h1><h2>Two</h2>
<p>Text with <a href="#a">a link</a>.</p><div tabindex="0" style="width: 99px; overflow: auto">
<p style="width: 999px">wide</p></div></main>"""
BAD = {'<h2>Two</h2>': ('<h3>Two</h3>', "skips a level"),
       '<h1>One</h1>': ('<p>One</p>', "one of the first level"),
       ' tabindex="0"': ("", "no key scrolls DIV"),
       '<p>Text': ('<img src="data:,"><p>Text', "image-alt")}


def test_each_fault_is_named(browser):
    with visiting(browser, "data:", 1200) as (page, _):
        page.set_content(GOOD)
        assert not barriers(page)
        for part, (fault, told) in BAD.items():
            page.set_content(GOOD.replace(part, fault))
            assert any(told in found for found in barriers(page)), told


def test_faint_text_is_seen_once_and_only_where_it_looks_new(browser):
    with visiting(browser, "data:", 1200) as (page, _):
        page.set_content(GOOD)
        known: set[str] = set()
        assert not faint(page, known) and known
        pale = GOOD.replace("<p>Text", '<p style="color: #bbb">Text')
        page.set_content(pale)
        assert any("color-contrast" in found for found in faint(page, known))
        page.set_content(pale)
        assert not faint(page, known)
