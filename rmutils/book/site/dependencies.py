"""Dependencies of each chapter and of the pages, so that a build runs again only what changed."""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import yaml
from pydantic import TypeAdapter

from rmutils import HOMES
from rmutils.book.site import pages as listed
from rmutils.book.site import playground
from rmutils.book.site.gallery import files as finished_runs
from rmutils.book.site.parameters import check_parameters
from rmutils.core import paths
from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.files import YAML, parse_yaml, read_text, sha256

PACKAGE = paths.ROOT / "rmutils"
LOCK = paths.ROOT / "requirements.lock"
PAGES = ("rmutils.book.site.steps", "rmutils.book.site.pages")  # modules that build the pages

_QUOTED = re.compile(r"""["'](rmutils(?:\.\w+)+)["']""")
_WHOLE = re.compile(r"""package=["'](rmutils(?:\.\w+)+)["']""")  # of a registry: all its modules
_MAGIC = re.compile(r"^\s*[%!].*$", re.MULTILINE)


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book and all that its result depends on; paths relative to the project."""

    name: str
    notebook: Path
    parameters: dict[str, Any]
    inputs: list[str]

    @property
    def output(self) -> str:
        return f"book/chapters/{self.name}.ipynb"


def chapters(root: Path, profile: str) -> list[Chapter]:
    """Return all notebooks of a project with the parameters that a profile gives them."""
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    settings = _profile(root, profile)
    unknown = sorted(set(settings) - {n.stem for n in notebooks})
    if unknown:
        raise UserError(f"notebooks/profiles.yaml: profile {profile!r} names {', '.join(unknown)}, "
                        "but notebooks/ has no such notebook")
    outputs = [f"book/chapters/{n.stem}.ipynb" for n in notebooks]
    found = []
    for notebook, output in zip(notebooks, outputs, strict=True):
        parameters = check_parameters(notebook, settings.get(notebook.stem, {}))
        others = [o for o in outputs if o != output]
        inputs = [*sorted(_data(root, notebook, others)), *code(imported_by(notebook)), str(LOCK)]
        found.append(Chapter(notebook.stem, notebook.relative_to(root), parameters, inputs))
    return found


def imported_by(notebook: Path) -> set[str]:
    """Return the modules of the package that the cells of a notebook import or name in quotes."""
    found: set[str] = set()
    for cell in _read(notebook)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "rmutils" in source:
            with suppress(SyntaxError):  # the run of the notebook says it better
                found.update(*map(_imported, ast.walk(ast.parse(_MAGIC.sub("", source)))))
            found |= set(_QUOTED.findall(source))
    return found & _graph().modules


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            promised = HOMES.get(alias.name) if node.module == "rmutils" else None
            yield promised or (inner if inner in _graph().modules else node.module)


def modules(names: Iterable[str]) -> set[str]:
    """Return all modules that run when some are imported, those included."""
    ran: set[str] = set()
    named: set[str] = set()
    waiting = [(name, True) for name in names]
    while waiting:
        module, by_name = waiting.pop()
        if module not in ran:
            ran.add(module)
            # Not "rmutils" itself by name: of that the package's own code wants the version only.
            waiting += [(m, m != "rmutils")
                        for m in _graph().find_modules_directly_imported_by(module)]
            if "." in module:
                waiting.append((module.rpartition(".")[0], False))
        if module not in named and (by_name or _file(module).name != "__init__.py"):
            named.add(module)
            waiting += [(m, True) for m in _named(module)]
    return ran


def code(names: Iterable[str]) -> list[str]:
    """Return the files of all modules that run when some are imported."""
    found = {_file(module) for module in modules(names)}
    data = {file for init in found if init.name == "__init__.py" for file in _data_of(init.parent)}
    return sorted(map(str, found | data))


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("rmutils", cache_dir=None, exclude_type_checking_imports=True)


@cache
def _named(module: str) -> set[str]:
    text = _file(module).read_text(encoding="utf-8")
    whole = {m for package in _WHOLE.findall(text) for m in _graph().find_children(package)}
    return (set(_QUOTED.findall(text)) | whole) & _graph().modules


@cache
def _file(module: str) -> Path:
    place = paths.ROOT / module.replace(".", "/")
    return alone if (alone := place.with_suffix(".py")).exists() else place / "__init__.py"


@cache
def _data_of(package: Path) -> list[Path]:
    """Files of a package that are no modules: settings, for instance."""
    inner = [p.parent for p in package.glob("*/**/__init__.py")]
    return [p for p in package.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")
            and not any(p.is_relative_to(folder) for folder in inner)]


def sources(root: Path) -> list[str]:
    """Return the files that the pages are made from besides the chapters."""
    book = root / "book"
    made = {"_build", "chapters", "runs", ".ipynb_checkpoints"}
    pages = [p.relative_to(root) for p in book.rglob("*")
             if p.is_file() and not made & set(p.relative_to(book).parts)]
    played = playground.inputs() if (book / playground.FOLDER).is_dir() else []
    runs = [p.relative_to(root) for p in finished_runs(root)]
    return [file for files in ([*pages, *runs], code(PAGES), [LOCK], played, listed.inputs())
            for file in sorted(map(str, files))]


def documentation() -> str:
    """Return one hash for what the reference may show of the modules of promised names."""
    homes = {PACKAGE.joinpath(*home.split(".")[1:]) for home in HOMES.values()}
    files = {file for home in homes
             for file in (home.glob("*.py") if home.is_dir() else [home.with_suffix(".py")])}
    return digest([[str(file.relative_to(PACKAGE)), *_shown(file.read_text(encoding="utf-8"))]
                   for file in sorted(files)])


def _shown(source: str) -> list[str]:
    lines = source.split("\n")
    waiting: list[ast.stmt] = list(ast.parse(source).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            waiting += node.body
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            begin = first.end_lineno if ast.get_docstring(node) is not None else first.lineno - 1
            lines[begin:node.end_lineno] = [""] * (node.end_lineno - begin)
    return [line for line in lines if line and not line.lstrip().startswith("#")]


def content(root: Path, files: Iterable[str]) -> str:
    """Return one hash for the content of files, but for those that other steps make."""
    return digest([[file, _hash(root / file)] for file in files
                   if not file.startswith("book/chapters/")])


_hash = cache(sha256)
PROFILES = TypeAdapter(dict[str, dict[str, dict[str, Any]] | None])
"""Profile -> notebook -> parameters."""


def _read(notebook: Path) -> dict[str, Any]:
    return json.loads(notebook.read_text(encoding="utf-8"))


def _profile(root: Path, profile: str) -> dict[str, dict]:
    file = root / "notebooks" / "profiles.yaml"
    try:
        text = read_text(file) if file.exists() else ""
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, YAML)):
            raise ValueError("aliases (*name) can stand for any number of values")
        profiles = PROFILES.validate_python(parse_yaml(text, file.name) or {})
    except (yaml.YAMLError, UserError, ValueError, RecursionError) as error:
        raise UserError(f"{file}: expected profile: notebook: parameter: value "
                        f"({error}).") from error
    if profile != "embedded" and profile not in profiles:
        raise UserError(f"no profile {profile!r}; there is embedded, {', '.join(profiles)}")
    return profiles.get(profile) or {}


def _data(root: Path, notebook: Path, outputs: list[str]) -> Iterator[str]:
    for pattern in _read(notebook)["metadata"].get("rmutils", {}).get("data", []):
        files = [str(p.relative_to(root)) for p in root.glob(pattern) if p.is_file()]
        files = [f for f in files if not f.startswith("book/chapters/")]
        files += [o for o in outputs if Path(o).match(pattern)]
        if not files:
            raise UserError(f"{notebook.name} says that it reads {pattern!r}, "
                            "but no file has such a name")
        yield from files
