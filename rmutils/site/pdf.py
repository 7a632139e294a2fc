"""The whole book as one PDF: `make pdf`, after `make book`.

Debian's Chromium prints the built pages in the order of the table of contents, with the rules of
`book/_static/print.css`; `rmutils.site.pdf_pages` joins them.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import typer
import yaml

from rmutils.core import paths
from rmutils.core.errors import UserError
from rmutils.core.journal import progress_bar
from rmutils.site.pdf_pages import Heading, PrintedPage, join
from rmutils.site.steps import HTML, STATE, clock

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUTPUT = STATE / "pdf" / "retmask-reproduced.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH = 658
"""Width of a page between its margins in CSS pixels, 174 mm: at this width tables are fitted."""
READY = """async () => {
    await document.fonts.ready;
    await window.MathJax?.startup?.promise;
    for (const image of document.images) image.loading = 'eager';
    await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
}"""
FIT = """width => {
    for (const table of document.querySelectorAll('article table')) {
        const share = (table.parentElement.clientWidth || width) / table.scrollWidth;
        if (share < 0.6) table.style.overflowWrap = 'anywhere';
        if (share < 1) table.style.zoom = Math.max(share, 0.6);
    }
}"""
"""Tables that are still too wide get smaller letters, and in the widest of them words break."""
HEADINGS = """() => [...document.querySelectorAll('article :is(h1, h2)')]
    .filter(heading => heading.checkVisibility())
    .map(heading => [Number(heading.tagName[1]), heading.closest('[id]').id,
                     [...heading.childNodes].filter(n => !n.classList?.contains('headerlink'))
                         .map(n => n.textContent).join('').trim()])"""
TARGETS = """() => {
    const links = document.createElement('div');
    for (const {id} of document.querySelectorAll('article [id]')) {
        links.append(Object.assign(document.createElement('a'), {href: '#' + id}));
    }
    document.querySelector('article').append(links);
}"""
"""Chromium tells where an element stands only if a link of the same page leads to it."""


@dataclass(frozen=True)
class Entry:
    """A line of the table of contents: a page, or with no page the name of a part."""

    level: int
    name: str | None
    caption: str = ""


def contents(toc: dict, html: Path) -> list[Entry]:
    """The lines of `book/_toc.yml` in their order, as far as they are built; the level is that of
    the bookmark."""
    entries = [Entry(0, toc["root"])]
    for part in toc["parts"]:
        lines = []
        for chapter in part["chapters"]:
            lines.append(Entry(1, chapter["file"]))
            lines += [Entry(2, section["file"]) for section in chapter.get("sections", ())]
        built = [line for line in lines if (html / f"{line.name}.html").is_file()]
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
    page.evaluate(READY)
    page.emulate_media(media="print", color_scheme="light")
    page.evaluate(FIT, WIDTH)
    headings = [Heading(*found) for found in page.evaluate(HEADINGS)]
    page.evaluate(TARGETS)
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
    context = browser.new_context(viewport={"width": WIDTH, "height": 900})
    yield context.new_page()
    context.close()


def chromium() -> str:
    """Where Chromium is.

    Raises
    ------
    UserError
        Nowhere.
    """
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
    toc = yaml.safe_load((paths.BOOK / "_toc.yml").read_text(encoding="utf-8"))
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
    try:
        if not (html / "index.html").is_file():
            raise UserError("the book is not built. Build it: `make book`.")
        pages = write(html, output)
    except UserError as error:
        typer.echo(f"\n{error}", err=True)
        raise SystemExit(2) from None
    if _lacks_japanese():
        typer.echo("No Japanese font is installed, so Japanese words are boxes. On Debian or "
                   "Ubuntu: `sudo apt-get install fonts-noto-cjk`.", err=True)
    print(f"{pages} pages, {output.stat().st_size / 1e6:.1f} MB, in {clock(started)}: {output}")


if __name__ == "__main__":
    main()
