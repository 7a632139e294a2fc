"""Results from a release, in a folder and on a real server on this machine."""

import gzip
import hashlib
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rmutils.core import results, server
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.core.results import Stage, find
from rmutils.core.server import fetch_results


class Sized(Config):
    size: int


@pytest.fixture
def unpacked(tmp_path, monkeypatch):
    """A release with two results, and an empty cache."""
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "maker"))
    for size in (1, 2):
        def make(folder, size=size):
            (folder / "numbers.txt").write_text("7" * size)
            (folder / "more.bin").write_bytes(bytes(range(256)) * 40_000)
            return {}

        Stage("detect", 1).obtain_folder(Sized(size=size), {}, make, command="", model="tiny",
                                         label=f"of-{size}")
    root = tmp_path / "release"
    shutil.copytree(tmp_path / "maker/artifacts/detect", root / "data/artifacts/detect")
    files = [path for path in root.rglob("*") if path.is_file()]
    (root / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(root)}\n" for p in files))
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "SHIPPED_ARTIFACTS", tmp_path / "none")
    return root


class Counting(SimpleHTTPRequestHandler):
    """Notes what is asked for, and moves everything once, as hosts of releases do."""

    asked: list[str] = []

    def do_GET(self):
        self.asked.append(self.path)
        if not self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", f"/moved{self.path}")
            self.end_headers()
            return
        self.path = self.path.removeprefix("/moved")
        super().do_GET()

    def log_message(self, *words):
        pass


@pytest.fixture
def address(unpacked, monkeypatch):
    monkeypatch.setattr(Counting, "asked", [])
    monkeypatch.setattr(server, "PAUSE", 0)
    handler = partial(Counting, directory=unpacked)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


def test_from_a_folder(unpacked, tmp_path):
    for where in (str(unpacked), unpacked.as_uri()):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        (one,) = fetch_results(where, "of-1")
        assert one.path("numbers.txt").read_text() == "7" and find(one.key).folder == one.folder
        (two,) = fetch_results(where)
        assert two.path("numbers.txt").read_text() == "77"
        assert fetch_results(where) == []
        assert {p.name for p in (tmp_path / "cache/artifacts").glob("[!.]*")} == {"detect"}


def test_from_an_address_only_what_is_missing(unpacked, address):
    found = fetch_results(address)
    assert [a.problems() for a in found] == [[], []]
    asked = len(Counting.asked)
    assert fetch_results(address) == [] and len(Counting.asked) == asked + 2  # the list, moved


def test_after_a_cut_it_goes_on(unpacked, address, tmp_path, monkeypatch):
    shutil.move(unpacked / "data", tmp_path / "away")
    with pytest.raises(UserError, match="404"):
        fetch_results(address, "of-1")
    shutil.move(tmp_path / "away", unpacked / "data")
    real, begun = server._checked, []

    def cut(copy, name, *others):
        if len(begun) == 1:
            raise KeyboardInterrupt
        begun.append(name)
        real(copy, name, *others)

    monkeypatch.setattr(server, "_checked", cut)
    with pytest.raises(KeyboardInterrupt):
        fetch_results(address, "of-1")
    monkeypatch.setattr(server, "_checked", real)
    Counting.asked.clear()
    fetch_results(address, "of-1")
    assert f"/{begun[0]}" not in Counting.asked and len(Counting.asked) == 2 * 3


@pytest.mark.parametrize("file", ["numbers.txt", "manifest.json"])
def test_damage_is_not_kept(unpacked, address, tmp_path, file):
    (damaged,) = unpacked.glob(f"data/artifacts/detect/tiny/of-1-*/{file}")
    damaged.write_text("8" + damaged.read_text()[1:])
    for where in (str(unpacked), address):
        with pytest.raises(UserError, match=f"{file}: what came differs"):
            fetch_results(where, "of-1")
        assert not [*(tmp_path / "cache/artifacts").rglob(file)]
    sums = unpacked / "SHA256SUMS"  # even if the list of the release agrees with the damage
    name = str(damaged.relative_to(unpacked))
    lines = [line for line in sums.read_text().splitlines() if not line.endswith(name)]
    sums.write_text("\n".join([*lines, f"{sha256(damaged)}  {name}"]))
    if file == "numbers.txt":
        with pytest.raises(UserError, match="content differs from its manifest"):
            fetch_results(address, "of-1")
        assert not [*(tmp_path / "cache/artifacts").rglob(file)]


def test_what_is_no_release_is_told(unpacked, address, tmp_path):
    for where in (str(tmp_path), f"{address}/data", "http://127.0.0.1:9"):
        with pytest.raises(UserError, match="is no release, which is what `make archive` packs"):
            fetch_results(where)
    with pytest.raises(UserError, match="no result whose name has 'unknown'"):
        fetch_results(address, "unknown")


def test_no_name_leads_out_of_the_cache(unpacked, tmp_path):
    outside = tmp_path / "release/data/artifacts/detect/tiny/../../../../evil.txt"
    outside.write_text("!")
    known = hashlib.sha256(b"!").hexdigest()
    (unpacked / "SHA256SUMS").write_text("".join(
        f"{known}  data/artifacts/{name}\n" for name in (
            "detect/tiny/../evil.txt", "../../x/evil.txt", "/detect/tiny/x/evil.txt",
            "detect/tiny/a/../../../../evil.txt")))
    with pytest.raises(UserError, match="has no results"):
        fetch_results(str(unpacked))


@pytest.mark.parametrize("name", ["n" * 300 + "/tiny/x-1", "detect/tiny/x/" + "n" * 300])
def test_names_that_no_disk_takes_are_told(unpacked, address, name):
    result = name if name.startswith("n") else "detect/tiny/x"
    file = "file" if name.startswith("n") else "n" * 300
    (unpacked / "SHA256SUMS").write_text(f"{'0' * 64}  data/artifacts/{result}/{file}\n")
    with pytest.raises(UserError, match=r"a name of 300 characters \(n{20}\.\.\.\)"):
        fetch_results(address)


def test_no_file_is_larger_than_its_manifest_says(unpacked, address, monkeypatch):
    """Whatever the list of the release says."""
    (grown,) = unpacked.glob("data/artifacts/detect/tiny/of-1-*/numbers.txt")
    grown.write_text("7" * 1000)
    for where in (address, str(unpacked)):
        with pytest.raises(UserError, match="numbers.txt cannot be fetched: .* than 1 bytes"):
            fetch_results(where)
    monkeypatch.setattr(server, "LARGEST_FILE", 10_000_000)
    with pytest.raises(UserError, match="more.bin cannot be fetched: .* than 10000000 bytes"):
        fetch_results(address, "of-2")


def test_a_file_that_the_manifest_does_not_know_is_not_fetched(unpacked, address):
    (folder,) = unpacked.glob("data/artifacts/detect/tiny/of-1-*")
    sums = unpacked / "SHA256SUMS"
    sums.write_text(f"{sums.read_text()}{'0' * 64}  {folder.relative_to(unpacked)}/other\n")
    with pytest.raises(UserError, match="/other: its manifest announces no such file"):
        fetch_results(address)


def test_a_compressed_list_is_called_by_what_the_user_gave(unpacked, address):
    sums = unpacked / "SHA256SUMS"
    sums.write_bytes(gzip.compress(sums.read_bytes()))
    for where in (str(unpacked), f"{address}/"):
        with pytest.raises(UserError) as error:
            fetch_results(where)
        assert f"{where.rstrip('/')}/SHA256SUMS is compressed" in str(error.value)
