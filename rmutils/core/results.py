"""Stored results: a folder with a payload and a manifest that says where the payload comes from."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import pandas as pd
from filelock import FileLock, Timeout

from rmutils.core.config import Config, digest
from rmutils.core.environment import environment
from rmutils.core.errors import NotStored, UserError, unknown
from rmutils.core.files import differs, one_process, read_text
from rmutils.core.manifests import MANIFEST, UNSEALED, broken, write_manifest, write_sealed
from rmutils.core.paths import SHIPPED_ARTIFACTS, cache_dir, caches
from rmutils.core.validation import parse_json

JOURNAL = ".journal.jsonl"  # scratch of a run: what it has done so far
KEY = re.compile(r"([a-z][a-z-]*)-([0-9a-f]{16})")
PLACE = re.compile(r"([a-z][a-z-]*)/[^/]+/[^/]+-([0-9a-f]{8})")
DIGITS = 8  # of the hash in the name of a folder
BASE = "base"  # label of results without another one: of a model as it came
Compute = Literal["auto", "always", "never"]
Tables = dict[str, pd.DataFrame]
T = TypeVar("T")


@dataclass(frozen=True)
class Artifact:
    """A stored result: its folder, checked against its manifest."""

    folder: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Return stage, version, config, inputs, command, facts, seconds, environment, files."""
        manifest: dict[str, Any] = parse_json(read_text(self.folder / MANIFEST))
        return manifest

    @cached_property
    def key(self) -> str:
        """Stage and 16 digits: what other results and records name it by."""
        m = self.manifest
        return _key(m["stage"], m["version"], m["config"], m["inputs"])

    @property
    def name(self) -> str:
        """`stage/model/label-hash`, or the key where its folder is called so, as before 1.0."""
        parts = self.folder.parts
        return parts[-1] if KEY.fullmatch(parts[-1]) else "/".join(parts[-3:])

    @property
    def stage(self) -> str:
        return self.name.split("/")[0] if "/" in self.name else self.name.rpartition("-")[0]

    @property
    def model(self) -> str:
        """The model that it is about, empty if its folder does not say so."""
        return self.folder.parent.name if "/" in self.name else ""

    @property
    def label(self) -> str:
        """How it was made: `retmask-seed3`, say."""
        return self.folder.name.rpartition("-")[0]

    @property
    def shipped(self) -> bool:
        """True if it came with the project, False if this machine computed it."""
        return SHIPPED_ARTIFACTS in self.folder.parents

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @property
    def created(self) -> str:
        """When it was computed, in UTC: `2026-11-25T07:43:12`, say; empty if it does not say."""
        return str(self.manifest.get("environment", {}).get("created", ""))

    def path(self, file: str) -> Path:
        return self.folder / file

    def checked(self) -> Artifact:
        """Return it; UserError if something is wrong with it."""
        if problems := self.problems():
            raise UserError(f"{'; '.join(problems)}. It is not used. Remove the folder "
                            f"{self.folder} to have it recomputed.")
        return self

    def problems(self) -> list[str]:
        """Return what is wrong with the folder, a sentence each; empty if all is well."""
        try:
            files = {file: known["sha256"] for file, known in self.manifest["files"].items()}
            key, seal = self.key, broken(self.manifest)
            there = {path.name for path in self.folder.iterdir()} - {MANIFEST}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError) as error:
            return [f"{self.name}: {MANIFEST} is unreadable ({type(error).__name__}: {error})"]
        wrong = [] if _names(self.name, key) else [f"{self.name}: {MANIFEST} is that of {key}"]
        if seal:
            wrong.append(_unsealed(self.name) if seal == UNSEALED else
                         f"{self.name}: {MANIFEST} {seal}")
        if not files:
            wrong.append(f"{self.name}: {MANIFEST} names no files")
        wrong += [f"{self.name}/{file}: its manifest knows no such file"
                  for file in sorted(there - files.keys()) if not file.startswith(".")]
        for file, known in files.items():
            if Path(file).name != file:
                wrong.append(f"{self.name}: {MANIFEST} names {file!r}, which is not in its folder")
            elif file not in there:
                wrong.append(f"{self.name}/{file}: missing")
            elif said := differs(self.path(file), known):
                wrong.append(f"{self.name}/{file}: {said}")
        return wrong


