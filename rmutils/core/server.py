"""The one client for servers: OpenAI's interface, such as `vllm serve`, and files of a release."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import anyio
import httpx2
from anyio.from_thread import start_blocking_portal

from rmutils.core.errors import UserError, printable
from rmutils.core.files import differs, one_process, plain, read_text
from rmutils.core.journal import progress_bar
from rmutils.core.manifests import MANIFEST
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, find, publish
from rmutils.core.validation import parse_json

T = TypeVar("T")

ADDRESS = re.compile(r"(https?)://([\w.-]+)(?::(\d{1,5}))?(?:/[\w.~%/-]*)?", re.ASCII)
PAUSE = 1.0  # seconds before the second try; twice as many before each further one
LARGEST = 10 * 2**20  # Bytes of an answer. The longest of a model are some hundred thousand.
SHOWN = 300  # characters of a server's error that a message repeats


BETWEEN = r"(?:(?:\x1b|\\x1b|\\u001b)\[[0-9;]*[A-Za-z]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\|[^!-~])*"
"""What may stand between the letters of a key, as it is or spelled out, and steers a terminal."""


class ServerError(Exception):
    """A request that got no usable answer, in words; `passing` if it may succeed later."""

    def __init__(self, cause: str, status: int | None = None, *, reached: bool = True,
                 final: bool = False):
        super().__init__(printable(cause))
        self.status, self.reached = status, reached
        self.passing = not final and (status is None or status >= 500 or status in (408, 429))


class Client:
    """Sends requests to one server and tries again where they fail."""

    def __init__(self, url: str, *, timeout: float, tries: int, key: str | None = None,
                 public: bool = False):
        if set(url) & set("@?#"):
            raise UserError("an address of a server that holds a user, a password or parameters is "
                            "not used, and not shown here: addresses are stored. Leave these out.")
        parts = ADDRESS.fullmatch(url)
        if parts is None or int(parts[3] or 0) > 65535:
            raise UserError(f"{url!r} is not the address of a server, such as http://127.0.0.1:8000.")
        secure = parts[1] == "https"
        self.host, self.port = parts[2], int(parts[3] or (443 if secure else 80))
        self.url = url.rstrip("/").removesuffix("/v1")
        self.timeout, self.tries = timeout, tries
        self._tls = (secure or public) and httpx2.create_ssl_context()
        self._public = public
        # Compressed, an answer could be a thousand times as long as what is sent.
        self._headers = {"Accept-Encoding": "identity"}
        self._key = key or ""
        if key:
            if not (key.isascii() and key.isprintable() and key == key.strip()):
                raise UserError("the key of the server holds a line end, a space at an end, or "
                                "another character that cannot be sent (it is not shown here).")
            self._headers["Authorization"] = f"Bearer {key}"

    def call(self, path: str, read: Callable[[Any], T], body: Mapping[str, Any] | None = None) -> T:
        """Return what `read` takes from an answer's JSON (or None); asked again if that fails."""
        return self._tried(lambda: self._read(path, read, body))

    def save(self, path: str, target: Path, largest: int) -> None:
        """Write the answer to a request to a file, up to a number of bytes."""
        self._tried(lambda: self._ask(self._save, path, target, largest))

    def _tried(self, once: Callable[[], T]) -> T:
        for attempt in range(1, self.tries + 1):
            try:
                return once()
            except ServerError as error:
                if attempt == self.tries or not error.passing:
                    error.args = self._without_key(str(error)),
                    raise
            time.sleep(PAUSE * 2 ** (attempt - 1))
        raise AssertionError("at least one try")

    def _without_key(self, text: str) -> str:
        """A text from the server, which may repeat what it was sent."""
        for form in (self._key, quote(self._key, safe=""), json.dumps(self._key)[1:-1]):
            if form:
                text = re.sub(BETWEEN.join(map(re.escape, form)), "[the key]", text)
        return text

    def _read(self, path: str, read: Callable[[Any], T], body: Mapping[str, Any] | None) -> T:
        text = self._ask(self._fetch, path, body)
        try:
            return read(_json(text))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ServerError(f"its answer is not what was expected ({type(error).__name__}: "
                              f"{error})") from error

    def _ask(self, request: Callable[..., Awaitable[T]], *what: Any) -> T:
        try:
            with start_blocking_portal() as portal:  # a notebook has a loop of its own
                return portal.call(request, *what)
        except TimeoutError as error:
            raise ServerError(f"timed out after {self.timeout:g} s") from error
        except (httpx2.HTTPError, UnicodeError) as error:
            raise ServerError(str(error).rstrip(".") or type(error).__name__,
                              reached=not isinstance(error, httpx2.ConnectError)) from error

    async def _fetch(self, path: str, body: Mapping[str, Any] | None) -> str:
        """Return the text of an answer, however slowly or long it is sent."""
        with anyio.fail_after(self.timeout):
            async with self._answer(path, body) as reply:
                return await _text(reply)

    async def _save(self, path: str, target: Path, largest: int) -> None:
        too_long = ServerError(f"its answer is longer than {largest} bytes", final=True)
        started, size = anyio.current_time(), 0
        with anyio.move_on_after(self.timeout) as limit, target.open("wb") as file:
            async with self._answer(path) as reply:
                if int(reply.headers.get("Content-Length", 0)) > largest:
                    raise too_long
                async for part in reply.aiter_raw():
                    size += len(part)
                    if size > largest:
                        raise too_long
                    file.write(part)
                    limit.deadline = self.timeout + min(
                        anyio.current_time(), started + size / SLOWEST,
                        started + MINUTE + largest / USUAL)
        if limit.cancelled_caught:
            raise ServerError(f"it sends less than {SLOWEST / 1000:g} kB in a second, less than "
                              f"{USUAL / 1000:g} kB in all of them, or nothing for "
                              f"{self.timeout:g} s", final=True)

    @asynccontextmanager
    async def _answer(self, path: str,
                      body: Mapping[str, Any] | None = None) -> AsyncIterator[httpx2.Response]:
        """Yield an answer that is none of an error."""
        async with (
            httpx2.AsyncClient(verify=self._tls, trust_env=self._public, timeout=None,
                               follow_redirects=self._public) as client,
            client.stream("GET" if body is None else "POST", self.url + path, json=body,
                          headers=self._headers) as reply,
        ):
            if not 200 <= reply.status_code < 300:
                said = f"{reply.status_code} {reply.reason_phrase}: {await _text(reply)}"
                raise ServerError(" ".join(self._without_key(said).split())[:SHOWN],
                                  reply.status_code)
            if (packing := reply.headers.get("Content-Encoding", "identity")) != "identity":
                raise ServerError(f"its answer is compressed ({packing[:SHOWN]}), which was not "
                                  "asked for", final=True)
            yield reply


