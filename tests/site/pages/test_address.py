"""No address is invented; once there is one, pages have cards and there is a map."""

from xml.etree import ElementTree

from rmutils.book.site.pages.address import VARIABLE
from tests.site.pages.conftest import build

ADDRESS = "https://example.org/book"


def test_without_an_address_there_are_no_cards_and_no_map(pages):
    text = (pages / "index.html").read_text(encoding="utf-8")
    assert "og:" not in text and "canonical" not in text
    assert not (pages / "sitemap.xml").exists()


def test_with_an_address_pages_have_cards_and_there_is_a_map(book, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, ADDRESS)
    html = build(book, tmp_path)
    text = (html / "chapters" / "05_one.html").read_text(encoding="utf-8")
    assert f'property="og:url" content="{ADDRESS}/chapters/05_one.html"' in text
    assert 'property="og:site_name" content="A book"' in text
    image = text.partition(f'property="og:image" content="{ADDRESS}/')[2].partition('"')[0]
    assert (html / image).read_bytes().startswith(b"\x89PNG")
    places = {place.text for place in ElementTree.parse(html / "sitemap.xml").iter()
              if place.tag.endswith("loc")}
    assert places == {f"{ADDRESS}/{name}.html" for name in ("index", "lists", "chapters/05_one")}
