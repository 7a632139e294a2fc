"""Contents and citations are complete; how much there is to read."""

import re

import yaml
from bs4 import BeautifulSoup

from rmutils.core import paths
from tests.site.words import Words, ceilings, pages, parsed, too_long, words

TOC = yaml.safe_load((paths.BOOK / "_toc.yml").read_text(encoding="utf-8"))


def listed(node) -> list[str]:
    """All files that a part of the table of contents names."""
    if isinstance(node, list):
        return [name for item in node for name in listed(item)]
    if isinstance(node, dict):
        own = [node[key] for key in ("root", "file") if key in node]
        return own + [name for value in node.values() for name in listed(value)]
    return []


def test_contents_list_every_page_and_every_notebook_once():
    pages = [p.relative_to(paths.BOOK).with_suffix("") for p in paths.BOOK.rglob("*.md")
             if not {"_build", "runs"} & set(p.relative_to(paths.BOOK).parts)]
    notebooks = ["index" if p.stem == "essay" else f"chapters/{p.stem}"
                 for p in paths.NOTEBOOKS.glob("*.ipynb")]
    assert sorted(listed(TOC)) == sorted([*map(str, pages), *notebooks])


def test_every_citation_has_an_entry():
    entries = set(re.findall(r"^@\w+\{([^,]+),", (paths.BOOK / "references.bib").read_text(
        encoding="utf-8"), flags=re.MULTILINE))
    sources = [*paths.BOOK.glob("*.md"), *paths.NOTEBOOKS.glob("*.ipynb")]
    cited = {key.strip() for p in sources for group in
             re.findall(r"\{cite[:a-z]*\}`([^`]+)`", p.read_text(encoding="utf-8"))
             for key in group.split(",")}
    assert cited <= entries


ALL_OPEN, ALL = 45_000, 75_000
"""The most words of the whole book."""


def test_prose_counts_once_and_what_waits_counts_beyond_it():
    page = """<nav>Not the menu</nav><article><h1>One title</h1>
      <p>Two words, and 3 more &mdash; here.</p>
      <pre>no code</pre><table><tr><td>no table</td></tr></table>
      <figure><svg><text>no label</text></svg><figcaption>
      <span class="caption-number">Fig. 1</span>
      A caption.</figcaption></figure>
      <details class="rm-made"><dl><dd>no note</dd></dl></details>
      <details><summary>More</summary><p>Folded words.</p></details>
      <div class="exercise"><p>Do this.</p><div class="cell_input">no cell</div></div></article>"""
    assert words(BeautifulSoup(page, "html.parser")) == Words(open=8, all=15)
    assert words(BeautifulSoup("<p>A page of scripts</p>", "html.parser")) == Words(0, 0)


def test_no_page_has_more_words_than_it_had(html):
    """But for the chapters, which tests/site/test_pages.py reads."""
    found = {name: words(parsed(file)) for name, file in pages(html)
             if not name.startswith("chapters/")}
    assert len(found) > 10 and not too_long(found)


def test_the_book_has_no_more_words_than_it_may_have():
    assert sum(most.open for most in ceilings().values()) <= ALL_OPEN
    assert sum(most.all for most in ceilings().values()) <= ALL