async def _text(reply: httpx2.Response) -> str:
    told = bytearray()
    async for part in reply.aiter_raw():
        told += part
        if len(told) > LARGEST:
            raise ServerError(f"its answer is longer than {LARGEST} bytes", final=True)
    return told.decode("utf-8", "replace")


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


SUMS = "SHA256SUMS"
LINE = re.compile(
    r"([0-9a-f]{64})  data/artifacts/((?:[\w-][\w.-]*/){2}[\w-][\w.-]*)/([\w-][\w.-]*)", re.ASCII)
"""A file of a result: hash, name of the result, name of the file. None leads elsewhere."""
STALLED = 10  # seconds without a byte, after which a server is given up
SLOWEST, USUAL, MINUTE = 10_000, 100_000, 60.0
"""Bytes in a second, at any time and in the mean; and seconds beyond the mean."""
LONGEST_NAME = 200  # characters of the name of a file or a folder
LARGEST_FILE = 2**28  # bytes of one file of a result, whatever its manifest announces

Copy = Callable[[str, Path, int], object]


def opened(where: str) -> Copy:
    """Return what copies a release's file, by its name, to a path, up to so many bytes."""
    if where.startswith(("http://", "https://")):
        client = Client(where, timeout=STALLED, tries=3, public=True)
        return lambda name, target, largest: client.save(f"/{name}", target, largest)
    folder = Path(url2pathname(urlsplit(where).path) if where.startswith("file://") else where)

    def copy(name: str, target: Path, largest: int) -> None:
        if plain(folder / name).stat().st_size > largest:
            raise UserError(f"{folder / name} is larger than {largest} bytes.")
        shutil.copyfile(folder / name, target)

    return copy


