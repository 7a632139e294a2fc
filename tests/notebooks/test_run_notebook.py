"""Running a notebook for real, with the kernel of this interpreter."""

import ctypes
import os
import re
import sys
import traceback
from pathlib import Path

import nbformat
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core.errors import UserError
from rmutils.book.site import notebooks
from rmutils.book.site.notebooks import NotebookFailed, ThisPython, run_notebook, write_page
from tests.notebooks.test_parameters import CELL, write


def text_of(notebook) -> str:
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


def test_executed_copy_has_the_results_and_its_own_record(tmp_path, monkeypatch):
    """Another `python3` kernel that the reader registered is not used, and bars without widgets are
    no warning."""
    (tmp_path / "kernels" / "python3").mkdir(parents=True)
    (tmp_path / "kernels" / "python3" / "kernel.json").write_text(
        '{"argv": ["false"], "display_name": "wrong", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    source = write(tmp_path / "nb.ipynb", CELL, "import os, sys, rmutils, tqdm.auto",
                   "print(sys.executable, os.getcwd(), tau, lengths)")
    before = source.read_bytes()
    run_notebook(source, tmp_path / "out" / "nb.ipynb", {"lengths": "1,2"})
    executed = nbformat.read(tmp_path / "out" / "nb.ipynb", as_version=4)
    assert text_of(executed) == f"{sys.executable} {tmp_path} 0.1 [1, 2]\n"
    record = executed.metadata["rmutils"]
    assert record["parameters"]["lengths"] == [1, 2] and record["parameters"]["tau"] == 0.1
    assert record["changed"] == ["lengths"] and record["seconds"] >= 0
    assert str(tmp_path) not in str(executed.metadata)
    assert source.read_bytes() == before
    assert [p.name for p in (tmp_path / "out").glob("*.ipynb")] == ["nb.ipynb"]


@pytest.mark.parametrize(("code", "told"), [
    ("raise ValueError('no head above tau')",
     " (`raise ValueError('no head above tau')`): ValueError: no head above tau\n"),
    ("import os; os._exit(1)", ": the kernel died"),
])
def test_raising_cell_is_named_and_nothing_is_taken_for_whole(tmp_path, code, told):
    source = write(tmp_path / "nb.ipynb", CELL, "first = 1", f"# a comment\n{code}", "print('no')")
    with pytest.raises(NotebookFailed) as error:
        run_notebook(source, tmp_path / "out.ipynb", {"tau": 0.2})
    assert str(error.value).startswith(f"nb: cell 4{told}")
    assert not (tmp_path / "out.ipynb").exists()
    kept = str(error.value).splitlines()[-1].split(": ")[1]
    assert "no" not in text_of(nbformat.read(Path(kept), as_version=4))


@pytest.mark.parametrize(("silent", "command"), [(1, ["false"]), (2, ["sleep", "60"])])
def test_a_kernel_that_never_answers_is_started_once_more(tmp_path, monkeypatch, silent, command):
    """The first process ends at once; or the first two only sleep."""
    commands = iter([command] * silent)
    whole = ThisPython.format_kernel_cmd
    monkeypatch.setattr(ThisPython, "format_kernel_cmd",
                        lambda self, *a, **k: next(commands, None) or whole(self, *a, **k))
    source = write(tmp_path / "nb.ipynb", CELL, "print('ran')")
    if silent == 1:
        assert "ran" in text_of(run_notebook(source, tmp_path / "out.ipynb", {}))
    else:
        monkeypatch.setattr(notebooks, "START_SECONDS", 1)
        monkeypatch.setattr(ThisPython, "shutdown_wait_time", 0.1)  # until it is killed
        with pytest.raises(NotebookFailed, match="no kernel answers .*make doctor"):
            run_notebook(source, tmp_path / "out.ipynb", {})


@pytest.mark.fault("full disk", "while a notebook runs")
def test_a_full_disk_is_told(tmp_path, full_disk):
    """The first cell's output fits, the second's does not."""
    source = write(tmp_path / "nb.ipynb", CELL, "print('a' * 5_000)", "print('b' * 50_000)")
    told = r"running nb: the disk of .* is full.*--output ~/out.ipynb"
    with full_disk(), pytest.raises(UserError, match=told):
        run_notebook(source, tmp_path / "out.ipynb", {})
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.fault("read-only cache", "a place for a notebook that cannot be written")
def test_place_that_cannot_be_written_is_told(tmp_path):
    source = write(tmp_path / "nb.ipynb", CELL)
    with pytest.raises(UserError, match=r"nb.ipynb cannot be written.*rmutils run nb --output ~/a"):
        run_notebook(source, source / "a.ipynb", {})
    (tmp_path / "runs/.partial/nb.ipynb").mkdir(parents=True)  # root may write where others may not
    with pytest.raises(UserError, match=r"runs cannot be written.*rmutils run nb --output ~/nb"):
        run_notebook(source, tmp_path / "runs/nb.ipynb", {})


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are made as on Linux")
@pytest.mark.fault("read-only cache", "a project that may only be read")
def test_a_run_in_a_project_that_may_only_be_read(tmp_path):
    """A mount of its own, which root cannot write to either. The copy can go elsewhere."""
    project = tmp_path / "project"
    project.mkdir()
    source = write(project / "nb.ipynb", CELL, "print('ran')")
    child = os.fork()
    if not child:
        status = 1
        try:
            if may_only_read(project):
                with pytest.raises(UserError, match="cannot be written.*--output ~/nb.ipynb"):
                    run_notebook(source, project / "book/runs/mine/nb.ipynb", {})
                done = run_notebook(source, tmp_path / "out.ipynb", {})
                status = "ran" not in text_of(done)
            else:
                status = 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 2:
        pytest.skip("this system allows no namespaces")
    assert status == 0 and [*project.iterdir()] == [source]


