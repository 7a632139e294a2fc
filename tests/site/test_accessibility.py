"""The checks of every page see what they are there for."""

from tests.site.accessibility import barriers, faint
from tests.site.conftest import visiting

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
