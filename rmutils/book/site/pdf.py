"""The whole book as one PDF: `make pdf`, after `make book`."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag

import typer
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import ArrayObject, Fit, NameObject, NumberObject

from rmutils.book.site.steps import HTML, STATE, clock
from rmutils.book.templates import template
from rmutils.core import paths
from rmutils.core.errors import UserError, exit_with_message
from rmutils.core.files import read_yaml
from rmutils.core.journal import progress_bar

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUTPUT = STATE / "pdf" / "retmask-reproduced.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH = 672
"""Width of a page between its margins in CSS pixels, 178 mm: at this width tables are fitted."""
ONLY_HTML = {"run_gallery": "Run gallery", "chapters/provenance": "Where each number comes from",
             "figures_and_tables": "Figures and tables", "parameters": "Parameters",
             "api/index": "Interface"}
"""Pages that are looked up, not read: the list of contents names them."""


@dataclass(frozen=True)
class Entry:
    """A line of the table of contents: a page, or with no page the name of a part."""

    level: int
    name: str | None
    caption: str = ""


def contents(toc: dict, html: Path) -> list[Entry]:
    """The built lines of `book/_toc.yml` in their order, with the level of the bookmark."""
    entries = [Entry(0, toc["root"])]
    for part in toc["parts"]:
        lines = []
        for chapter in part["chapters"]:
            lines.append(Entry(1, chapter["file"]))
            lines += [Entry(2, section["file"]) for section in chapter.get("sections", ())]
        built = [line for line in lines if line.name not in ONLY_HTML
                 and (html / f"{line.name}.html").is_file()]
        entries += [Entry(0, None, part["caption"]), *built] if built else []
    return entries


def print_pages(browser: Browser, html: Path, entries: list[Entry]) -> Iterator[PrintedPage]:
    """Print the pages one by one."""
    with serving(html) as address, _page(browser) as page:
        for entry in entries:
            yield (_print(page, f"{address}{entry.name}.html", entry.level) if entry.name else
                   PrintedPage(entry.level, "", [Heading(1, "", entry.caption)], None))


def _print(page: Page, url: str, level: int) -> PrintedPage:
    page.goto(url)
    page.evaluate(f"window.rmPrint = {template('print.js')}")
    page.evaluate("rmPrint.ready()")
    page.emulate_media(media="print", color_scheme="light")
    page.evaluate("rmPrint.shorten([24, 12, 8])")
    page.evaluate("rmPrint.solutions()")
    page.evaluate(f"rmPrint.fit({WIDTH})")
    headings = [Heading(*found) for found in page.evaluate("rmPrint.headings()")]
    page.evaluate("rmPrint.targets()")
    data = page.pdf(prefer_css_page_size=True, print_background=True)
    page.emulate_media(media="screen")
    return PrintedPage(level, url, headings, io.BytesIO(data))


def print_html(browser: Browser, documents: list[str]) -> list[io.BytesIO]:
    """Documents of our own, such as the list of contents, as PDF."""
    found = []
    with _page(browser) as page:
        for document in documents:
            page.set_content(document)
            found.append(io.BytesIO(page.pdf(prefer_css_page_size=True)))
    return found


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Address of a web server of this machine that has a folder's files."""
    handler = partial(_Quiet, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": WIDTH, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(600_000)  # milliseconds: the machine may have other work, too
    yield context.new_page()
    context.close()


def chromium() -> str:
    """Where Chromium is."""
    if found := next(filter(None, map(shutil.which, BROWSERS)), None):
        return found
    raise UserError("a PDF is printed by Chromium, and none is installed. Install it, on Debian or "
                    "Ubuntu: `sudo apt-get install chromium`.")


@contextmanager
def browsing() -> Iterator[Browser]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] * (hasattr(os, "geteuid") and os.geteuid() == 0)  # not on Windows
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(),
                                             args=["--disable-gpu", *root])
        yield browser
        browser.close()


