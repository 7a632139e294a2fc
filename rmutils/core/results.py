"""Stored results: a folder with a payload and a manifest that says where the payload comes from.

A result's name is a hash of what it depends on: stage, stage version, configuration and inputs. It
is looked up in the user's cache first, then in a cache that is shared, if there is one, then among
the results that ship with the project. A payload that does not match its manifest is refused.

What a result was made with: versions, commit, machine.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

import psutil

from rmutils.core.config import Config, digest
from rmutils.core.errors import NotStored, UserError
from rmutils.core.files import one_process, parse_json, sha256
from rmutils.core.paths import ROOT, SHIPPED_ARTIFACTS, cache_dir, caches

MANIFEST = "manifest.json"
NAME = re.compile(r"[a-z][a-z-]*-[0-9a-f]{16}")
"""Names that results have. No other folder is ever looked at, wherever a name may point."""
Compute = Literal["auto", "always", "never"]


@dataclass(frozen=True)
class Artifact:
    """A stored result: its folder, checked against its manifest."""

    folder: Path

    @cached_property
    def manifest(self) -> dict:
        """stage, version, config, inputs, command, facts, seconds, environment, files."""
        return parse_json((self.folder / MANIFEST).read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def shipped(self) -> bool:
        """True if it came with the project, False if this machine computed it."""
        return self.folder.parent == SHIPPED_ARTIFACTS

    def path(self, file: str) -> Path:
        """A payload file."""
        return self.folder / file

    def problems(self) -> list[str]:
        """What is wrong with the folder, a sentence each; empty if all is well."""
        try:
            m = self.manifest
            files = {file: known["sha256"] for file, known in m["files"].items()}
            name = _name(m["stage"], m["version"], m["config"], m["inputs"])
            there = {path.name for path in self.folder.iterdir() if path.is_file()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return [f"{self.name}: {MANIFEST} is unreadable ({type(error).__name__})"]
        wrong = [] if name == self.name else [f"{self.name}: {MANIFEST} is that of {name}"]
        for file, known in files.items():
            if Path(file).name != file:
                wrong.append(f"{self.name}: {MANIFEST} names {file!r}, which is not in its folder")
            elif file not in there:
                wrong.append(f"{self.name}/{file}: missing")
            elif sha256(self.path(file)) != known:
                wrong.append(f"{self.name}/{file}: content differs from its manifest")
        return wrong


@dataclass(frozen=True)
class Stage:
    """What makes a kind of result.

    Attributes
    ----------
    name : str
    version : int
        Raised whenever the code would give another result for the same configuration.
    """

    name: str
    version: int

    def key(self, config: Config, inputs: dict[str, str]) -> str:
        """Name of the result's folder: stage and 16 hex digits."""
        return _name(self.name, self.version, config.model_dump(mode="json"), inputs)

    def obtain(
        self, config: Config, inputs: dict[str, str], make: Callable[[Path], dict], *,
        compute: Compute = "auto", command: str,
    ) -> Artifact:
        """Look a result up, or make it and keep it in the user's cache.

        Parameters
        ----------
        config : Config
        inputs : dict
            Everything else that the result depends on, as content hashes by name.
        make : callable
            Writes the payload into the folder it is given and returns facts for the manifest.
            After a kill it is called again with the same folder, and may go on from what is there;
            files whose names begin with a dot are its scratch and do not become payload.
        compute : {"auto", "always", "never"}
            Use what is stored and else compute; compute anew; use what is stored or fail.
        command : str
            The command line that makes this result.

        Raises
        ------
        NotStored
            Nothing stored and `compute="never"`.
        UserError
            A stored payload does not match its manifest.
        """
        key = self.key(config, inputs)
        if compute != "always" and (found := find(key)):
            return found
        if compute == "never":
            raise NotStored(f'no result {key} is stored and compute="never". Make it: `{command}`.')
        root = cache_dir() / "artifacts"
        with one_process(root / f".{key}.lock", f"computing {key}"):
            if compute == "auto" and (found := find(key)):  # the other process has made it
                return found
            work = root / f".{key}.partial"
            work.mkdir(exist_ok=True)
            started = time.perf_counter()
            facts = make(work)
            _seal(work, {
                "stage": self.name, "version": self.version,
                "config": config.model_dump(mode="json"), "inputs": inputs, "command": command,
                "facts": facts, "seconds": round(time.perf_counter() - started, 1),
                "environment": environment(),
            })
            _publish(work, root / key)
        return Artifact(root / key)


def _name(stage: str, version: int, config: dict, inputs: dict[str, str]) -> str:
    return f"{stage}-{digest([stage, version, config, inputs])[:16]}"


def _seal(folder: Path, manifest: dict) -> None:
    """Hash the payload and write the manifest."""
    files = {p.name: {"sha256": sha256(p), "bytes": p.stat().st_size}
             for p in sorted(folder.glob("[!.]*")) if p.name != MANIFEST}
    text = json.dumps({**manifest, "files": files}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _publish(work: Path, target: Path) -> None:
    """Give a finished folder its name. Scratch goes last, so that a kill never costs the work."""
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


def find(key: str) -> Artifact | None:
    """The stored result of that name, checked; None if there is none.

    Raises
    ------
    UserError
        It is there, but does not match its manifest.
    """
    for root in roots() if NAME.fullmatch(key) else ():
        artifact = Artifact(root / key)
        if artifact.folder.is_dir():
            if problems := artifact.problems():
                raise UserError(f"{'; '.join(problems)}. It is not used. Remove the folder "
                                f"{artifact.folder} to have it computed anew.")
            return artifact
    return None


def stored() -> Iterator[Artifact]:
    """All stored results, the user's own first."""
    for root in roots():
        yield from (Artifact(p) for p in sorted(root.glob("[!.]*")) if p.is_dir())


def promote(artifact: Artifact) -> Artifact:
    """Copy a result from the cache to the ones that ship with the project, unless it is one."""
    if problems := artifact.problems():
        raise UserError("; ".join(problems))
    target = SHIPPED_ARTIFACTS / artifact.name
    if artifact.folder == target:
        return artifact
    shutil.copytree(artifact.folder, target, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns(".*"))
    return Artifact(target)


PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "trl", "peft", "vllm")


def environment() -> dict:
    """Package versions, git commit and hardware, as JSON-able values. Holds no path and no name."""
    return {
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "commit": commit(),
        "hardware": hardware(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """Short git commit of the checkout, `+` appended if files differ from it; None without git."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head and head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def hardware() -> str:
    """One line: processor, cores, memory and, where there are any, accelerators."""
    parts = [_processor(), f"{len(os.sched_getaffinity(0))} cores" if hasattr(
        os, "sched_getaffinity") else f"{os.cpu_count()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB memory"]
    import torch  # here, because importing it takes seconds

    if torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
