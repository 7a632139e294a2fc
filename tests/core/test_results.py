"""Stored results: found, made once, and refused when they are not what they say."""

import json
import os
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from rmutils.core import results as artifacts
from rmutils.core.config import Config, digest
from rmutils.core.errors import UserError
from rmutils.core.results import MANIFEST, Artifact, Stage, find, promote, remove, seal, stored
from tests.clock import PATIENCE, forked, until


class Setting(Config):
    size: int = 3
    name: str = "ä"


STAGE = Stage("square", version=1)
INPUTS = {"model": "sha256:1", "text": "sha256:2"}


@pytest.fixture
def shipped(cache, tmp_path, monkeypatch):
    """An empty folder of shipped results, and an empty cache."""
    (tmp_path / "shipped").mkdir()
    monkeypatch.setattr(artifacts, "SHIPPED_ARTIFACTS", tmp_path / "shipped")
    return tmp_path / "shipped"


@pytest.fixture
def obtain(shipped):
    """Obtain the square of a size; `obtain.calls` counts how often it was computed."""
    def obtain(size=3, **kwargs) -> Artifact:
        def make(folder: Path) -> dict:
            calls.append(size)
            (folder / ".scratch").write_text("half")
            (folder / "result.json").write_text(str(size**2))
            return {"square": size**2}

        return STAGE.obtain_folder(Setting(size=size), INPUTS, make, command=f"square {size}",
                                   model="tiny", **kwargs)

    obtain.calls = calls = []
    return obtain


def test_key_holds_all_that_matters():
    key = STAGE.key(Setting(), INPUTS)
    assert key == STAGE.key(Setting(name="ä", size=3), dict(reversed(INPUTS.items())))
    others = {STAGE.key(Setting(size=4), INPUTS), STAGE.key(Setting(), {**INPUTS, "text": "3"}),
              Stage("square", 2).key(Setting(), INPUTS), Stage("cube", 1).key(Setting(), INPUTS)}
    assert key not in others and len(others) == 4
    assert key.startswith("square-") and len(key) == len("square-") + 16


def test_computed_once_then_read(obtain, cache, ascii_locale):
    first = obtain()
    assert obtain() == first and obtain.calls == [3]
    key = STAGE.key(Setting(), INPUTS)
    assert first.folder == cache / "artifacts" / "square" / "tiny" / f"base-{key[-16:-8]}"
    assert first.key == key and find(key) == find(first.name) == first
    assert first.path("result.json").read_text() == "9" and not first.shipped
    assert {p.name for p in first.folder.iterdir()} == {MANIFEST, "result.json"}
    obtain(4)
    assert obtain.calls == [3, 4] and len(list(stored())) == 2


def test_manifest_explains_the_result(obtain, tmp_path):
    """Everything needed to make it again, and nothing that only this machine has."""
    artifact = obtain()
    m = artifact.manifest
    assert (m["stage"], m["version"], m["config"]) == ("square", 1, {"size": 3, "name": "ä"})
    assert (m["inputs"], m["command"], m["facts"]) == (INPUTS, "square 3", {"square": 9})
    assert m["files"] == {"result.json": {
        "bytes": 1, "sha256": "19581e27de7ced00ff1ce50b2047e7a567c76b1cbaebabe5ef03f7c3017bb5b7"}}
    assert {"python", "packages", "commit", "hardware", "created"} == set(m["environment"])
    assert m["environment"]["packages"]["torch"]
    text = artifact.path(MANIFEST).read_text()
    assert '"name": "ä"' in text and len(text.splitlines()) > 20  # for people, too
    for own in (str(tmp_path), str(Path.home()), os.getcwd(), sys.prefix):
        assert own not in text


def test_seconds_are_those_of_the_making(obtain, monkeypatch):
    clock = iter([1000, 1002.345])
    monkeypatch.setattr(artifacts, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert obtain().manifest["seconds"] == 2.3


def test_always_computes_anew(obtain):
    made = obtain()
    first, left = made.manifest, made.folder.with_name(f".{made.folder.name}.old")
    left.mkdir()  # by a run that was killed when it had put the old one aside
    (left / "result.json").touch()
    again = obtain(compute="always")
    assert obtain.calls == [3, 3] and again.problems() == []
    assert again.manifest["files"] == first["files"]
    assert list(again.folder.parent.glob(".*.old")) == []


def test_never_says_what_would_make_it(obtain):
    with pytest.raises(UserError, match=r'square-\w{16} is stored.*Make it: `square 3`'):
        obtain(compute="never")
    obtain()
    assert obtain(compute="never").path("result.json").exists() and obtain.calls == [3]


def spoil_payload(folder):
    (folder / "result.json").write_text("8")


def spoil_name(folder):
    """A file name that no disk takes."""
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace("result.json", "9" * 5000))


