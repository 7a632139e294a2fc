"""What a build runs again, and what is left when it is stopped or fails."""

import os
import shutil
import subprocess
import time
from types import SimpleNamespace

import nbformat
import pytest
import typer

from rmutils.core.errors import UserError
from rmutils.site import steps
from rmutils.site.dependencies import chapters
from rmutils.site.steps import COMPLETE
from tests.clock import PATIENCE, least, until
from tests.faults.conftest import kill, ran, read_until


@pytest.mark.fault("clock set back", "results of a build are of the future")
def test_only_what_changed_runs_again(built):
    assert "one" in built.page("chapters/first").read_text()

    def idle() -> float:
        started = time.monotonic()
        status, output = built.build()
        assert status == 0 and "is up to date" in output and not ran(output), output
        return time.monotonic() - started

    assert least(idle, 30) < 30

    for file in built.root.rglob("*"):
        if "_build" not in file.parts and ".snakemake" not in file.parts:
            file.touch()
    index = built.root / "book" / "index.md"
    before = index.read_text()
    index.write_text(before + "\nMore words.\n")
    assert built.would_run() == {"pages"}, "touched files have not changed"
    index.write_text(before)

    built.write("second", "print('zwei')")
    assert built.would_run() == {"second", "pages"}

    built.write("second", "print('size', size)")
    (built.root / "notebooks" / "profiles.yaml").write_text("embedded: {second: {size: 2}}\n")
    (built.root / "data" / "words.txt").write_text("two\n")
    for made in (*built.root.glob("book/chapters/*.ipynb"), built.root / COMPLETE):
        os.utime(made, (time.time() + 9e5,) * 2)
    status, output = built.build()
    assert status == 0 and ran(output) == {"second", "third", "pages"}, output
    assert "size 2" in built.page("chapters/second").read_text()
    second = nbformat.read(built.chapter("second"), as_version=4)
    assert second.metadata["rmutils"]["parameters"] == {"size": 2}


def test_a_step_says_each_line_in_one_piece(monkeypatch):
    """Also where output is not buffered: of two steps at once, lines must not run together."""
    written = []
    monkeypatch.setattr(steps.sys, "stdout", SimpleNamespace(
        write=written.append, flush=lambda: None))
    steps.say("one done in 0:01")
    assert written == ["  one done in 0:01\n"]


def test_raising_notebook_is_named_and_the_others_results_are_kept(project):
    project.write("second", "x = 1", "1 / 0")
    for expected in ({"first"}, set()):
        status, output = project.build()
        assert status == 1 and ran(output) == expected
        assert "second: cell 4 (`1 / 0`): ZeroDivisionError: division by zero" in output
        assert "Snakemake" not in output and "Traceback" not in output
    assert project.chapter("first").exists() and not project.chapter("second").exists()
    project.write("second", "1 / 1")
    status, output = project.build()
    assert status == 0 and ran(output) == {"second", "pages"}


def test_page_with_a_warning_fails_every_time_and_the_old_pages_stay(built):
    (built.root / "book" / "index.md").write_text("# Index\n\n{ref}`nowhere`\n")
    for _ in range(2):
        status, output = built.build()
        assert status == 1 and "index.md" in output and "nowhere" in output
        assert built.page("index").exists()


def test_runs_with_other_parameters_are_no_pages(project):
    """Neither a whole run nor one that failed half-way gets in the way of the book."""
    for run in ("runs/first/mine.ipynb", "runs/first/.partial/failed.ipynb"):
        copy = project.root / "book" / run
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project.root / "notebooks" / "first.ipynb", copy)
    status, output = project.build()
    assert status == 0, output


def test_profiles_that_are_none(project):
    bomb = "".join(f"x{i}: &a{i} {{y: [{', '.join([f'*a{i - 1}'] * 9) if i else 1}]}}\n"
                   for i in range(30))
    for text in ("a: [", "[1]", "smoke: 1", "smoke: {first: [1]}", "? {a: 1}\n: 2", "[" * 9999,
                 bomb, "\x00"):
        (project.root / "notebooks" / "profiles.yaml").write_text(text)
        with pytest.raises(UserError, match="profiles.yaml: expected profile: notebook"):
            chapters(project.root, "smoke")


@pytest.mark.parametrize("profiles", [
    "embedded: {second: {sise: 2}}", "embedded: {second: {size: many}}",
    "embedded: {third: {size: 2}}", "smoke: {}",
])
def test_wrong_profile_starts_nothing(project, profiles):
    (project.root / "notebooks" / "profiles.yaml").write_text(profiles)
    status, output = project.build(*(["--profile", "paper"] if "smoke" in profiles else []))
    assert status == 2 and "Traceback" not in output and not ran(output)
    assert not project.chapter("first").exists()


def test_data_that_is_not_there_is_named(project):
    project.write("first", "pass", data=["data/*.parquet"])
    status, output = project.build()
    assert status == 2 and "first.ipynb" in output and "data/*.parquet" in output


def processes(text: str) -> str:
    return subprocess.run(["pgrep", "-af", text], capture_output=True, text=True).stdout


@pytest.mark.fault("kill -9", "in a build of the book: all of it, Snakemake, or what started it")
@pytest.mark.parametrize("victim", ["everything", "build", "snakemake"])
def test_kill_in_the_middle_loses_nothing(project, victim):
    """Whichever process dies, its kernels end, and the next build goes on where it was."""
    marker = project.root / "pid"
    waiting = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid()))"
    project.write("second", waiting, "time.sleep(600)")
    build = project.start()
    read_until(build, "first done")
    until(lambda: marker.exists() and marker.read_text())
    time.sleep(2)  # until Snakemake, too, has noticed that the first is done
    if victim == "everything":
        os.killpg(build.pid, 9)
    elif victim == "build":
        kill(build.pid)
    else:
        kill(int(processes(f"snakemake.*{project.root}").split()[0]))
    build.communicate(timeout=PATIENCE)
    until(lambda: f"{marker.read_text()} " not in processes("ipykernel_launcher"))
    assert project.chapter("first").exists() and not project.chapter("second").exists()
    project.write("second", "print('two')")
    status, output = project.build()
    assert status == 0 and ran(output) == {"second", "pages"}, output
    assert "lock" not in output.lower()


@pytest.mark.fault("two at once", "builds of the book in one clone")
def test_second_build_waits_for_the_first(project):
    project.write("second", "import time; time.sleep(3)")
    first = project.start()
    read_until(first, "second ...")
    second = project.start()
    assert "waiting for it" in read_until(second, "waiting")
    assert "pages done" in first.communicate(timeout=PATIENCE)[0]
    output = second.communicate(timeout=PATIENCE)[0]
    assert second.returncode == 0 and "is up to date" in output, output


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