def _unsealed(name: str) -> str:
    return f"{name}: {MANIFEST} {UNSEALED}. Check and seal it: `rmutils artifacts seal {name}`"


def write_tables(tables: Any, folder: Path) -> None:
    """Write tables, a mapping or a dataclass of them, each to a parquet file of its name."""
    for name, table in _by_name(tables).items():
        table.to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")


def read_tables(folder: Path) -> Tables:
    """Read what `write_tables` wrote."""
    return {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}


def _by_name(tables: Any) -> Mapping[str, pd.DataFrame]:
    return tables if isinstance(tables, Mapping) else vars(tables)


def _rows(tables: Any) -> dict[str, Any]:
    return {name: len(table) for name, table in _by_name(tables).items()}


@dataclass(frozen=True)
class Stage(Generic[T]):
    """A kind of result: its name, and how its payload is written and read."""

    name: str
    version: int  # raised whenever the code would give another result for the same configuration
    # payload into a folder (`read`: from it); default: tables by name
    write: Callable[[Any, Path], None] = write_tables
    read: Callable[[Path], Any] = read_tables
    # what the manifest counts of a payload; default: rows of the tables
    facts: Callable[[Any], dict[str, Any]] = _rows

    @classmethod
    def of_tables(cls, name: str, version: int, kind: Callable[..., T],
                  facts: Callable[[Any], dict[str, Any]] = _rows) -> Stage[T]:
        """Return a stage whose payload is a dataclass of tables."""
        return cls(name, version, read=lambda folder: kind(**read_tables(folder)), facts=facts)

    def key(self, config: Config, inputs: dict[str, str]) -> str:
        """Stage and 16 hex digits of a result."""
        return _key(self.name, self.version, config.identity(), inputs | config.outside())

    def obtain(self, config: Config, inputs: dict[str, str], make: Callable[[Path], T], *,
               compute: Compute, command: str, model: str, label: str = "") -> tuple[T, Artifact]:
        """As `obtain_folder`, but `make` returns the payload; it gets the path of a journal."""
        def write(folder: Path) -> dict[str, Any]:
            payload = make(folder / JOURNAL)
            self.write(payload, folder)
            return self.facts(payload)

        artifact = self.obtain_folder(config, inputs, write, compute=compute, command=command,
                                      model=model, label=label)
        return self.read(artifact.folder), artifact

    def obtain_folder(self, config: Config, inputs: dict[str, str],
                      make: Callable[[Path], dict[str, Any]], *, compute: Compute = "auto",
                      command: str, model: str = "", label: str = "") -> Artifact:
        """Look a result up, or make it; raises NotStored where it must not be computed.
        `inputs` are all else that it depends on, as hashes by name. `make` writes the payload into
        a folder, the same one again after a kill, and returns facts for the manifest; files whose
        names begin with a dot are its scratch."""
        if compute not in get_args(Compute):
            raise UserError(unknown(f"way to compute {compute!r}", get_args(Compute)))
        inputs = inputs | config.outside()
        key = self.key(config, inputs)
        if compute != "always" and (found := find(key)):
            return found
        if compute == "never":
            raise NotStored(f"no result {key} is stored. Make it: `{command}`.")
        root = cache_dir() / "artifacts"
        with one_process(root / f".{key}.lock", f"computing {key}"):
            if compute == "auto" and (found := find(key)):  # the other process has made it
                return found
            work = root / f".{key}.partial"
            work.mkdir(exist_ok=True)
            started = time.perf_counter()
            facts = make(work)
            write_manifest(work, {
                "stage": self.name, "version": self.version, "config": config.identity(),
                "inputs": inputs, "command": command, "facts": facts,
                "seconds": round(time.perf_counter() - started, 1), "environment": environment(),
            })
            place = next(_folders(root, key), root / _place(key, model, label))
            publish(work, place)
        return Artifact(place)


def _key(stage: str, version: int, config: dict[str, Any], inputs: dict[str, str]) -> str:
    return f"{stage}-{digest([stage, version, config, inputs])[:16]}"


def _names(name: str, key: str) -> bool:
    """True if a name is that of a result with this key."""
    stage, _, digits = key.rpartition("-")
    place = PLACE.fullmatch(name)
    return name == key or place is not None and place.groups() == (stage, digits[:DIGITS])