def change(folder, **values):
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, **values}))


def spoil_config(folder):
    change(folder, config={"size": 5, "name": "ä"})


def pipe(file):
    def spoil(folder):
        (folder / file).unlink()
        os.mkfifo(folder / file)
    return spoil


def linked(folder):
    """To a file with the right content: whoever changes that one later changes the result."""
    (folder / "result.json").rename(folder.parent / "elsewhere.json")
    (folder / "result.json").symlink_to(folder.parent / "elsewhere.json")


@pytest.mark.fault("flipped byte", "a stored result, its manifest, or one without files")
@pytest.mark.parametrize("spoil, message", [
    (spoil_payload, "/result.json: content differs from its manifest"),
    (lambda f: (f / "result.json").unlink(), "/result.json: missing"),
    (lambda f: (f / MANIFEST).unlink(), "manifest.json is unreadable"),
    (lambda f: (f / MANIFEST).write_text("{"), "manifest.json is unreadable"),
    (lambda f: (f / MANIFEST).write_text("[]"), "manifest.json is unreadable"),
    (lambda f: (f / MANIFEST).write_text('{"files": {"result.json": 1}}'), "is unreadable"),
    (pipe(MANIFEST), "manifest.json is unreadable"), (pipe("result.json"), "is a pipe"),
    (linked, "result.json: this is a link"),
    (lambda f: (f / "more.json").touch(), "/more.json: its manifest knows no such file"),
    (lambda f: change(f, files={}), "manifest.json names no files"),
    (lambda f: change(f, command="rm -r /"), "manifest.json is not as it was written"),
    (lambda f: change(f, more=1), "manifest.json is not as it was written"),
    (spoil_name, "/99+: missing"),
    (spoil_config, "manifest.json is that of square-"),
], ids=["payload", "no payload", "no manifest", "half", "list", "no hash", "manifest a pipe",
        "payload a pipe", "link", "more", "no files", "command", "more facts", "long name",
        "other config"])
def test_spoiled_result_is_refused_by_name(obtain, spoil, message):
    artifact = obtain()
    spoil(artifact.folder)
    for ask in (obtain, lambda: find(artifact.name), lambda: promote(Artifact(artifact.folder))):
        with pytest.raises(UserError, match=f"{artifact.name}.*{message}"):
            ask()
    assert obtain(compute="always").problems() == []


@pytest.mark.fault("flipped byte", "a manifest, at every place")
def test_no_flip_of_a_manifest_changes_what_it_tells(obtain):
    """Each bit of a byte in turn; a byte of white space may become another one."""
    path = obtain().folder / MANIFEST
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        path.write_bytes(bad)
        found = Artifact(path.parent)
        assert found.problems() or found.manifest == json.loads(good), bad[place - 9:place + 9]


def unseal(artifact) -> str:
    """Make a manifest as version 1.0 wrote it; return how it was."""
    text = artifact.path(MANIFEST).read_text()
    manifest = json.loads(text)
    assert manifest.pop("sha256") == digest(manifest)
    artifact.path(MANIFEST).write_text(json.dumps(manifest))
    return text


@pytest.mark.fault("flipped byte", "a manifest without a hash of its own")
def test_a_manifest_without_a_seal_is_refused_until_it_is_sealed(obtain):
    artifact = obtain()
    text = unseal(artifact)
    with pytest.raises(UserError, match=f"no seal.*`rmutils artifacts seal {artifact.name}`"):
        obtain()
    assert seal(Artifact(artifact.folder)) and artifact.path(MANIFEST).read_text() == text
    assert obtain() == artifact and obtain.calls == [3] and not seal(artifact)


@pytest.mark.parametrize("spoil, message", [
    (spoil_payload, "differs from its manifest"), (spoil_config, "is that of square-"),
    (lambda f: change(f, more=1), "not as it was written")], ids=["payload", "config", "more"])
def test_only_what_agrees_with_its_key_and_files_is_sealed(obtain, spoil, message):
    artifact = obtain()
    unseal(artifact)
    spoil(artifact.folder)
    with pytest.raises(UserError, match=message):
        seal(Artifact(artifact.folder))


