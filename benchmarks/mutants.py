"""Mutants of modules, each tried by those tests that run the function it changes.

`benchmarks.mutation` starts this in a process of its own. All happens in a copy of the project with
an empty cache, since a mutant may write or delete anything. One process collects the tests; each
mutant is a fork of it in which functions get the changed code. Where that is not enough (a
constant, a field of a class, a default), the fork imports the changed module afresh. The operators
are those of mutmut. What stays as it is, because it decides no number, is listed in `counts`.
"""

from __future__ import annotations

import ast
import difflib
import gc
import importlib.abc
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.reports import TestReport
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "_build", "__pycache__", ".*_cache", ".hypothesis", "shared", ".snakemake")
GRACE, PATIENCE = 20, 20
"""Processor seconds that a mutant may take beside five times those of its tests; and how many times
as long it may take by the clock, on a busy machine."""
MEMORY = 24 * 2**30
"""Bytes of addresses that a mutant may take: one that multiplies a size gets an error."""
OPTIONS = ["-qq", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
AFRESH = 99
"""Status of a fork in which functions could not be given their new code."""
ALIASES = ("Callable", "Mapping", "Sequence", "dict", "list", "tuple")
UNCOUNTED_ARGUMENTS = ("strict", "validate", "linewidth", "lw", "edgecolor", "ec", "cmap")
PROSE = re.compile(r"[^\W\d_]{2}[,;:]? [^\W\d_]{2}")
Span = tuple[int, int, int]


@dataclass(frozen=True)
class Mutant:
    """A module's source with one change."""

    line: int
    source: str

    def change(self, original: str) -> str:
        """Return the changed lines, before and after."""
        old, new = original.splitlines(), self.source.splitlines()
        changed = [op for op in difflib.SequenceMatcher(None, old, new, False).get_opcodes()
                   if op[0] != "equal"]
        first, last = changed[0], changed[-1]
        sides = old[first[1]:last[2]], new[first[3]:last[4]]
        return " → ".join(" ".join(" ".join(side).split()) for side in sides)


def mutants(source: str) -> tuple[int, Callable[[int], Mutant | None]]:
    """Return how many mutants a module has, and what makes the n-th, if it is another program."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider
    from mutmut.mutation.mutators import mutation_operators

    found: list[tuple[Any, Any]] = []

    class Visitor(cst.CSTVisitor):
        METADATA_DEPENDENCIES = (PositionProvider,)

        def on_visit(self, node: cst.CSTNode) -> bool:
            if not counts(node):
                return False
            bare = node.with_changes(args=[*filter(counts, node.args)]) if isinstance(
                node, cst.Call) else node
            others = [other for kind, operator in mutation_operators if isinstance(bare, kind)
                      for other in operator(bare)]
            if others and (place := self.get_metadata(PositionProvider, node, None)):
                found.extend((place, other) for other in others)
            return True

    tree = cst.parse_module(source)
    MetadataWrapper(tree).visit(Visitor())
    lines, same = source.splitlines(keepends=True), ast.dump(ast.parse(source))

    def make(number: int) -> Mutant | None:
        place, other = found[number]
        start, end = place.start, place.end
        changed = "".join([
            *lines[:start.line - 1], lines[start.line - 1][:start.column],
            tree.code_for_node(other).strip(),
            lines[end.line - 1][end.column:], *lines[end.line:]])
        try:
            compile(changed, "mutant", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        return None if ast.dump(ast.parse(changed)) == same else Mutant(start.line, changed)

    return len(found), make


def counts(node: Any) -> bool:
    """Return False for what decides no number, so that its changes are not tried.

    - Imports, annotations, type variables and aliases, and decorators.
    - What people read: docstrings, what an error says once it is raised, the wording of a text
      with a space between two words, and the arguments of `progress_bar`.
    - `strict=` and `validate=`, which check what is so by the way it is made; how wide lines are
      drawn, and in which colours.

    A text that is missing, or values that are set into it, do count.
    """
    import libcst as cst

    if isinstance(node, cst.Arg):
        return not (node.keyword and node.keyword.value in UNCOUNTED_ARGUMENTS)
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Subscript):
        return getattr(node.value.value, "value", None) not in ALIASES
    if isinstance(node, cst.Call):
        return getattr(node.func, "value", None) not in ("TypeVar", "progress_bar")
    if isinstance(node, cst.Expr):
        return not isinstance(node.value, cst.BaseString)
    if isinstance(node, cst.SimpleString):
        return not PROSE.search(node.value)
    return not isinstance(
        node, cst.Import | cst.ImportFrom | cst.Annotation | cst.Decorator | cst.Raise)


def functions(source: str) -> list[Span]:
    """Return the first and the last lines of functions and methods, and that where the body begins.
    """
    def within(body: list[ast.stmt]) -> Iterator[Span]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield first, node.end_lineno, node.body[0].lineno
            elif isinstance(node, ast.ClassDef):
                yield from within(node.body)

    return [*within(ast.parse(source).body)]


def codes(source: str, path: str) -> list[CodeType]:
    """Return the code of a module and of all within it, in the order of the source."""
    found = [compile(source, path, "exec", dont_inherit=True)]
    for one in found:
        found += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    return found


class Changed(importlib.abc.MetaPathFinder):
    """Finds one module with another source."""

    def __init__(self, name: str, path: Path, source: str):
        self.name, self.path, self.source = name, str(path), source

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        if name != self.name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=self.path)

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__file__ = self.path
        exec(compile(self.source, self.path, "exec", dont_inherit=True), module.__dict__)


def forked(work: Callable[[], int], seconds: float) -> int | None:
    """Run in a fork with nothing to say; return its status, or None if it ran out of time."""
    pid = os.fork()
    if not pid:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for one in range(3):
            os.dup2(quiet, one)
        spent = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(spent + seconds) + 1,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = 3
        try:
            status = work()
        finally:
            os._exit(status)
    end, done, status = time.monotonic() + PATIENCE * seconds, 0, 0
    while not done and time.monotonic() < end:
        time.sleep(0.02)
        done, status = os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # with what it started
    if not done:
        os.waitpid(pid, 0)
    out_of_time = not done or os.WIFSIGNALED(status) and os.WTERMSIG(status) in (
        signal.SIGXCPU, signal.SIGKILL)
    return None if out_of_time else status


class Trials:
    """A plug-in of pytest that tries mutants instead of running the tests; see `tried`."""

    def __init__(self, modules: dict[str, list[str]], most: int, seed: int, slowest: float):
        self.modules, self.most, self.seed, self.slowest = modules, most, seed, slowest

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants of one module after the other."""
        every = living_functions()
        gc.freeze()  # a collection in a fork would copy all memory
        for module, files in self.modules.items():
            items = [item for item in session.items if item.nodeid.partition("::")[0] in files]
            row = Trial(module, items, every, self.slowest).row(self.most, self.seed)
            os.write(self.out, f"{json.dumps({'module': module, **row})}\n".encode())
        return True


def run(item: pytest.Item, after: pytest.Item | None) -> list[TestReport]:
    """Run a test as pytest does, with warnings for errors where the test wants that."""
    with catch_warnings_for_item(item.config, item.ihook, "runtest", item):
        return runtestprotocol(item, nextitem=after, log=False)


def living_functions() -> list[FunctionType]:
    """Return all functions that are there, also those that `gc.freeze` hides."""
    gc.unfreeze()
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is FunctionType]


