"""Building the book: `python -m rmutils.book.site.build`, which is what `make book` calls."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from filelock import FileLock, Timeout

from rmutils.book.site.dependencies import chapters
from rmutils.book.site.steps import COMPLETE, FAILURES, HTML, STATE, clock
from rmutils.core import paths
from rmutils.core.environment import share_cores
from rmutils.core.errors import UserError

LOCAL = paths.ROOT / "profiles" / "local"  # snakemake's settings for this machine


class BuildFailed(Exception):
    """A step failed: a notebook raised, a page has a warning, or a job of a study ended badly."""


def build(root: Path = paths.ROOT, *, profile: str = "embedded") -> None:
    """Bring the book up to date; a second build of the same project waits for the first."""
    share_cores()
    chapters(root, profile)
    started = time.monotonic()
    with only_build(root) as lock:
        done = _stamp(root)
        run_graph(root, lock, {"profile": profile})
        what = "is up to date" if done == _stamp(root) else f"built in {clock(started)}"
    print(f"The book {what}: {root / HTML / 'index.html'}")


def _stamp(root: Path) -> str | None:
    stamp = root / COMPLETE
    return stamp.read_text(encoding="utf-8") if stamp.exists() else None


def run_graph(root: Path, lock: FileLock, config: dict[str, str], *options: str,
              where: Path = LOCAL) -> None:
    """Have Snakemake run what must run, in a project whose lock is held."""
    shutil.rmtree(root / FAILURES, ignore_errors=True)
    shutil.rmtree(root / "book/chapters/.partial", ignore_errors=True)
    into_the_present(root, *([Path(config["plan"]).parent] if "plan" in config else []))
    log = root / STATE / "snakemake.log"
    # The lock is ours: Snakemake's outlives a kill. A file that was only touched has not changed,
    # however large it is, so its checksum is always taken.
    command = [sys.executable, "-m", "snakemake", *options,
               "--snakefile", str(paths.ROOT / "Snakefile"), "--directory", str(root),
               "--cores", str(max(2, os.cpu_count() or 1)), "--profile", str(where), "--nolock",
               "--rerun-incomplete", "--keep-going", "--max-checksum-file-size", "10000000000",
               "--config", *(f"{name}={value}" for name, value in config.items())]
    # Steps end with this process, where it runs on their machine.
    watched = {"RMUTILS_BUILD": str(os.getpid())} if where == LOCAL else {}
    # A child that inherits the lock keeps it if this process is killed; not on Windows.
    held = [] if os.name == "nt" else [lock._context.lock_file_fd]
    with log.open("wb") as stream:
        status = subprocess.run(command, cwd=root, stderr=stream, pass_fds=held,
                                env={**os.environ, **watched}).returncode
    if status:
        told = [f.read_text(encoding="utf-8") for f in sorted((root / FAILURES).glob("*.txt"))]
        raise BuildFailed("\n".join(told) or f"snakemake stopped ({log}):\n{_why(log.read_text())}")


def _why(log: str) -> str:
    """Say why jobs failed that could not say it themselves, such as those a cluster refused."""
    failed = re.findall(r"^Error in rule (\w+):\n +message: (.+?)\n +(?:sbatch call|jobid):", log,
                        re.MULTILINE | re.DOTALL)
    told = dict.fromkeys(f"{rule}: {message}" for rule, message in failed if message != "None")
    return "\n".join(told) or log[-2000:]


def into_the_present(root: Path, *further: Path) -> None:
    """Give files from the future, which a clock that was set back leaves, the present time."""
    now = time.time()
    folders = [root / "book", root / "notebooks", root / "data", paths.ROOT / "rmutils", *further]
    found = [path for folder in folders for path in folder.rglob("*")
             if STATE.name not in path.relative_to(folder).parts]
    for path in (*found, *(root / STATE).glob("*.json"), root / COMPLETE):
        with suppress(OSError):  # not there, or not ours
            if path.stat().st_mtime > now and path.is_file():
                os.utime(path, (now, now))


@contextmanager
def only_build(root: Path) -> Iterator[FileLock]:
    """Hold the build lock of a project."""
    (root / STATE).mkdir(parents=True, exist_ok=True)
    lock = FileLock(root / STATE / "build.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Another build of this book is running; waiting for it ...", flush=True)
        lock.acquire()
    with lock:
        yield lock


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
