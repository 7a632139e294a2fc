"""The page on reliability says what the tests have written down, which are there."""

import ast
import json

import pytest
import yaml

from benchmarks.mutation import MODULES, REASONS, source_of
from rmutils.book.site.pages import FAULTS
from rmutils.book.site.pages import generated as page
from rmutils.core import paths
from tests.faults import table

KINDS = {
    "kill -9", "full disk", "read-only cache", "flipped byte", "two at once", "server",
    "out of memory", "clock set back", "NaN in a score file", "parameter", "../ in a name",
    "archive", "pickle or code in a model folder", "token in the environment", "foreign file",
    "foreign text"}
MADE = {"environment": {"python": "3.11", "packages": {"torch": "2"}, "commit": "abc", "hardware":
                        "2 cores", "created": "2026-01-02T03:04:05"}, "command": "make test"}


def row(kind, what, test, tried, lost=0):
    return {"kind": kind, "what": what, "test": test, "tried": tried, "kept": tried - lost,
            "lost": lost, "seconds": 1.5}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A table of two runs."""
    for module, name in ((page, "FAULTS"), (table, "TABLE")):
        monkeypatch.setattr(module, name, tmp_path / "faults.json")
    first = [row("kill -9", "in a *write*", "tests/a.py::test_a", 1200),
             row("server", "hangs", "tests/b.py::test_b", 2, lost=1)]
    (tmp_path / "faults.json").write_text(json.dumps({"runs": [MADE | {"faults": first}]}))


def test_what_was_lost_is_said(written):
    assert page.in_all(paths.BOOK) == (
        "1,202 faults of 2 kinds were injected, by 2 tests; 1,201 were kept. "
        "**1 were lost:** server\\: hangs.")
    text = page.faults(paths.BOOK)
    assert r"| in a \*write\*<br>`a.py::test_a` | 1,200 | 1,200 | 0 |" in text
    assert text.index("<summary>Kill -9: 1,200 tried, 1,200 kept</summary>") < text.index(
        "<summary>Server: 2 tried, 1 kept, 1 LOST</summary>")
    assert "- 2 rows: `make test`, 2026-01-02, commit abc, 2 cores" in text


def test_a_line_stands_until_its_fault_is_tried_again(written, monkeypatch):
    monkeypatch.setattr(table, "environment", lambda: MADE["environment"])
    table.keep([row("server", "hangs", "tests/b.py::test_b", 3)])
    assert page.in_all(paths.BOOK).endswith("1,203 were kept. None was lost.")
    table.keep([row("server", "drops", "tests/b.py::test_b", 4)])
    assert page.in_all(paths.BOOK).endswith("1,207 were kept. None was lost.")
    assert [len(run["faults"]) for run in json.loads(page.FAULTS.read_text())["runs"]] == [1, 1, 1]


def test_the_page_says_what_the_mutation_run_found(tmp_path, monkeypatch):
    """15 of 20 changes were noticed at first; now one makes no difference and two are missed."""
    survivors = [{"line": 7, "change": f"a {n} → b", "tests": 3, "reason": reason}
                 for n, reason in enumerate(["A type alias.", None, None])]
    (tmp_path / "mutation.json").write_text(json.dumps(MADE | {
        "command": "python -m benchmarks mutation", "settings": {"most": 20}, "rows": [{
            "module": "rmutils.stats", "mutants": 801, "tests": 9, "tried": 20, "killed": 17,
            "first": 15, "out_of_time": 0, "survivors": survivors}]}))
    monkeypatch.setattr(page, "MUTATION", tmp_path / "mutation.json")
    text = page.mutation(paths.BOOK)
    assert "the tests noticed **75 %** of them (95 % interval 5" in text
    assert "15 of 20, and" in text and "although they make a difference: 2." in text
    assert "| `rmutils.stats` | 801 | 20 | 15 | 17 | 1 |" in text
    assert "line 7: a 0 → b. A type alias." in text
    assert text.count("No test notices it yet.") == 2


def test_the_shipped_mutation_run_is_on_the_page_and_about_modules_that_are_there():
    text = page.mutation(paths.BOOK)
    if not page.MUTATION.is_file():
        assert text.startswith("No run of this is stored yet")
        return
    found = json.loads(page.MUTATION.read_text(encoding="utf-8"))
    assert {row["module"] for row in found["rows"]} <= {f"rmutils.{name}" for name in MODULES}
    for row in found["rows"]:
        assert row["tried"] == row["killed"] + len(row["survivors"]) > 0 and row["tests"]
        assert f"| `{row['module']}` | {row['mutants']:,} | {row['tried']} |" in text
    for name, tests in MODULES.items():
        for file in (source_of(f"rmutils.{name}"), *(f"tests/{one}.py" for one in tests.split())):
            assert (paths.ROOT / file).is_file(), file
    known = {(row["module"], one["change"]) for row in found["rows"] for one in row["survivors"]}
    for module, changes in (yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}).items():
        assert not {(module, change) for change in changes} - known, "a reason for nothing"


def marks(file) -> dict[str, set[str]]:
    """Kinds of faults -> names of tests of a file that inject them."""
    found: dict[str, set[str]] = {}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for call in (c for d in function.decorator_list for c in ast.walk(d)):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.fault":
                found.setdefault(call.args[0].value, set()).add(function.name)
    return found


def test_tests_inject_all_kinds_and_the_table_names_tests_that_are_there():
    marked = {file.relative_to(paths.ROOT).as_posix(): marks(file)
              for file in (paths.ROOT / "tests").rglob("test_*.py")}
    assert {kind for kinds in marked.values() for kind in kinds} == KINDS
    for run in json.loads(FAULTS.read_text(encoding="utf-8"))["runs"]:
        for line in run["faults"]:
            file, _, name = line["test"].partition("::")
            assert name in marked[file][line["kind"]], line
            assert line["tried"] == line["kept"] + line["lost"] > 0