def may_only_read(folder):
    """Make a folder read-only for this process; False if the system does not allow that."""
    libc, place = ctypes.CDLL(None), os.fsencode(folder)
    users, mounts, bind, remount, read_only = 0x10000000, 0x20000, 4096, 32, 1
    return libc.unshare(users | mounts) == 0 == libc.mount(
        place, place, None, bind, None) == libc.mount(
        None, place, None, bind | remount | read_only, None)


@pytest.mark.fault("two at once", "runs of a notebook under one name")
def test_the_second_of_two_runs_of_one_name_is_told(tmp_path):
    source, partial = write(tmp_path / "nb.ipynb", CELL), tmp_path / ".partial"
    partial.mkdir()
    with FileLock(partial / "out.ipynb.lock"), pytest.raises(
            UserError, match="another process is making .*out.ipynb.*--name"):
        run_notebook(source, tmp_path / "out.ipynb", {})
    (tmp_path / "closed" / ".partial" / "out.ipynb.lock").mkdir(parents=True)
    with pytest.raises(UserError, match="closed cannot be written .*--output ~/out.ipynb"):
        run_notebook(source, tmp_path / "closed" / "out.ipynb", {})
    assert not (tmp_path / "out.ipynb").exists()


def test_command_line(tmp_path):
    source = write(tmp_path / "nb.ipynb", CELL, "print(tau + 1, lengths, '<b>')", (
        "from IPython.display import HTML, Markdown\n"
        "display(HTML('<table></table>'), Markdown('It *is*, see {ref}`there`'))"))
    call = CliRunner().invoke
    assert "prompt lengths # in tokens" in call(app, ["run", str(source), "--list"]).output
    done = call(app, ["run", str(source), "-p", "tau", "-1", "-p", "lengths", "7", "--output",
                      str(tmp_path / "out.ipynb")])
    assert done.exit_code == 0, done.output
    assert "0.0 [7]" in text_of(nbformat.read(tmp_path / "out.ipynb", as_version=4))
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert str(tmp_path / "out.html") in done.output.replace("\n", "")
    assert "0.0 [7] &lt;b&gt;" in page and "<table></table>" in page
    assert "It <em>is</em>, see <code>there</code>" in page
    assert "tau = -1.0, lengths = [7]" in page or "lengths = [7], tau = -1.0" in page
    write(source, CELL, "1 / 0")
    failed = call(app, ["run", str(source), "--output", str(tmp_path / "out2.ipynb")])
    assert failed.exit_code == 1 and "cell 3" in failed.output and "ZeroDivision" in failed.output


@pytest.mark.parametrize("words", [
    ["no_such_notebook"], ["-p", "tau"], ["-p", "tau", "1", "2"], ["--tau", "x", "1"],
    ["-p", "tau", "1", "-p", "tau", "2"], ["-p", "tau", "high"],
])
def test_bad_command_line_exits_with_2(tmp_path, words):
    source = write(tmp_path / "nb.ipynb", CELL)
    first = [] if words == ["no_such_notebook"] else [str(source)]
    result = CliRunner().invoke(app, ["run", *first, *words])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output


def test_page_of_a_run_has_titles_of_exercises_and_no_solutions(tmp_path):
    notebook = nbformat.v4.new_notebook(metadata={"rmutils": {"changed": [], "parameters": {}}})
    notebook.cells = [nbformat.v4.new_markdown_cell(
        "(top)=\n# Heads\n\n:::{exercise} Easy ★\n:label: a\n\nDo it.\n:::\n\n"
        ":::{solution} a\n:class: dropdown\n\nSo.\n:::\n\n## Next")]
    nbformat.write(notebook, tmp_path / "a.ipynb")
    page = write_page(tmp_path / "a.ipynb").read_text(encoding="utf-8")
    assert re.findall(r"<(h\d|p)>([^<]*)", page.partition("</p>")[2]) == [
        ("h1", "Heads"), ("h3", "Easy ★"), ("p", "Do it."), ("h2", "Next")]
