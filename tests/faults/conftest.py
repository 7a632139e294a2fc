"""A book of two tiny notebooks, built by the real Snakemake graph."""

import copy
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from rmutils.core import paths
from tests.clock import PATIENCE

DRY = """
import sys
from pathlib import Path
from rmutils.book.site.build import only_build, run_graph
root = Path(sys.argv[1])
with only_build(root) as lock:
    run_graph(root, lock, {"profile": "embedded"}, "--dry-run", "--quiet", "progress")
"""


class Project:
    """A project folder, with spaces in its name, and what one does to it."""

    def __init__(self, root: Path):
        self.root = root
        for folder in ("notebooks", "book", "data"):
            (root / folder).mkdir(parents=True)
        real = yaml.safe_load((paths.BOOK / "_config.yml").read_text(encoding="utf-8"))
        kept = {key: real[key] for key in ("only_build_toc_files", "exclude_patterns", "execute")}
        (root / "book" / "_config.yml").write_text(
            yaml.safe_dump({"title": "Test", "author": "Test", **kept}))
        (root / "book" / "_toc.yml").write_text(
            "format: jb-book\nroot: index\nchapters:\n"
            "- file: chapters/first\n- file: chapters/second\n")
        (root / "book" / "index.md").write_text("# Index\n\n{doc}`chapters/first`\n")
        (root / "data" / "numbers.csv").write_text("1,2\n")
        self.write("first", "print('one')", data=["data/*.csv"])
        self.write("second", "print('two')")

    def write(self, name: str, *code: str, data: list[str] | None = None) -> None:
        cells = [new_markdown_cell(f"# {name}"),
                 new_code_cell("size: int = 1  # of it", metadata={"tags": ["parameters"]}),
                 *map(new_code_cell, code)]
        for number, cell in enumerate(cells):
            cell.id = f"cell-{number}"
        nbformat.write(new_notebook(cells=cells, metadata={"rmutils": {"data": data or []}}),
                       self.root / "notebooks" / f"{name}.ipynb")

    def start(self, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-u", "-m", "rmutils.book.site.build",
                   "--project", str(self.root)]
        environment = {k: v for k, v in os.environ.items() if k != "RMUTILS_BUILD"}
        return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.STDOUT, env=environment, start_new_session=True)

    def build(self, *options: str) -> tuple[int, str]:
        process = self.start(*options)
        output = process.communicate(timeout=PATIENCE)[0]
        return process.returncode, output

    def would_run(self) -> set[str]:
        """The steps that Snakemake decides on, which are not done."""
        told = subprocess.run([sys.executable, "-c", DRY, str(self.root)], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        return set(re.findall(r"^rule (?:chapter_)?(\w+):", told.replace("rule book", "rule pages"),
                              re.MULTILINE))

    def copy(self, root: Path) -> "Project":
        """The same, with all that was built, elsewhere."""
        other = copy.copy(self)
        other.root = shutil.copytree(self.root, root)
        return other

    def chapter(self, name: str) -> Path:
        return self.root / "book" / "chapters" / f"{name}.ipynb"

    def page(self, name: str) -> Path:
        return self.root / "book" / "_build" / "html" / f"{name}.html"


def ran(output: str) -> set[str]:
    """The steps that a build finished."""
    return {line.split()[0] for line in output.splitlines() if " done in " in line}


def read_until(process: subprocess.Popen, text: str) -> str:
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came:\n{seen}")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "a book")