class Trial:
    """Tries the mutants of one module."""

    def __init__(self, module: str, items: list[pytest.Item], every: list[FunctionType],
                 slowest: float):
        self.module, self.path = module, Path(module.replace(".", "/") + ".py").resolve()
        self.source = self.path.read_text(encoding="utf-8")
        self.spans, self.old = functions(self.source), codes(self.source, str(self.path))
        self.known = [one for one in every if one.__code__.co_filename == str(self.path)]
        assert self.known, "no function could get changed code, and all mutants would survive"
        self.tests = self.first_run(items, slowest)
        self.items = sorted((item for item in items if item.nodeid in self.tests),
                            key=lambda item: self.tests[item.nodeid]["seconds"])

    def row(self, most: int, seed: int) -> dict[str, Any]:
        """Try a random sample; return what came out."""
        count, make = mutants(self.source)
        order, survivors, statuses = list(range(count)), [], []
        random.Random(f"{seed} {self.module}").shuffle(order)
        for mutant in filter(None, map(make, order)):
            if len(statuses) == most:
                break
            inside = [span for span in self.spans if span[0] <= mutant.line <= span[1]]
            items = [item for item in self.items
                     if not inside or inside[0][0] in self.tests[item.nodeid]["functions"]]
            swap = bool(inside) and mutant.line >= inside[0][2]
            if not swap and not self.works_afresh:
                continue  # the tests would fail whatever the change
            statuses.append(self.under(mutant, items, swap))
            if statuses[-1] == 0:
                survivors.append({"line": mutant.line, "change": mutant.change(self.source),
                                  "tests": len(items)})
        survivors.sort(key=lambda one: (one["line"], one["change"]))
        return {"mutants": count, "tests": len(self.tests), "tried": len(statuses),
                "killed": len(statuses) - len(survivors), "out_of_time": statuses.count(None),
                "survivors": survivors}

    def first_run(self, items: list[pytest.Item], slowest: float) -> dict[str, dict]:
        """Processor seconds of each test that passes, and the functions that it enters."""
        record, found = Path("first_run.json").resolve(), {}

        def work() -> int:
            for item, after in pairwise([*items, None]):
                entered: set[int] = set()

                def enter(frame: Any, event: str, _: object, entered: set[int] = entered) -> None:
                    if event == "call" and frame.f_code.co_filename == str(self.path):
                        line = frame.f_code.co_firstlineno
                        entered |= {span[0] for span in self.spans if span[0] <= line <= span[1]}

                started = time.process_time()
                sys.setprofile(enter)
                reports = run(item, after)
                sys.setprofile(None)
                seconds = time.process_time() - started
                if all(one.passed for one in reports) and seconds <= slowest:
                    found[item.nodeid] = {"seconds": seconds, "functions": sorted(entered)}
            record.write_text(json.dumps(found), encoding="utf-8")
            return 0

        forked(work, 900)
        return json.loads(record.read_text(encoding="utf-8"))

    def under(self, mutant: Mutant, items: list[pytest.Item], swap: bool) -> int | None:
        """Return 0 if no test fails under a mutant, else another status; None: it does not end."""
        if not items:
            return 0
        limit = GRACE + 5 * sum(self.tests[item.nodeid]["seconds"] for item in items)
        status = forked(lambda: self.swapped(mutant, items), limit) if swap else AFRESH << 8
        if status is None or os.waitstatus_to_exitcode(status) != AFRESH:
            return status
        return self.works_afresh and forked(lambda: self.afresh(mutant, items), limit)

    @cached_property
    def works_afresh(self) -> bool:
        """False if the tests fail in a fork that imports the module as it is."""
        same = Mutant(1, self.source)
        return forked(lambda: self.afresh(same, self.items), 900) == 0

    def swapped(self, mutant: Mutant, items: list[pytest.Item]) -> int:
        """Give the functions that are there their new code, and run the tests."""
        new = codes(mutant.source, str(self.path))
        if len(new) != len(self.old):
            return AFRESH
        changed = {old: code for old, code in zip(self.old, new, strict=True) if old != code}
        for function in self.known:
            if code := changed.get(function.__code__):
                if len(code.co_freevars) != len(function.__code__.co_freevars):
                    return AFRESH
                function.__code__ = code
        return any(one.failed for item, after in pairwise([*items, None])
                   for one in run(item, after))

    def afresh(self, mutant: Mutant, items: list[pytest.Item]) -> int:
        """Import all of this project anew, with the changed module, and run the tests."""
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("rmutils", "tests"):
                del sys.modules[name]
        sys.meta_path.insert(0, Changed(self.module, self.path, mutant.source))
        return int(pytest.main([*OPTIONS, "-x", *(item.nodeid for item in items)]))


def tried(modules: dict[str, list[str]], **settings: Any) -> None:
    """Print a row about a random sample of each module's mutants, tried by the tests of its files.
    """
    trials = Trials(modules, **settings)
    trials.out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pytest.main([*OPTIONS, *sorted({file for files in modules.values() for file in files})],
                [trials])


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(root, Path(folder) / "project", ignore=LEFT_OUT, symlinks=True)
        os.chdir(Path(folder) / "project")
        sys.path[:] = [os.getcwd(), *(p for p in sys.path if Path(p or ".").resolve() != root)]
        os.environ |= {"RMUTILS_CACHE": f"{folder}/cache", "TMPDIR": folder, "OMP_NUM_THREADS": "1",
                       "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        tempfile.tempdir = folder
        tried(**asked)
