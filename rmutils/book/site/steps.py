"""The steps of a build, each a process that Snakemake starts in the project's folder."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import psutil
import typer

from rmutils.core.environment import share_cores
from rmutils.core.errors import UserError
from rmutils.core.files import keeping

STATE = Path("book/_build")
"""Files that a build leaves behind, relative to the project's folder like all paths here."""

HTML = STATE / "html"
COMPLETE = HTML / ".complete"  # written last: where it is missing, the pages are built again

FAILURES = STATE / "failures"
"""One text per step that failed in the last build, for its closing message."""

RESULTS = STATE / "results.json"
"""The results of a study. Chapters run again where they have changed."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def chapter(notebook: Path, output: Path, parameters: str) -> None:
    """Run one notebook."""
    from rmutils.book.site.notebooks import NotebookFailed, run_notebook

    end_with_build()
    share_cores()
    started = time.monotonic()
    say(f"{notebook.stem} ...")
    try:
        run_notebook(notebook, output, json.loads(parameters))
    except (NotebookFailed, UserError) as error:
        fail(notebook.stem, str(error))
    say(f"{notebook.stem} done in {clock(started)}")


@app.command()
def pages() -> None:
    """Turn chapters and pages into HTML; any warning of Sphinx is an error."""
    end_with_build()
    started = time.monotonic()
    say("pages ...")
    try:
        with keeping(STATE, "building the pages", only_full=True,
                     elsewhere="move the project to a larger disk"):
            _pages()
    except UserError as error:
        fail("pages", str(error))
    say(f"pages done in {clock(started)}")


def _pages() -> None:
    # Only here: what they import takes seconds, and every chapter is a process of this module.
    from rmutils.book.site import playground
    from rmutils.book.site.classroom import without_solutions
    from rmutils.book.site.gallery import write
    from rmutils.book.site.slides import write_slides

    fresh, source = STATE / ".fresh", STATE / ".source"
    for left in (fresh, source):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree("book", source, ignore=shutil.ignore_patterns(STATE.name, "runs", ".partial"))
    if (essay := source / "chapters" / "essay.ipynb").exists():
        os.replace(essay, source / "index.ipynb")  # the front page
    write(Path(), source)
    if os.environ.get("RMUTILS_SOLUTIONS") == "no":
        without_solutions(source)
    _sphinx(source, fresh)
    made = fresh / "_build" / "html"
    if Path("book", playground.FOLDER).is_dir():
        playground.write(made)
    write_slides(Path("book"), made)
    old = STATE / ".old"
    shutil.rmtree(old, ignore_errors=True)
    if HTML.exists():
        os.replace(HTML, old)
    os.replace(made, HTML)
    COMPLETE.write_text(f"{time.time_ns()}\n", encoding="utf-8")
    for left in (old, fresh, source):
        shutil.rmtree(left, ignore_errors=True)


def _sphinx(source: Path, fresh: Path) -> None:
    command = [sys.executable, "-m", "rmutils.book.site.steps", "sphinx", str(source), str(fresh)]
    result = subprocess.run(command, text=True, encoding="utf-8", errors="replace",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    log = STATE / "pages.log"
    told = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    log.write_text(told.replace(str(source.absolute()), "book"), encoding="utf-8")
    if result.returncode:
        lines = log.read_text(encoding="utf-8").splitlines()
        told = [line for line in lines if re.search(r"\b(WARNING|ERROR|CRITICAL)\b", line)]
        fail("pages", "\n".join(["The pages have errors:", *(told or lines[-15:]),
                                  f"  all that Sphinx said: {log}"]))


@app.command()
def sphinx(source: Path, fresh: Path) -> None:
    """Write `_build/html` of a folder by Sphinx, with a process for each core."""
    from jupyter_book.sphinx import build_sphinx

    source, fresh = source.absolute(), fresh.absolute()
    result = build_sphinx(
        source, fresh / "_build" / "html", noconfig=True, path_config=source / "_config.yml",
        confoverrides={"external_toc_path": str(source / "_toc.yml"), "nitpicky": True,
                       "latex_individualpages": False},
        warningiserror=True, keep_going=True, jobs=os.cpu_count())
    if isinstance(result, Exception):
        raise result
    raise typer.Exit(result)


def clock(started: float) -> str:
    """Time since a reading of `time.monotonic`, as minutes and seconds."""
    seconds = round(time.monotonic() - started)
    return f"{seconds // 60}:{seconds % 60:02d}"


def say(line: str) -> None:
    """Print a line in one piece, with its end: steps that run side by side write to one place."""
    sys.stdout.write(f"  {line}\n")
    sys.stdout.flush()


def fail(name: str, message: str) -> NoReturn:
    """Keep the message of a step that failed, and end it."""
    say(f"{name} FAILED")
    try:
        FAILURES.mkdir(parents=True, exist_ok=True)
        (FAILURES / f"{name}.txt").write_text(message, encoding="utf-8")
    except OSError:  # the disk is full
        print(message, file=sys.stderr, flush=True)
    raise typer.Exit(1)


def end_with_build() -> None:
    """Stop this process, and with it its kernel, as soon as the build that started it is gone."""
    if "RMUTILS_BUILD" not in os.environ:
        return
    build = psutil.Process(int(os.environ["RMUTILS_BUILD"]))

    def watch() -> None:
        while build.is_running() and build.status() != psutil.STATUS_ZOMBIE:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    app()