def fetch_results(where: str, text: str = "") -> list[Artifact]:
    """Bring a release's results that are not here yet into the user's cache; resumable."""
    copy, root = opened(where), cache_dir() / "artifacts"
    work = root / ".fetched"
    with one_process(root / ".fetched.lock", "fetching results"):
        work.mkdir(exist_ok=True)
        _copied(copy, SUMS, work / SUMS, LARGEST,
                f"{where} is no release, which is what `make archive` packs, unpacked")
        files: dict[str, dict[str, str]] = {}
        for line in LINE.finditer(read_text(work / SUMS, name=f"{where.rstrip('/')}/{SUMS}")):
            if text in line[2]:
                files.setdefault(line[2], {})[line[3]] = line[1]
        if not files:
            raise UserError(f"{where} has no result" + (f" whose name has {text!r}." if text
                                                        else "s."))
        for name in (part for result in files for part in (*result.split("/"), *files[result])):
            if len(name) > LONGEST_NAME:
                raise UserError(f"{where} has a result or a file with a name of {len(name)} "
                                f"characters ({name[:20]}...), more than {LONGEST_NAME}.")
        wanted = [name for name in files if not find(name)]
        with progress_bar("fetching results", len(wanted)) as advance:
            for name in wanted:
                _fetched(copy, name, files[name], work / name)
                if problems := Artifact(work / name).problems():
                    shutil.rmtree(work / name)
                    raise UserError(f"{where}: {'; '.join(problems)}. It is not kept.")
                publish(work / name, root / name)
                advance(1)
        shutil.rmtree(work)
    return [Artifact(root / name) for name in wanted]


def _fetched(copy: Copy, result: str, files: dict[str, str], folder: Path) -> None:
    """Bring the files of a result, its manifest first, which announces the sizes of the others."""
    sizes = {MANIFEST: LARGEST}
    for file in sorted(files, key=lambda file: file != MANIFEST):
        if file not in sizes:
            raise UserError(f"{result}/{file}: its manifest announces no such file.")
        _checked(copy, f"data/artifacts/{result}/{file}", folder / file, files[file],
                 min(sizes[file], LARGEST_FILE))
        if file == MANIFEST:
            sizes = _announced(folder)


def _announced(folder: Path) -> dict[str, int]:
    try:
        told = Artifact(folder).manifest["files"]
        return {file: int(known["bytes"]) for file, known in told.items()}
    except (ValueError, ArithmeticError, KeyError, TypeError, AttributeError, UserError):
        return {}


def _checked(copy: Copy, name: str, target: Path, known: str, largest: int) -> None:
    if target.is_file() and not differs(target, known):  # of a call that was cut off
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    _copied(copy, name, target, largest, f"{name} cannot be fetched")
    if differs(target, known):
        target.unlink()
        raise UserError(f"{name}: what came differs from {SUMS} of the release, so it is not kept. "
                        "Give the command again, or ask who keeps the release.")


def _copied(copy: Copy, name: str, target: Path, largest: int, otherwise: str) -> None:
    try:
        copy(name, target, largest)
    except (ServerError, UserError) as error:
        target.unlink(missing_ok=True)
        raise UserError(f"{otherwise}: {error}") from error
