"""The page on reliability says what the tests have written down, which are there."""

import ast
import json

import yaml

from benchmarks.mutation import MODULES, REASONS, source_of
from rmutils.book.site.pages import FAULTS
from rmutils.book.site.pages import generated as page
from rmutils.core import paths

KINDS = {
    "kill -9", "full disk", "read-only cache", "flipped byte", "two at once", "server",
    "out of memory", "clock set back", "NaN in a score file", "parameter", "../ in a name",
    "archive", "pickle or code in a model folder", "token in the environment", "foreign file",
    "foreign text"}


def test_the_shipped_mutation_run_is_on_the_page_and_about_modules_that_are_there():
    text = page.mutation(paths.BOOK)
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
