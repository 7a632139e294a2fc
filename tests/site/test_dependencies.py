"""What runs again after a change: chapters by the modules that they import, pages by those that
build them."""

import json
import re
import subprocess
import sys
from functools import cache

from rmutils.book.site import dependencies
from rmutils.book.site.dependencies import (
    PAGES,
    chapters,
    code,
    content,
    documentation,
    imported_by,
    modules,
    sources,
)
from rmutils.core import paths

IMPORTING = """
import json, sys
for name in json.loads(sys.argv[1]):
    __import__(name)
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "rmutils"]))
"""


@cache
def book() -> dict[str, list[str]]:
    """The files of each chapter, and of the pages."""
    files = {c.name: [str(c.notebook), *c.inputs] for c in chapters(paths.ROOT, "embedded")}
    return files | {"pages": sources(paths.ROOT)}


def touched_by(monkeypatch, edited: str) -> set[str]:
    """Chapters, or "pages", whose content changes where a module is edited."""
    before = {name: content(paths.ROOT, files) for name, files in book().items()}
    real = dependencies._hash
    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_hash", lambda file: "another" if file.match(
            f"rmutils/{edited}") else real(file))
        return {name for name in book() if content(paths.ROOT, book()[name]) != before[name]}


def test_a_module_reruns_the_chapters_that_import_it(monkeypatch):
    """One that nothing imports reruns nothing; commands and the build rerun no chapter."""
    assert touched_by(monkeypatch, "book/tools/doctor.py") == set()
    assert "01_preliminaries" in touched_by(monkeypatch, "heads/scores.py")
    alone = touched_by(monkeypatch, "book/chapters/olmo3_recipe/experiment.py")
    assert "14_olmo3_recipe" in alone and "01_preliminaries" not in alone
    for edited in ("commands/project.py", "site/build.py", "site/gallery.py"):
        assert touched_by(monkeypatch, f"book/{edited}") <= {"pages"}


def test_packages_and_imports_within_functions_count():
    found = modules(["rmutils.heads.detection"])
    assert {"rmutils", "rmutils.heads", "rmutils.models.known_models"} <= found
    assert "rmutils.book.site.pages.generated" in modules(PAGES), "imported by a function"


def test_modules_named_in_quotes_count_where_their_package_is_asked_for_something():
    assert "rmutils.heads.detection" in modules(["rmutils"])
    assert "rmutils.heads.detection" not in modules(["rmutils.core.paths"])


def test_settings_of_a_package_count():
    assert [f for f in code(["rmutils.training.compute_backend"]) if f.endswith("fsdp.yaml")]


def test_no_import_is_overlooked():
    """Against Python itself: what importing all that a chapter names loads."""
    named = {c.name: sorted(imported_by(paths.ROOT / c.notebook))
             for c in chapters(paths.ROOT, "embedded")}
    everything = sorted({name for names in named.values() for name in names})
    ran = subprocess.run([sys.executable, "-c", IMPORTING, json.dumps(everything)], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    loaded = set(json.loads(ran.splitlines()[-1]))
    assert len(loaded) > 50 and loaded <= modules(everything)


def test_a_registry_brings_the_package_that_it_imports_at_the_first_lookup():
    """Other registries hold what has been imported, which the graph knows."""
    found = 0
    for file in dependencies.PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for package in re.findall(r"Registry\([^)]*package=\"([\w.]+)\"", text):
            home = ".".join(file.relative_to(paths.ROOT).with_suffix("").parts)
            inner = (paths.ROOT / package.replace(".", "/")).glob("[!_]*.py")
            assert {f"{package}.{p.stem}" for p in inner} <= modules([home])
            found += 1
    assert found


def test_reference_is_built_again_for_docstrings_but_not_for_comments(tmp_path, monkeypatch):
    file = tmp_path / "one.py"
    monkeypatch.setattr(dependencies, "PACKAGE", tmp_path)
    monkeypatch.setattr(dependencies, "HOMES", {"A": "rmutils.one", "B": "rmutils.two"})
    (tmp_path / "two").mkdir()

    def told(text: str) -> str:
        file.write_text(text)
        return documentation()

    text = ('class A:\n    """Says."""\n\n    def f(self, x=1):\n        """Does."""\n'
            '        return x\n')
    before = told(text)
    assert told(text.replace("return x", "return 2 * x  # why")) == before
    assert told(f"# note\n{text}") == before
    for old, new in (("Does", "Did"), ("Says", "Said"), ("x=1", "x=2"), ("class A", "class B")):
        assert told(text.replace(old, new)) != before
    (tmp_path / "internal.py").write_text('"""No promised name is here."""\n')
    assert told(text) == before
    (tmp_path / "two" / "inner.py").write_text('"""A promised name may be here."""\n')
    assert told(text) != before


def test_builds_start_without_the_models_libraries():
    """Each step of a build is a process: with torch, it would take seconds to begin."""
    asked = ("import sys, rmutils.book.site.build, rmutils.book.site.steps; "
             "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", asked]).returncode == 0
