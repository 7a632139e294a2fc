"""What a build runs again, and what is left when it is stopped or fails."""

import base64
import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import nbformat
import pytest
import typer
from typer.testing import CliRunner

from rmutils.book.site import build, steps
from rmutils.book.site.dependencies import chapters
from rmutils.book.site.steps import COMPLETE, FAILURES
from rmutils.core import paths
from rmutils.core.errors import UserError
from tests.clock import PATIENCE, until
from tests.faults.conftest import Project, kill, ran, read_until
from tests.faults.table import LONG


def processes(text: str) -> str:
    return subprocess.run(["pgrep", "-af", text], capture_output=True, text=True).stdout


def incomplete(project, name: str) -> bool:
    """Whether Snakemake has noted that it began to make a chapter, and not that it was made."""
    output = str(project.chapter(name).relative_to(project.root))
    mark = base64.b64encode(output.encode()).decode()
    return (project.root / ".snakemake" / "incomplete" / mark).exists()


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory) -> Project:
    """A project whose build is killed again and again, and then done: `built_once`."""
    return Project(tmp_path_factory.mktemp("unfinished") / "a book")


@pytest.mark.fault("kill -9", "in a build of the book: all of it, Snakemake, or what started it")
def test_kill_in_the_middle_loses_nothing(unfinished):
    """Whichever process dies, its kernels end, and the next build goes on where it was: also the
    whole ones, in `built_once`. Snakemake is killed only in the long run, as the build then ends,
    and with it all that follows it."""
    project, marker = unfinished, unfinished.root / "pid"
    waiting = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid()))"
    project.write("second", waiting, "import signal; signal.pause()")
    for victim in ("everything", "build", *["snakemake"] * LONG):
        build = project.start()
        read_until(build, "second ...")
        until(lambda: marker.exists() and marker.read_text())
        assert incomplete(project, "second")
        until(lambda: project.chapter("first").exists() and not incomplete(project, "first"))
        if victim == "everything":
            os.killpg(build.pid, 9)
        elif victim == "build":
            kill(build.pid)
        else:
            kill(int(processes(f"snakemake.*{project.root}").split()[0]))
        told = build.communicate(timeout=PATIENCE)[0]
        until(lambda: f"{marker.read_text()} " not in processes("ipykernel_launcher"))
        assert not ran(told) & {"second", "pages"} and "lock" not in told.lower(), victim
        assert project.chapter("first").exists() and not project.chapter("second").exists()
        marker.unlink()


@pytest.fixture(scope="module")
def built_once(unfinished) -> SimpleNamespace:
    """A project with a third notebook, a profile, and runs that are no pages, built by two builds
    at once; which steps were left to do, and what both builds said."""
    project, gate = unfinished, unfinished.root / "gate"
    left = {"second", "third", "pages"} | {"first"} - {
        path.stem for path in project.root.glob("book/chapters/*.ipynb")}
    (project.root / "notebooks" / "profiles.yaml").write_text("embedded: {second: {size: 2}}\n")
    project.write("second", f"""\
import os, time
print("size", size)
while not os.path.exists({str(gate)!r}):
    time.sleep(0.05)""")
    (project.root / "data" / "words.txt").write_text("one\n")
    project.write("third", "print('three')", data=["data/words.txt"])
    for run in ("runs/first/mine.ipynb", "runs/first/.partial/failed.ipynb"):
        copied = project.root / "book" / run
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project.root / "notebooks" / "first.ipynb", copied)
    with (project.root / "book" / "_toc.yml").open("a") as contents:
        contents.write("- file: chapters/third\n")
    first = project.start()
    said = read_until(first, "second ...")
    second = project.start()
    waits = read_until(second, "waiting")
    gate.touch()
    said += first.communicate(timeout=PATIENCE)[0]
    after = second.communicate(timeout=PATIENCE)[0]
    assert first.returncode == second.returncode == 0, said + after
    return SimpleNamespace(project=project, left=left, said=said, waits=waits, after=after)


@pytest.fixture
def built(built_once, tmp_path) -> Project:
    """A copy of the project, with all that was built."""
    return built_once.project.copy(tmp_path / "a book")


@pytest.mark.fault("two at once", "builds of the book in one clone")
def test_second_build_waits_for_the_first(built_once):
    """And has nothing to do. A profile's parameters are those of the chapter."""
    assert "waiting for it" in built_once.waits and "lock" not in built_once.said.lower()
    assert ran(built_once.said) == built_once.left
    assert "is up to date" in built_once.after and not ran(built_once.after)
    assert "size 2" in built_once.project.page("chapters/second").read_text()
    made = nbformat.read(built_once.project.chapter("second"), as_version=4)
    assert made.metadata["rmutils"]["parameters"] == {"size": 2}


