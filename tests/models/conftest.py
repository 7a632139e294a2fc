"""A package index and a hub on this machine, for the tests of fetching."""

import contextlib
import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rmutils.models import wheels
from rmutils.models.known_models import SplitFile, WheelFile
from tests.clock import PATIENCE

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
                 hashlib.sha256(PAYLOAD).hexdigest(), len(PAYLOAD))


class Handler(BaseHTTPRequestHandler):
    """Serves one wheel as an index does, others by name, and a model file as the hub does; `server`
    says how badly it behaves, and keeps a log."""

    def do_HEAD(self):  # noqa: N802
        self.send_response(200 if self.server.hub else 404)
        self.send_header("ETag", f'"{hashlib.sha256(self.server.hub).hexdigest()}"')
        self.send_header("X-Repo-Commit", "abc")
        self.send_header("Content-Length", str(len(self.server.hub)))
        self.end_headers()

    def do_GET(self):  # noqa: N802
        if self.path.startswith("/simple/"):
            return self.send(200, f'<a href="/{FILE}">{FILE}</a>'.encode(), "text/html")
        body = self.server.files.get(self.path[1:], self.server.body)
        body = self.server.hub if "/resolve/" in self.path else body
        wanted = self.headers.get("Range") if self.server.ranges else None
        first = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if body is None or self.server.status or first >= len(body):
            return self.send(self.server.status or (404 if body is None else 416), b"")
        self.server.log.append((first, len(body) - first))
        end, self.server.cut_at = self.server.cut_at, None
        return self.send(206 if wanted else 200, body[first:], end=end)

    def send(self, status, body, kind="application/octet-stream", end=None):
        """Promise the whole body and send it up to `end`; the second half when the gate opens."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the other side was killed
            half = len(body) // 2
            self.wfile.write(body[:end][:half])
            self.server.gate.wait(PATIENCE)
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
    server.hub, server.files = b"", {}  # the hub's file; wheels by name, None: missing
    monkeypatch.setattr(wheels, "resolve_urls", lambda parts, by_hand: [server.url] * len(parts))
    monkeypatch.setenv("HF_ENDPOINT", server.url.removesuffix(f"/{FILE}"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield server
    server.shutdown()


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
        parts.append(WheelFile(f"fake-part{i}", "1.0", wheel_hash, member, hashed, len(piece)))
    return SplitFile("fake", "model.gguf", SPEC.member_sha256, tuple(parts),
                     terms="somebody's terms"), folder


def visible(cache: Path) -> set[str]:
    """Names of all files of the model's folder in the cache."""
    return {p.name for p in (cache / "models" / "fake").iterdir()} - {".lock"}