def test_a_result_is_called_after_model_and_label(shipped, cache, tmp_path):
    """And what a stored training is asked later, after the training."""
    def named(size=3, model="", label="", stage="square"):
        return Stage(stage, 1).obtain_folder(
            Setting(size=size), {}, lambda folder: {"a": (folder / "a").write_text("12")},
            command="square", model=model, label=label)

    plain, training = named(), named(4, "tiny/model", "X seed 3, -tau.")
    assert plain.name == f"square/any/base-{plain.key[-16:-8]}"
    assert training.name == f"square/tiny-model/X-seed-3-tau-{training.key[-16:-8]}"
    assert named(5, training.key, "long", "cube").name.startswith(
        "cube/tiny-model/X-seed-3-tau-long")
    assert named(6, training.key, stage="cube").label == training.label == "X-seed-3-tau"
    (tmp_path / "my model").mkdir()
    assert named(7, str(tmp_path / "my model")).model == "my-model"
    assert named(8, "../..").model == "any"
    assert (plain.stage, plain.model, plain.label) == ("square", "any", "base")
    assert plain.size == 2 + plain.path(MANIFEST).stat().st_size
    assert plain.created == plain.manifest["environment"]["created"] > "2025"
    for manifest in ({}, {"environment": {}}):  # of another make
        (plain.folder / "elsewhere").mkdir(exist_ok=True)
        (plain.folder / "elsewhere" / MANIFEST).write_text(json.dumps(manifest))
        assert Artifact(plain.folder / "elsewhere").created == ""
    shutil.rmtree(plain.folder / "elsewhere")
    plain.folder.rename(cache / "artifacts" / plain.key)  # as before 1.0
    before = find(plain.key)
    assert (before.name, before.stage, before.model) == (plain.key, "square", "")
    assert Artifact(Path("two-words-0123456789abcdef")).stage == "two-words"
    assert {one.name for one in stored("square")} > {training.name, before.name}
    assert {one.stage for one in stored()} == {"square", "cube"}


@dataclass
class Two:
    one: pd.DataFrame
    two: pd.DataFrame


def test_tables_come_back(shipped):
    """Their rows are counted; the journal is none of them. Rows are numbered anew."""
    stage = Stage.of_tables("two", 1, Two)
    made = Two(pd.DataFrame({"a": ["x", "y"]}, index=[3, 5]), pd.DataFrame({"b": [1]}))

    def make(journal):
        assert journal.name == ".journal.jsonl"  # a run that was stopped may have left one
        journal.write_text("begun")
        return made

    found, artifact = stage.obtain(Setting(), INPUTS, make, compute="auto", command="two",
                                   model="m", label="l")
    again, same = stage.obtain(Setting(), INPUTS, make, compute="never", command="two", model="")
    assert artifact == same and artifact.manifest["facts"] == {"one": 2, "two": 1}
    assert {*artifact.manifest["files"]} == {"one.parquet", "two.parquet"}
    part = pq.read_metadata(artifact.path("one.parquet")).row_group(0)
    assert part.num_columns == 1 and part.column(0).compression == "ZSTD"
    plain = Stage("tables", 1).obtain(Setting(), INPUTS, lambda journal: vars(made), compute="auto",
                                      command="two", model="m")[0]
    assert {name: table.to_dict("list") for name, table in plain.items()} == {
        "one": {"a": ["x", "y"]}, "two": {"b": [1]}}
    counted = Stage.of_tables("two", 2, Two, facts=lambda tables: {"first": len(tables.one)})
    assert counted.obtain(Setting(), INPUTS, make, compute="auto", command="two", model="m")[
        1].manifest["facts"] == {"first": 2}
    bare = stage.obtain(Setting(size=9), INPUTS, make, compute="auto", command="two", model="")[1]
    assert bare.name == f"two/any/base-{bare.key[-16:-8]}"
    assert artifact.name.startswith("two/m/l-") and artifact.manifest["command"] == "two"
    for tables in (found, again):
        pd.testing.assert_frame_equal(tables.one, made.one.reset_index(drop=True))
        pd.testing.assert_frame_equal(tables.two, made.two)


def test_only_own_results_that_nobody_computes_are_removed(obtain, shipped, cache):
    own, other, root = obtain(), obtain(4), cache / "artifacts"
    for damage in (b"{", b"{}", b"[]", b"\xff", None):
        spoilt = obtain(5, compute="always")
        spoilt.path(MANIFEST).write_bytes(damage) if damage else spoilt.path(MANIFEST).unlink()
        remove(Artifact(spoilt.folder))
        assert not spoilt.folder.exists()
    with pytest.raises(UserError, match="came with the project: only results in"):
        remove(promote(own))
    with FileLock(root / f".{own.key}.lock"), \
            pytest.raises(UserError, match="is being computed by another process"):
        remove(own)
    remove(own)
    assert find(own.key).shipped and find(other.key) == other
    (other.folder / MANIFEST).write_text("{")
    remove(Artifact(other.folder))
    assert [path for path in root.iterdir() if path.is_dir()] == []
    obtain(6).folder.rename(root / (key := STAGE.key(Setting(size=6), INPUTS)))  # as before 1.0
    remove(find(key))
    assert find(key) is None and root.is_dir()