@pytest.mark.fault("clock set back", "results of a build are of the future")
def test_only_what_changed_runs_again(built):
    assert "one" in built.page("chapters/first").read_text()
    for file in built.root.rglob("*"):
        if "_build" not in file.parts and ".snakemake" not in file.parts:
            file.touch()
    index = built.root / "book" / "index.md"
    before = index.read_text()
    index.write_text(before + "\nMore words.\n")
    assert built.would_run() == {"pages"}, "touched files have not changed"
    index.write_text(before)

    built.write("second", "print('zwei')")
    (built.root / "data" / "words.txt").write_text("two\n")
    for made in (*built.root.glob("book/chapters/*.ipynb"), built.root / COMPLETE):
        os.utime(made, (time.time() + 9e5,) * 2)
    assert built.would_run() == {"second", "third", "pages"}


def test_a_step_says_each_line_in_one_piece(monkeypatch):
    """Also where output is not buffered: of two steps at once, lines must not run together."""
    written = []
    monkeypatch.setattr(steps.sys, "stdout", SimpleNamespace(
        write=written.append, flush=lambda: None))
    steps.say("one done in 0:01")
    assert written == ["  one done in 0:01\n"]


def test_what_fails_is_named_each_time_and_what_was_made_is_kept(built):
    """A notebook that raises; then a page with a warning, which Sphinx gives only once."""
    built.write("second", "x = 1", "1 / 0")
    built.write("third", "print('drei')")
    status, output = built.build()
    assert status == 1 and ran(output) == {"third"}
    assert "second: cell 4 (`1 / 0`): ZeroDivisionError: division by zero" in output
    assert "Snakemake" not in output and "Traceback" not in output
    assert "drei" in built.chapter("third").read_text() and not built.chapter("second").exists()
    built.write("second", "1 / 1")
    (built.root / "book" / "index.md").write_text("# Index\n\n{ref}`nowhere`\n")
    status, output = built.build()
    assert status == 1 and ran(output) == {"second"}
    assert "index.md" in output and "nowhere" in output and built.page("index").exists()
    again = subprocess.run([sys.executable, "-m", "rmutils.book.site.steps", "pages"],
                           cwd=built.root, env=os.environ | {"PYTHONPATH": str(paths.ROOT)})
    told = (built.root / FAILURES / "pages.txt").read_text()
    assert again.returncode == 1 and "index.md" in told and "nowhere" in told


def test_runs_with_other_parameters_are_no_pages(built):
    """Neither a whole run nor one that failed half-way gets in the way of the book."""
    assert {path.name for path in (built.root / "book" / "runs").rglob("*.ipynb")} == {
        "mine.ipynb", "failed.ipynb"}
    pages = {path.stem for path in built.page("index").parent.rglob("*.html")}
    assert {"first", "second", "third"} <= pages and not {"mine", "failed"} & pages


def test_profiles_that_are_none(project):
    bomb = "".join(f"x{i}: &a{i} {{y: [{', '.join([f'*a{i - 1}'] * 9) if i else 1}]}}\n"
                   for i in range(30))
    for text in ("a: [", "[1]", "smoke: 1", "smoke: {first: [1]}", "? {a: 1}\n: 2", "[" * 9999,
                 bomb, "\x00", "smoke: {first: {seed: 1, seed: 2}}"):
        (project.root / "notebooks" / "profiles.yaml").write_text(text)
        with pytest.raises(UserError, match="profiles.yaml: expected profile: notebook"):
            chapters(project.root, "smoke")


def refused(project, *options: str) -> str:
    """What is told of a project of which nothing is started."""
    done = CliRunner().invoke(build.app, ["--project", str(project.root), *options])
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done.output
    assert not ran(done.output) and not project.chapter("first").exists()
    return done.output


@pytest.mark.parametrize(("profiles", "told"), [
    ("embedded: {second: {sise: 2}}", "sise"), ("embedded: {second: {size: many}}", "many"),
    ("embedded: {third: {size: 2}}", "third"), ("smoke: {}", "paper"),
])
def test_wrong_profile_starts_nothing(project, profiles, told):
    (project.root / "notebooks" / "profiles.yaml").write_text(profiles)
    assert told in refused(project, *(["--profile", "paper"] if "smoke" in profiles else []))


def test_data_that_is_not_there_is_named(project):
    project.write("first", "pass", data=["data/*.parquet"])
    output = refused(project)
    assert "first.ipynb" in output and "data/*.parquet" in output


@pytest.mark.fault("full disk", "while the pages are built")
def test_a_full_disk_is_told_instead_of_pages(tmp_path, monkeypatch, full_disk, capsys):
    """The book does not fit, and the pages of before stay."""
    html = tmp_path / "book" / "_build" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("before")
    (tmp_path / "book" / "long.md").write_text("much " * 10_000)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(steps, "end_with_build", lambda: None)
    with full_disk(), pytest.raises(typer.Exit):
        steps.pages()
    told = (html.parent / "failures" / "pages.txt").read_text()
    assert told.startswith("building the pages: the disk of book/_build is full.")
    assert "pages FAILED" in capsys.readouterr().out
    assert (html / "index.html").read_text() == "before"
