"""How much there is to read: what counts, and that no page grows."""

from tests.site.words import Words, ceilings, pages, words

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
    assert words(page) == Words(open=8, all=15)
    assert words("<p>A page of scripts</p>") == Words(0, 0)


def test_no_page_has_more_words_than_it_had(html):
    most, found = ceilings(), dict(pages(html))
    assert not found.keys() - most.keys(), "a new page needs its own line in words.csv"
    over = {name: (own, most[name]) for name, own in found.items()
            if own.open > most[name].open or own.all > most[name].all}
    assert not over


def test_the_book_has_no_more_words_than_it_may_have():
    assert sum(most.open for most in ceilings().values()) <= ALL_OPEN
    assert sum(most.all for most in ceilings().values()) <= ALL
