"""`rmutils artifacts`."""

import json

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core import results
from rmutils.core.config import Config
from rmutils.core.results import Stage


@pytest.fixture
def artifact(cache, tmp_path, monkeypatch):
    """A stored result of the user's own."""
    (tmp_path / "shipped").mkdir()
    monkeypatch.setattr(results, "SHIPPED_ARTIFACTS", tmp_path / "shipped")

    def make(folder):
        (folder / "result.txt").write_text("nine")
        return {}

    return Stage("detect", 1).obtain_folder(Config(), {}, make, command="square 3",
                                            model="tiny-llama", label="retmask-seed3")


def rmutils(*words):
    return CliRunner().invoke(app, ["artifacts", *words])


def test_list_and_show(artifact):
    [row] = json.loads(rmutils("list", "--json").stdout)
    size, day = row.pop("bytes"), row.pop("created")
    assert size == sum(path.stat().st_size for path in artifact.folder.iterdir()) > 0
    assert day == artifact.manifest["environment"]["created"]
    assert "01_preliminaries" in row.pop("chapters")
    assert row == {"name": artifact.name, "key": artifact.key, "model": "tiny-llama", "seed": 3,
                   "training": "retmask", "shipped": False, "command": "square 3"}
    words = rmutils("list").stdout.split()
    assert words[:3] == [artifact.name, "own", day[:10]]
    assert json.loads(rmutils("show", artifact.key).stdout) == artifact.manifest
    assert json.loads(rmutils("show", artifact.name).stdout) == artifact.manifest


@pytest.mark.parametrize(("words", "count"), [
    (["retmask"], 1), (["sft"], 0), (["--own", "--kind", "detect", "--model", "tiny-llama"], 1)])
def test_list_of_some(artifact, words, count):
    assert len(json.loads(rmutils("list", *words, "--json").stdout)) == count


def test_remove(artifact, monkeypatch):
    """A second copy stays, also a damaged one goes, and one that is being computed does not."""
    other = Stage("detect", 1).obtain_folder(Config(), {"a": "b"}, lambda folder: {}, command="",
                                             model="tiny-llama")
    asked = CliRunner().invoke(app, ["artifacts", "rm", artifact.name], input="n\n")
    assert asked.exit_code == 0 and artifact.name in asked.stdout and artifact.folder.is_dir()
    with FileLock(artifact.folder.parents[2] / f".{artifact.key}.lock"):
        done = rmutils("rm", artifact.name, "--yes")
    assert done.exit_code == 2 and "computed by another process" in done.stderr
    artifact.path("result.txt").write_text("ten")
    root = artifact.folder.parents[2]
    assert rmutils("rm", artifact.name, "--yes").exit_code == 0 and not artifact.folder.exists()
    assert other.folder.is_dir() and rmutils("rm", other.key, "-y").exit_code == 0
    assert root.is_dir() and not (root / "detect").exists()


def test_remove_nothing_of_others(artifact, tmp_path, monkeypatch):
    promoted = rmutils("promote", artifact.name).stdout.strip()
    assert rmutils("rm", artifact.name, "-y").exit_code == 0  # the user's own comes first
    done = rmutils("rm", promoted, "-y")
    assert done.exit_code == 2 and "came with the project" in done.stderr
    assert (tmp_path / "shipped" / promoted).is_dir()


def test_verify(artifact):
    """Exit status 1 names what differs."""
    assert rmutils("verify").exit_code == 0
    artifact.path("result.txt").write_text("ten")
    done = rmutils("verify")
    assert done.exit_code == 1
    assert done.stdout.strip() == (
        f"{artifact.name}/result.txt: content differs from its manifest")


def test_seal(artifact):
    """All, or those named; others are sealed although one is damaged."""
    manifest = json.loads(artifact.path("manifest.json").read_text())
    bare = json.dumps({name: value for name, value in manifest.items() if name != "sha256"})
    other = Stage("detect", 1).obtain_folder(
        Config(), {"a": "b"}, lambda folder: {"a": (folder / "a").write_text("1")}, command="",
        model="tiny-llama", label="a")
    for words in ([], [artifact.name]):
        artifact.path("manifest.json").write_text(bare)
        assert rmutils("list").stdout.startswith(other.name) and rmutils("verify").exit_code == 1
        assert rmutils("seal", *words).stdout == f"Sealed {artifact.name}.\n"
        assert rmutils("seal", *words).stdout == "" and rmutils("verify").exit_code == 0
    artifact.path("manifest.json").write_text(bare)
    other.path("a").write_text("2")
    done = rmutils("seal")
    assert done.exit_code == 2 and f"{other.name}/a: content differs" in done.stderr
    assert done.stdout == f"Sealed {artifact.name}.\n"


def test_errors_exit_with_2(artifact):
    for command in ("show", "promote", "rm"):
        done = rmutils(command, "nothing")
        assert done.exit_code == 2 and "See `rmutils artifacts list`" in done.stderr
    done = rmutils("list", "--kind", "detct")
    assert done.exit_code == 2 and "Did you mean detect?" in done.stderr
    artifact.path("result.txt").write_text("ten")
    done = rmutils("promote", artifact.name)
    assert done.exit_code == 2 and "It is not used" in done.stderr
