"""The wheel, as somebody has it who never saw the clone; the library without the book."""

import ast
import os
import pkgutil
import re
import subprocess
import sys
import zipfile

import pytest

from rmutils import load_tables
from rmutils.book import MOVED
from rmutils.core import environment, paths
from rmutils.core.paths import DATA

BUILD = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Runs `rmutils` from the wheel, in an empty home."""
    folder = tmp_path_factory.mktemp("wheel")
    source, site = folder / "source", folder / "site"
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "LICENSE-text", "data",
                 "rmutils"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).symlink_to(paths.ROOT / name)
    subprocess.run([sys.executable, "-c", BUILD, folder], cwd=source, check=True,
                   capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.stat().st_size < 25e6
    zipfile.ZipFile(wheel).extractall(site)

    def call(*words: str, how: str = "-m") -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-P", how, *words], text=True, env={
            **os.environ, "PYTHONPATH": str(site), "RMUTILS_CACHE": str(folder / "cache")},
            cwd=folder, capture_output=True)

    call.site = site
    return call


ALONE = """
import sys
from rmutils.evaluation.helmet import EvaluateConfig
print(EvaluateConfig.model_validate({"variant": {"kind": "extended"}}).variant.kind)
import rmutils
for name in rmutils.__all__:
    getattr(rmutils, name)
import rmutils.cli.method, rmutils.cli.models, rmutils.paper, rmutils.evaluation.teaching_card
print([name for name in sys.modules if name.startswith("rmutils.book")])
print(rmutils.load_model("tiny-llama").shape, len(rmutils.load_tables()))
"""


def test_the_package_alone_has_models_and_tables_and_loads_no_module_of_the_book(installed):
    """And knows all variants of attention from the start."""
    done = installed(ALONE, how="-c")
    assert done.stdout.splitlines() == [
        "extended", "[]", f"(4, 16) {len(load_tables())}"], done.stderr


@pytest.mark.parametrize("command", ["doctor", "claims", "study"])
def test_what_needs_the_clone_says_so(installed, command):
    done = installed("rmutils", command)
    assert done.returncode == 2 and "works in a clone of the book" in done.stderr
    assert "Traceback" not in done.stderr


def test_damage_names_a_command_that_helps_there(installed):
    table = installed.site / "rmutils/data/paper/tables.csv"
    table.write_text(table.read_text() + "\n")
    told = installed("rmutils", "paper", "tables").stderr
    assert "not as it was shipped" in told and "pip install" in told and "git" not in told


def test_no_module_needs_what_windows_lacks():
    """At its import; what is asked for within a function comes with words of its own."""
    for path in (paths.ROOT / "rmutils").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = {a.name for a in getattr(node, "names", [])} | {getattr(node, "module", "")}
            assert not {"fcntl", "geteuid", "grp", "pwd", "resource", "termios"} & names, path


def test_threads_are_as_many_as_cores_are_free(monkeypatch):
    for busy, threads in ((0, "8"), (40, "5"), (100, "1")):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(environment.psutil, "cpu_count", lambda: 8)
        monkeypatch.setattr(environment.psutil, "cpu_percent", lambda seconds, busy=busy: busy)
        environment.share_cores()
        assert os.environ["OMP_NUM_THREADS"] == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    environment.share_cores()
    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_what_plans_name_is_found():
    named = {name for plan in (DATA / "plans").glob("*.yml")
             for name in re.findall(r"\brmutils(?:\.\w+)+", plan.read_text(encoding="utf-8"))}
    for name in named:
        for old, new in MOVED.items():
            name = name.replace(old, new)
        assert pkgutil.resolve_name(name), name
    assert all(any(name.startswith(old) for name in named) for old in MOVED), "nobody needs it"