def test_error_in_the_making_leaves_nothing(shipped, cache):
    """The folder is kept for the next call, under another name."""
    seen = []

    def make(folder):
        (folder / MANIFEST).write_text("of a run that was killed when all but this was done")
        seen.append(sorted(p.name for p in folder.iterdir()))
        (folder / ".journal").write_text("one case")
        if len(seen) == 1:
            raise KeyboardInterrupt
        (folder / "result.json").write_text("9")
        return {}

    with pytest.raises(KeyboardInterrupt):
        STAGE.obtain_folder(Setting(), INPUTS, make, command="square")
    assert list(stored()) == [] and find(STAGE.key(Setting(), INPUTS)) is None
    whole = STAGE.obtain_folder(Setting(), INPUTS, make, command="square")
    assert seen == [[MANIFEST], [".journal", MANIFEST]]
    assert {p.name for p in whole.folder.iterdir()} == {MANIFEST, *whole.manifest["files"]}
    assert {*whole.manifest["files"]} == {"result.json"}


def test_shipped_after_own(obtain, shipped, cache):
    """Promoted results are found when the cache has none; the own one goes first."""
    own = obtain()
    (own.folder / ".leftover").write_text("scratch of a run that was killed at its very end")
    copy = promote(own)
    assert copy.folder == shipped / own.name and copy.shipped and copy.problems() == []
    assert {p.name for p in copy.folder.iterdir()} == {MANIFEST, "result.json"}
    assert [a.shipped for a in stored()] == [False, True] and obtain() == own
    assert promote(copy) == copy and copy.problems() == []
    for file in own.folder.iterdir():
        file.unlink()
    own.folder.rmdir()
    assert obtain() == copy and obtain.calls == [3]


def computing(gate: Path, told: Path, said: Path) -> None:
    """Compute the square as a process of its own, but not before the gate is there."""
    def tell(text):
        with told.open("a") as file:
            file.write(f"{text}\n")

    def make(folder):
        tell("making")
        (folder / ".journal").open("a").write("begun\n")
        (folder / "result.json").write_text("hal")
        until(gate.exists)
        (folder / "result.json").write_text("9")
        return {}

    sys.stderr = said.open("a", buffering=1)
    tell(STAGE.obtain_folder(Setting(), INPUTS, make, command="square").key)


@pytest.mark.fault("kill -9", "while a result is made")
def test_kill_9_while_it_is_made(obtain, shipped, cache, tmp_path):
    """Nothing half-made is found, and the next call gets the same folder."""
    process = forked(computing, *(tmp_path / name for name in ("gate", "told", "said")))
    key = STAGE.key(Setting(), INPUTS)
    until((cache / "artifacts" / f".{key}.partial" / "result.json").exists)
    process.kill()
    process.join()
    assert find(key) is None and list(stored()) == []
    assert (cache / "artifacts" / f".{key}.partial" / ".journal").read_text() == "begun\n"
    assert obtain().path("result.json").read_text() == "9" and find(key).problems() == []


@pytest.mark.fault("two at once", "processes that make the same result")
def test_second_process_waits_for_the_first(obtain, shipped, cache, tmp_path):
    said, told = tmp_path / "said", [tmp_path / "one", tmp_path / "two"]
    said.touch()
    children = [forked(computing, tmp_path / "gate", own, said) for own in told]
    until(lambda: "Another process is computing" in said.read_text())
    (tmp_path / "gate").touch()
    for process in children:
        process.join(PATIENCE)
    lines = [own.read_text().split() for own in told]
    key = STAGE.key(Setting(), INPUTS)
    assert sorted(lines) == [["making", key], [key]]
    assert obtain().key == key and obtain.calls == []


@pytest.mark.parametrize(("compute", "made"), [({}, 1), ({"compute": "auto"}, 1),
                                               ({"compute": "always"}, 2)])
def test_what_was_made_meanwhile_is_not_made_again(shipped, cache, monkeypatch, compute, made):
    """Between the first look and the lock, another process stores the result."""
    calls, first = [], artifacts.one_process

    def make(folder):
        (folder / "result.json").write_text("9")
        calls.append(folder)
        return {}

    def obtain(**compute):
        return STAGE.obtain_folder(Setting(), INPUTS, make, command="square", **compute)

    def late(*lock):
        assert lock[1] == "computing " + STAGE.key(Setting(), INPUTS)
        monkeypatch.setattr(artifacts, "one_process", first)
        obtain()
        return first(*lock)

    monkeypatch.setattr(artifacts, "one_process", late)
    assert obtain(**compute).problems() == [] and len(calls) == made


def test_an_error_ends_the_lock(shipped, cache, obtain):
    """Although the traceback, which a notebook keeps, holds all its frames."""
    with pytest.raises(ZeroDivisionError) as kept:
        STAGE.obtain_folder(Setting(), INPUTS, lambda folder: 1 / 0, command="square")
    second = threading.Thread(target=obtain, daemon=True)
    second.start()
    second.join(PATIENCE)
    assert kept.tb and obtain.calls == [3]