def _place(key: str, model: str, label: str) -> Path:
    """Where a result is published."""
    stage, _, digits = key.rpartition("-")
    if KEY.fullmatch(model) and (training := find(model)):
        model, label = training.model, "-".join(filter(None, (training.label, label)))
    shown = [re.sub(r"[^\w.]+", "-", text).strip("-.") for text in (
        Path(model).name if Path(model).exists() else model, label or BASE)]
    return Path(stage, shown[0] or "any", f"{shown[1]}-{digits[:DIGITS]}")


def publish(work: Path, target: Path) -> None:
    """Give a finished folder its name. Scratch goes last, so that a kill never costs the work."""
    target.parent.mkdir(parents=True, exist_ok=True)
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        os.replace(target, old)  # in one step, as removing is not
    os.replace(work, target)
    shutil.rmtree(old, ignore_errors=True)
    for scratch in target.glob(".*"):
        scratch.unlink()


def roots() -> list[Path]:
    """Where results are looked up, in this order."""
    return [*(cache / "artifacts" for cache in caches()), SHIPPED_ARTIFACTS]


def _folders(root: Path, name: str) -> Iterator[Path]:
    """Folders of a key, or of a place, whatever label it has there."""
    key = KEY.fullmatch(name)
    if key and (root / name).is_dir():  # as before 1.0
        yield root / name
    if match := key or PLACE.fullmatch(name):
        yield from (root / match[1]).glob(f"[!.]*/[!.]*-{match[2][:DIGITS]}")


def unchecked(name: str) -> Iterator[Artifact]:
    """Yield the results of a key or a name, damaged ones too, the user's own first."""
    for root in roots():
        yield from map(Artifact, _folders(root, name))


def find(name: str) -> Artifact | None:
    """Return the stored result of a key or a name, checked; None if there is none."""
    return next((artifact for artifact in unchecked(name)
                 if _names(name, artifact.checked().key)), None)


def stored(stage: str | None = None) -> Iterator[Artifact]:
    """Yield all stored results, or those of a stage, the user's own first."""
    for root in roots():
        folders = [*root.glob("[!.]*/[!.]*/[!.]*"), *root.glob("*-" + "[0-9a-f]" * 16)]
        for artifact in map(Artifact, sorted(folders)):
            if artifact.folder.is_dir() and stage in (None, artifact.stage):
                yield artifact


def remove(artifact: Artifact) -> None:
    """Remove a result from the user's cache, in one step for others who look it up."""
    root, folder = cache_dir() / "artifacts", artifact.folder
    if root not in folder.parents:
        whose = "came with the project" if artifact.shipped else "is shared"
        raise UserError(f"{artifact.name} {whose}: only results in {root} can be removed.")
    locks = []
    with suppress(UserError, ValueError, KeyError, TypeError):  # a damaged manifest: nobody uses it
        locks = [root / f".{artifact.key}.lock"]
    with ExitStack() as held:
        for lock in locks:
            try:
                held.enter_context(FileLock(lock, timeout=0))
            except Timeout:
                raise UserError(f"{artifact.name} is being computed by another process. Stop that "
                                "one first, or wait for it.") from None
        gone = folder.with_name(f".{folder.name}.old")
        os.replace(folder, gone)
        shutil.rmtree(gone)
        for parent in (folder.parent, folder.parent.parent):
            if parent != root and not any(parent.iterdir()):
                parent.rmdir()


def promote(artifact: Artifact) -> Artifact:
    """Copy a result from the cache to the ones that ship with the project, unless it is one."""
    if problems := artifact.problems():
        raise UserError("; ".join(problems))
    target = SHIPPED_ARTIFACTS / artifact.name
    if artifact.folder == target:
        return artifact
    scratch = shutil.ignore_patterns(".*")
    shutil.copytree(artifact.folder, target, dirs_exist_ok=True, ignore=scratch)
    return Artifact(target)


def seal(artifact: Artifact) -> bool:
    """Seal a result of version 1.0 that agrees with its key and files; False if it has a seal."""
    if not (problems := artifact.problems()):
        return False
    if problems != [_unsealed(artifact.name)]:
        raise UserError("; ".join(problems))
    write_sealed(artifact.folder, artifact.manifest)
    return True