def write(html: Path, output: Path) -> int:
    """Print a built book; returns the number of its pages."""
    toc = read_yaml(paths.BOOK / "_toc.yml")
    entries, printed = contents(toc, html), []
    output.parent.mkdir(parents=True, exist_ok=True)
    with browsing() as browser:
        with progress_bar("printing", len(entries), unit="pages") as advance:
            for one in print_pages(browser, html, entries):
                printed.append(one)
                advance(1)
        return join(printed, output, partial(print_html, browser))


def _lacks_japanese() -> bool:
    lister = shutil.which("fc-list")
    return bool(lister) and not subprocess.run(
        [lister, ":lang=ja"], capture_output=True, check=False).stdout.strip()


def main() -> None:
    """Print the book that `make book` built."""
    started = time.monotonic()
    html, output = paths.ROOT / HTML, paths.ROOT / OUTPUT
    output.unlink(missing_ok=True)  # archive and stick would take an older book's
    with exit_with_message():
        if not (html / "index.html").is_file():
            raise UserError("the book is not built. Build it: `make book`.")
        pages = write(html, output)
    if _lacks_japanese():
        typer.echo("No Japanese font is installed, so Japanese words are boxes. On Debian or "
                   "Ubuntu: `sudo apt-get install fonts-noto-cjk`.", err=True)
    print(f"{pages} pages, {output.stat().st_size / 1e6:.1f} MB, in {clock(started)}: {output}")


TITLE = "RetMask, reproduced"


@dataclass(frozen=True)
class Heading:
    """A heading with the anchor to which it belongs."""

    level: int
    anchor: str
    text: str


@dataclass(frozen=True)
class PrintedPage:
    """A page of the book after printing."""

    level: int  # of its bookmark, from 0
    url: str  # of the page, as links to it have it
    headings: list[Heading]
    pdf: BytesIO | None  # None: the name of a part only

    @property
    def title(self) -> str:
        """Its first heading."""
        return self.headings[0].text if self.headings else ""


Place = tuple[int, float, float]
"""Page from 0, and the distances from its left and its lower edge in points."""


def join(printed: Sequence[PrintedPage], output: Path,
         print_html: Callable[[list[str]], list[BytesIO]]) -> int:
    """Write one PDF; returns the number of its pages."""
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


def _bookmark(writer: PdfWriter, printed: Sequence[PrintedPage], starts: Sequence[int],
              places: dict[str, Place]) -> None:
    """Parts, pages and their sections; a part leads to its first page."""
    above: list = []
    for one, start in zip(printed, starts, strict=True):
        above = above[: one.level]
        item = writer.add_outline_item(title=one.title, page_number=start, is_open=one.level == 0,
                                       parent=above[-1] if above else None)
        above.append(item)
        for heading in one.headings[1:]:
            if place := places.get(f"{one.url}#{heading.anchor}"):
                writer.add_outline_item(title=heading.text, page_number=place[0], parent=item,
                                        is_open=False, fit=Fit.xyz(left=0, top=place[2]))


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
    return (f"{template('print_contents.html')}<h1>{TITLE}</h1>{''.join(lines)}<p>Only in the HTML "
            f"(<code>make book</code>): {', '.join(ONLY_HTML.values())}; how each figure and table "
            "was made, its data as a CSV file, the code that calls for it, and all rows of long "
            "tables.</p>")


def _numbers(printed: Sequence[PrintedPage], readers: Sequence[PdfReader | None]) -> str:
    def sheets() -> Iterator[str]:
        for one, reader in zip(printed, readers, strict=True):
            yield from [one.title] * (len(reader.pages) if reader else 0)

    return template("print_numbers.html") + "".join(
        f"<div><span><i>{escape(title)}</i><b>{number}</b></span></div>"
        for number, title in enumerate(sheets(), 1))


if __name__ == "__main__":
    main()
