"""Printed pages joined to one PDF: contents, bookmarks, page numbers and links within the book."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urldefrag

from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Fit, NameObject, NumberObject

TITLE = "RetMask, reproduced"
NUMBERED = """<!DOCTYPE html><meta charset="utf-8"><style>
@page { size: A4; margin: 0; }
body { margin: 0; font: 8pt 'Liberation Sans', Arial, sans-serif; color: #555; }
div { position: relative; height: 297mm; break-after: page; overflow: hidden; }
span { position: absolute; bottom: 9mm; left: 18mm; right: 18mm; display: flex;
       justify-content: space-between; }
</style>"""
LISTED = """<!DOCTYPE html><meta charset="utf-8"><style>
@page { size: A4; margin: 22mm 18mm; }
body { margin: 0; font: 10.5pt/1.5 'Liberation Sans', Arial, sans-serif; color: #14181e; }
h1 { margin: 0 0 8mm; font-size: 24pt; } h2 { margin: 4mm 0 1mm; font-size: 11pt; }
a { display: flex; justify-content: space-between; gap: 4mm; color: inherit;
    text-decoration: none; }
a.l2 { padding-left: 6mm; }
</style>"""


@dataclass(frozen=True)
class Heading:
    """A heading with the anchor to which it belongs."""

    level: int
    anchor: str
    text: str


@dataclass(frozen=True)
class PrintedPage:
    """A page of the book after printing.

    Attributes
    ----------
    level : int
        Of its bookmark, from 0.
    url : str
        Of the page, as links to it have it.
    headings : list of Heading
    pdf : BytesIO or None
        None: the name of a part only.
    """

    level: int
    url: str
    headings: list[Heading]
    pdf: BytesIO | None

    @property
    def title(self) -> str:
        """Its first heading."""
        return self.headings[0].text if self.headings else ""


Place = tuple[int, float, float]
"""Page from 0, and the distances from its left and its lower edge in points."""


def join(
    printed: Sequence[PrintedPage], output: Path, print_html: Callable[[list[str]], list[BytesIO]]
) -> int:
    """Write one PDF; returns the number of its pages.

    Parameters
    ----------
    print_html : callable
        Prints HTML documents.
    """
    readers = [PdfReader(one.pdf) if one.pdf else None for one in printed]
    starts, total = [], 0
    for reader in readers:
        starts.append(total)
        total += len(reader.pages) if reader else 0
    front, numbers = print_html([_list(printed, starts), _numbers(printed, readers)])
    front, numbers = PdfReader(front), PdfReader(numbers)
    before = len(front.pages)
    writer, places = PdfWriter(), {}
    for reader in (front, *readers):
        for page in reader.pages if reader else ():
            writer.add_page(page)
    for one, reader, start in zip(printed, readers, starts, strict=True):
        if reader:
            places |= _places(one.url, reader, start + before)
    for number, page in zip(numbers.pages, writer.pages[before:], strict=False):
        page.merge_page(number)
        page.compress_content_streams()
    _bookmark(writer, printed, [start + before for start in starts], places)
    urls = [None] * before + [one.url for one, reader in zip(printed, readers, strict=True)
                              for _ in (reader.pages if reader else ())]
    for page, url in zip(writer.pages, urls, strict=True):
        _relink(writer, page, url, places)
    writer.set_page_label(0, before - 1, "/r")
    writer.set_page_label(before, before + total - 1, "/D", start=1)
    writer.add_metadata({"/Title": TITLE})
    writer.page_mode = "/UseOutlines"
    writer.compress_identical_objects()
    writer.write(output)
    return before + total


def _places(url: str, reader: PdfReader, start: int) -> dict[str, Place]:
    """Where the page and its anchors stand, by their addresses."""
    first = reader.pages[0]
    places = {url: (start, 0.0, float(first.mediabox.top))}
    for name, spot in reader.named_destinations.items():
        number = reader.get_destination_page_number(spot)
        if number is not None and number >= 0:
            anchor = unquote(name.removeprefix("/"))
            places[f"{url}#{anchor}"] = start + number, float(spot.left or 0), float(spot.top or 0)
    return places


def _bookmark(
    writer: PdfWriter, printed: Sequence[PrintedPage], starts: Sequence[int],
    places: dict[str, Place],
) -> None:
    """Parts, pages and their sections; a part leads to its first page."""
    above: list = []
    for one, start in zip(printed, starts, strict=True):
        above = above[: one.level]
        item = writer.add_outline_item(title=one.title, page_number=start, is_open=one.level == 0,
                                       parent=above[-1] if above else None)
        above.append(item)
        for heading in one.headings[1:]:
            if place := places.get(f"{one.url}#{heading.anchor}"):
                writer.add_outline_item(
                    title=heading.text, page_number=place[0], parent=item, is_open=False,
                    fit=Fit.xyz(left=0, top=place[2]))


def _relink(writer: PdfWriter, page: PageObject, url: str | None, places: dict[str, Place]) -> None:
    """Links to pages of the book lead to their places in the PDF; those to what is not in it go."""
    site, kept = next(iter(places)).rpartition("/")[0], ArrayObject()
    for reference in page.get("/Annots", ()):
        link = reference.get_object()
        name = str(link.get("/Dest", "")).removeprefix("/")
        base, anchor = urldefrag(str(link.get("/A", {}).get("/URI", f"{url}#{name}")))
        place = places.get(f"{base}#{unquote(anchor)}") or places.get(base)
        if place:
            link.pop("/A", None)
            link[NameObject("/Dest")] = ArrayObject([
                writer.pages[place[0]].indirect_reference, NameObject("/XYZ"),
                NumberObject(0), NumberObject(round(place[2])), NumberObject(0)])
        if place or not base.startswith(site):
            kept.append(reference)
    page[NameObject("/Annots")] = kept


def _list(printed: Sequence[PrintedPage], starts: Sequence[int]) -> str:
    lines = [f"<h2>{escape(one.title)}</h2>" if one.pdf is None else
             f'<a class="l{one.level}" href="{escape(one.url)}"><span>{escape(one.title)}</span>'
             f"<span>{start + 1}</span></a>" for one, start in zip(printed, starts, strict=True)]
    return f"{LISTED}<h1>{TITLE}</h1>{''.join(lines)}"


def _numbers(printed: Sequence[PrintedPage], readers: Sequence[PdfReader | None]) -> str:
    def sheets() -> Iterator[str]:
        for one, reader in zip(printed, readers, strict=True):
            yield from [one.title] * (len(reader.pages) if reader else 0)

    return NUMBERED + "".join(f"<div><span><i>{escape(title)}</i><b>{number}</b></span></div>"
                              for number, title in enumerate(sheets(), 1))
