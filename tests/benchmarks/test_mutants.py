"""Mutants are found in functions, imported in place of the module, and never hang the run."""

import gc
import importlib
import sys
import time

from benchmarks.mutants import Changed, Mutant, forked, functions, living_functions, run
from tests.clock import PATIENCE

pytest_plugins = "pytester"
SOURCE = """\
LIMIT = 3


@property
def above(x):
    return [y for y in x if y > LIMIT]


class Sum:
    def __init__(self, x):
        self.x = sum(x)
"""


def test_functions_with_their_decorators():
    assert functions(SOURCE) == [(4, 6, 6), (10, 11, 11)]


def test_a_change_is_shown_before_and_after():
    assert Mutant(1, SOURCE.replace("= 3", "= 4")).change(SOURCE) == "LIMIT = 3 → LIMIT = 4"


def test_the_changed_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "some_module.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [
        Changed("some_module", tmp_path / "some_module.py", SOURCE.replace("3", "4")),
        *sys.meta_path])
    try:
        assert importlib.import_module("some_module").LIMIT == 4
    finally:
        sys.modules.pop("some_module")


def test_functions_are_found_that_the_tests_have_frozen():
    gc.freeze()
    assert test_functions_with_their_decorators in living_functions()
    gc.freeze()


def test_a_mutant_that_hangs_is_killed_and_one_that_ends_tells_how():
    assert forked(lambda: time.sleep(PATIENCE) or 0, 0.1) is None
    assert forked(lambda: 0, PATIENCE) == 0 and forked(lambda: 1, PATIENCE) != 0
    assert forked(lambda: 1 / 0, PATIENCE) != 0


WARNING = """\
import warnings

import pytest


@pytest.mark.filterwarnings("error")
def test_warns():
    warnings.warn("a test that wants no warning")
"""


def test_warnings_are_errors_where_a_test_says_so(pytester):
    item = pytester.getitem(WARNING, "test_warns")
    assert [one.outcome for one in run(item, None)] == ["passed", "failed", "passed"]
