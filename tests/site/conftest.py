"""The built book, served on this machine, and a browser that may load nothing else."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Page, expect, sync_playwright

from rmutils.book.site.build import build
from rmutils.book.site.steps import HTML
from rmutils.core import paths
from tests.clock import PATIENCE

BROWSERS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
"""The last: nothing is reached but this machine."""
WAIT = 1000 * PATIENCE  # milliseconds
expect.set_options(timeout=WAIT)


def once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """What `make` leaves at a path: made by one of the processes of pytest-xdist, read by all."""
    home = folders.getbasetemp()
    path = (home.parent if "PYTEST_XDIST_WORKER" in os.environ else home) / name
    done = path.with_suffix(".done")
    with FileLock(f"{path}.lock"):
        if not done.exists():
            make(path)
            done.touch()
    return path


@pytest.fixture(scope="session")
def html(tmp_path_factory) -> Path:
    """Folder of the pages, brought up to date first."""
    once(tmp_path_factory, "built", lambda path: build())
    return paths.ROOT / HTML


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")  # scripts of all pages are read once
        super().end_headers()

    def log_message(self, *args) -> None:
        pass


@pytest.fixture(scope="session")
def address(html) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=html))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        message = f"no browser: install one of {', '.join(BROWSERS)}"
        (pytest.fail if "RMUTILS_NO_SKIP" in os.environ else pytest.skip)(message)
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS + root,
                                              timeout=WAIT)
        yield browser
        browser.close()


def fresh_page(browser: Browser, **settings) -> Page:
    """A page of its own, which waits as long as a busy machine needs."""
    context = browser.new_context(**settings)
    context.set_default_timeout(WAIT)
    return context.new_page()


@contextmanager
def visiting(browser: Browser, address: str, width: int) -> Iterator[tuple[Page, list[str]]]:
    """A page, and the growing list of what goes wrong on it: also each try to load from afar."""
    problems: list[str] = []

    def complain(kind: str, text: str) -> None:
        problems.append(f"{kind}: {text}")

    page = fresh_page(browser, viewport={"width": width, "height": 900})
    # Not by `route`, which turns the browser's cache off.
    page.on("request", lambda request: request.url.startswith((address, "data:", "blob:"))
            or complain("loads", request.url))
    page.on("pageerror", lambda error: complain("script error", str(error)))
    page.on("console", lambda m: complain("console", m.text) if m.type == "error" else None)
    page.on("response", lambda r: complain(str(r.status), r.url) if r.status >= 400 else None)
    yield page, problems
    page.context.close()
