"""A byte that has changed on the disk is named, with the command that fixes it; never used."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmutils.book.claims.claim_list import load_claims
from rmutils.core import files, paths
from rmutils.core.errors import UserError
from rmutils.core.results import Artifact, stored
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.evaluation.abilities import short_tasks
from rmutils.models import loading
from rmutils.models.fetch import cached_path
from rmutils.models.known_models import REGISTRY
from rmutils.paper import tables
from rmutils.paper.tables import read_records

RANDOM = random.Random(0)
SCHEMAS = {value.file: value for value in vars(tables).values()
           if isinstance(value, tables.Schema)}


def flip(file: Path) -> None:
    """One bit, anywhere."""
    content = bytearray(file.read_bytes())
    content[RANDOM.randrange(len(content))] ^= 1 << RANDOM.randrange(8)
    file.write_bytes(content)


@pytest.fixture
def data(tmp_path, monkeypatch, cache):
    """A copy of all that ships but has no manifest."""
    for name in ("corpus", "models", "paper", "abilities"):
        shutil.copytree(paths.DATA / name, tmp_path / "data" / name)
    monkeypatch.setattr(files, "DATA", tmp_path / "data")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(loading, "SHIPPED_MODELS", tmp_path / "data" / "models")
    monkeypatch.setattr(short_tasks, "PROBLEMS", tmp_path / "data" / "abilities" / "problems.yaml")
    return tmp_path / "data"


def reader(file: Path, data: Path) -> Callable[[], object]:
    """What reads a file that ships."""
    folder, name = file.parent, file.relative_to(data).as_posix()
    if name.startswith("models/"):
        return lambda: loading.identify(folder.name)
    if name.startswith("abilities/"):
        return lambda: short_tasks.coding(1, 0)
    if name.endswith(".yml"):
        return lambda: load_claims(folder)
    if name.startswith("paper/"):
        return lambda: read_records(SCHEMAS[file.name], folder)
    if file.suffix == ".yaml" or folder.name == "ordinary":  # texts that only an experiment reads
        return lambda: files.intact(file)
    return lambda: load_needles(file) if file.suffix == ".jsonl" else load_haystacks(folder)


def test_all_that_ships_is_on_record():
    """Else: `make sums`."""
    kinds = ("abilities", "corpus", "models", "paper")
    shipped = {p.relative_to(paths.DATA).as_posix(): files.sha256(p)
               for kind in kinds for p in (paths.DATA / kind).rglob("*") if p.is_file()}
    assert files._sums() == shipped


@pytest.mark.fault("flipped byte", "model, corpus, table or task that ships")
def test_file_that_ships(data, tally):
    tried = [p for p in sorted(data.rglob("*")) if p.is_file() and p.name != "README.md"
             or p.parent.parent == data / "models"]
    kept = []
    for file in tried:
        read, good = reader(file, data), file.read_bytes()
        read()
        flip(file)
        name = file.relative_to(data.parent)
        with pytest.raises(UserError, match=f"{file} is not as it was.*git checkout -- {name}`"):
            read()
        file.write_bytes(good)
        kept.append(file)
    tally(what="model, corpus, table or task that ships", tried=len(tried), kept=len(kept),
          lost=len(tried) - len(kept))


@pytest.mark.fault("flipped byte", "stored result: a file of each kind, or its manifest")
def test_stored_results(tmp_path, tally):
    """One result of each stage. In a manifest a byte may change what does not decide the result."""
    of_stage = {artifact.stage: artifact for artifact in stored() if artifact.shipped}
    counts = dict.fromkeys(("tried", "kept", "lost"), 0)
    for shipped in of_stage.values():
        artifact = Artifact(shutil.copytree(shipped.folder, tmp_path / shipped.name))
        assert not artifact.problems()
        for file in artifact.manifest["files"]:
            good = artifact.path(file).read_bytes()
            flip(artifact.path(file))
            told = Artifact(artifact.folder).problems()
            found = told == [f"{artifact.name}/{file}: content differs from its manifest"]
            artifact.path(file).write_bytes(good)
            counts["tried"] += 1
            counts["kept" if found else "lost"] += 1
    tally(what="stored result: a payload of each kind", **counts)
    assert counts["tried"] > 20 and not counts["lost"]


@pytest.mark.fault("flipped byte", "model that was fetched")
def test_fetched_model(cache):
    path = cached_path("smollm2-135m", REGISTRY["smollm2-135m"].wheel)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF" + bytes(1000))
    with pytest.raises(UserError, match=rf"{path} is not as it was fetched.*`rm '{path}' && rmutils"
                                        r" models fetch smollm2-135m`"):
        loading.load_model("smollm2-135m")


@pytest.mark.fault("flipped byte", "model of one's own: another model, whose results are its own")
def test_own_model(llama, tmp_path):
    llama.model.save_pretrained(tmp_path / "own")
    llama.tokenizer.save_pretrained(tmp_path / "own")
    before = loading.identify(str(tmp_path / "own"))
    flip(tmp_path / "own" / "model.safetensors")
    assert loading.identify(str(tmp_path / "own")) != before
