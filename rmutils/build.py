"""Building the book: `python -m rmutils.build`, which is what `make book` calls.

Snakemake decides what must run again (`Snakefile`) and runs it (`rmutils.steps`). This module says
what a chapter and the pages depend on, lets one build run at a time and says how it ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rmutils import paths, playground
from rmutils.errors import UserError
from rmutils.steps import COMPLETE, FAILURES, HTML, STATE, clock


class BuildFailed(Exception):
    """The book could not be built: a notebook raised, or a page has a warning."""


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book and all that its result depends on; paths relative to the project."""

    name: str
    notebook: Path
    parameters: dict[str, Any]
    inputs: list[str]

    @property
    def output(self) -> str:
        return f"book/chapters/{self.name}.ipynb"


def chapters(root: Path, profile: str) -> list[Chapter]:
    """All notebooks of a project with the parameters that a profile gives them.

    `notebooks/profiles.yaml` maps profile -> notebook -> parameters; what is not mentioned there
    keeps the notebook's own default. A notebook names the data that it reads in its metadata:
    `{"rmutils": {"data": ["data/paper/*.csv"]}}`, and may so name other executed chapters.
    """
    from rmutils.parameters import check_parameters

    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    settings = _profile(root, profile)
    unknown = sorted(set(settings) - {n.stem for n in notebooks})
    if unknown:
        raise UserError(f"notebooks/profiles.yaml: profile {profile!r} names {', '.join(unknown)}, "
                        "but notebooks/ has no such notebook")
    outputs = [f"book/chapters/{n.stem}.ipynb" for n in notebooks]
    found = []
    for notebook, output in zip(notebooks, outputs, strict=True):
        parameters = check_parameters(notebook, settings.get(notebook.stem, {}))
        others = [o for o in outputs if o != output]
        found.append(Chapter(notebook.stem, notebook.relative_to(root), parameters,
                             sorted(_data(root, notebook, others)) + code()))
    return found


def code() -> list[str]:
    """The package and the lock: what every chapter depends on.

    Not the command line, the build and the playground; they only start what the other modules do.
    """
    package, apart = paths.ROOT / "rmutils", ("build.py", "steps.py", "playground.py")
    modules = [p for p in package.rglob("*.py") if p.name not in apart and p.parent.name != "cli"]
    return sorted(map(str, [*modules, paths.ROOT / "requirements.lock"]))


def sources(root: Path) -> list[str]:
    """What the pages are made of, besides the chapters."""
    book = root / "book"
    made = {"_build", "chapters", "runs", ".ipynb_checkpoints"}
    pages = [p.relative_to(root) for p in book.rglob("*")
             if p.is_file() and not made & set(p.relative_to(book).parts)]
    played = playground.inputs() if (book / playground.FOLDER).is_dir() else []
    return (sorted(map(str, pages)) + sorted(map(str, (paths.ROOT / "rmutils").rglob("*.py")))
            + sorted(map(str, played)))


def build(root: Path = paths.ROOT, *, profile: str = "embedded") -> None:
    """Bring the book up to date; a second build of the same project waits for the first.

    Raises
    ------
    UserError
        A notebook or a profile is not usable; nothing was started.
    BuildFailed
        A notebook raised or a page has a warning. What the other notebooks gave is kept.
    """
    chapters(root, profile)
    (root / STATE).mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with _only_build(root / STATE / "build.lock") as lock:
        shutil.rmtree(root / FAILURES, ignore_errors=True)
        shutil.rmtree(root / "book/chapters/.partial", ignore_errors=True)
        done = _stamp(root)
        log = root / STATE / "snakemake.log"
        with log.open("wb") as stream:
            status = subprocess.run(
                _snakemake(root, profile), cwd=root, stderr=stream, pass_fds=[lock],
                env={**os.environ, "RMUTILS_BUILD": str(os.getpid())}).returncode
        if status:
            told = [f.read_text(encoding="utf-8") for f in sorted((root / FAILURES).glob("*.txt"))]
            raise BuildFailed("\n".join(told) or f"snakemake stopped:\n{log.read_text()[-2000:]}")
        what = "is up to date" if done == _stamp(root) else f"built in {clock(started)}"
    print(f"The book {what}: {root / HTML / 'index.html'}")


def _snakemake(root: Path, profile: str) -> list[str]:
    # The lock is ours: Snakemake's outlives a kill. A file that was only touched has not changed,
    # however large it is, so its checksum is always taken.
    return [sys.executable, "-m", "snakemake", "--snakefile", str(paths.ROOT / "Snakefile"),
            "--directory", str(root), "--cores", str(max(2, os.cpu_count() or 1)),
            "--config", f"profile={profile}", "--nolock", "--rerun-incomplete", "--keep-going",
            "--max-checksum-file-size", "10000000000", "--quiet", "all"]


@contextmanager
def _only_build(path: Path) -> Iterator[int]:
    """Hold the build lock; yields its descriptor.

    A child that inherits the descriptor keeps the lock if this process is killed.
    """
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another build of this book is running; waiting for it ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _stamp(root: Path) -> str | None:
    stamp = root / COMPLETE
    return stamp.read_text(encoding="utf-8") if stamp.exists() else None


def _profile(root: Path, profile: str) -> dict[str, dict]:
    file = root / "notebooks" / "profiles.yaml"
    profiles = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    if profile != "embedded" and profile not in profiles:
        raise UserError(f"no profile {profile!r}; there is embedded, {', '.join(profiles)}")
    return profiles.get(profile) or {}


def _data(root: Path, notebook: Path, outputs: list[str]) -> Iterator[str]:
    metadata = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]
    for pattern in metadata.get("rmutils", {}).get("data", []):
        files = [str(p.relative_to(root)) for p in root.glob(pattern) if p.is_file()]
        files = [f for f in files if not f.startswith("book/chapters/")]
        files += [o for o in outputs if Path(o).match(pattern)]
        if not files:
            raise UserError(f"{notebook.name} says that it reads {pattern!r}, "
                            "but no file has such a name")
        yield from files


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def _main(profile: Annotated[str, typer.Option(help="Size of the experiments.")] = "embedded",
          project: Annotated[Path, typer.Option(help="Folder with notebooks/ and book/.")]
          = paths.ROOT):
    """Bring the book up to date."""
    try:
        build(project.resolve(), profile=profile)
    except (BuildFailed, UserError) as error:
        typer.echo(f"\n{error}", err=True)
        raise typer.Exit(2 if isinstance(error, UserError) else 1) from None


if __name__ == "__main__":
    app()
