"""Plug-ins: code outside this project that adds to its registries, and how results tell its state.

`rmutils --plugin my.py ...` and the variable `RMUTILS_PLUGINS` name files or modules. They are
imported together with `rmutils`, so that worker processes, notebooks and the jobs of a cluster,
which inherit the variable, know the same names. Installed packages name modules in entry points.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import os
import re
import secrets
import sys
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rmutils.core.errors import UserError

VARIABLE = "RMUTILS_PLUGINS"
"""Names files or modules, with `os.pathsep` between them."""
_loaded: dict[str, UserError | None] = {}
"""Plug-ins that have been imported, by name, or why they could not be."""


class Origin(NamedTuple):
    """Where something in a registry comes from.

    Attributes
    ----------
    module : str
    digest : str
        SHA-256 (hex) of the module's file, or of all Python files of its package.
    release : str
        Distribution and version, for code that is installed; else empty.
    """

    module: str
    digest: str
    release: str

    def __str__(self) -> str:
        return " ".join(filter(None, (self.release, f"sha256:{self.digest}")))


def load(*names: str) -> None:
    """Import the plug-ins of `RMUTILS_PLUGINS`, after adding these to it.

    Raises
    ------
    UserError
        There is no such file or module; it raises an error; it registers a name that exists.
    """
    before = os.environ.get(VARIABLE, "").split(os.pathsep)
    given = [str(Path(name).absolute()) if _is_file(name) else name for name in names]
    wanted = [*dict.fromkeys(filter(None, [*before, *given]))]
    if given:
        os.environ[VARIABLE] = os.pathsep.join(wanted)
    for name in wanted:
        if name not in _loaded:
            _loaded[name] = None  # first: it may look up names itself, and so come here again
            try:
                _import(name)
            except UserError as error:
                _loaded[name] = error
        if wrong := _loaded[name]:
            raise wrong


def _import(name: str) -> None:
    path = Path(name)
    try:
        if _is_file(name):
            _run(path)
        else:
            import_module(name)
    except UserError as error:
        raise UserError(f"the plug-in {name}: {error}") from error
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        if missing or isinstance(error, OSError) and not path.is_file():
            raise UserError(f"there is no plug-in {name}: give a .py file, or the name of a module "
                            "that Python finds.") from error
        calls = traceback.extract_tb(error.__traceback__)
        lines = [f" in line {call.lineno}" for call in calls if call.filename == name]
        raise UserError(f"the plug-in {name} cannot be imported: {type(error).__name__}"
                        f"{''.join(lines[-1:])}: {error}.") from error


def _is_file(name: str) -> bool:
    return name.endswith(".py") or os.sep in name or Path(name).is_file()


def _run(path: Path) -> None:
    """Import a file, once for each content, under a name by which other processes find it, too."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = f"plugin_{re.sub(r'[^0-9A-Za-z]', '_', path.stem)}_{digest[:8]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError("its name must end in .py.")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def options() -> list[str]:
    """Return the words by which a command line names the plug-ins that are loaded."""
    return [word for name in _loaded
            for word in ("--plugin", os.path.relpath(name) if _is_file(name) else name)]


def registering() -> Origin | None:
    """Return the code outside this project that is adding to a registry; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] != "rmutils":
            return _origin(module, frame.f_code.co_filename)
        if frame.f_code.co_name == "<module>":
            return None  # a module of this project, which is just being imported
        frame = frame.f_back
    return None


def import_all(modules: list[str]) -> None:
    """Import modules, so that this process knows the names that they register. One that is not
    found has registered nothing that matters here, or the lookup of its names says so."""
    for module in modules:
        with suppress(ModuleNotFoundError):
            import_module(module)


def _origin(module: str, file: str) -> Origin:
    top = module.partition(".")[0]
    package = sys.modules.get(top)
    if package is not None and getattr(package, "__path__", None) and package.__file__:
        return Origin(module, _package_digest(package.__file__), _release(top))
    if Path(file).is_file():
        return Origin(module, hashlib.sha256(Path(file).read_bytes()).hexdigest(), _release(top))
    if lines := linecache.getlines(file):  # a notebook's cell
        return Origin(module, hashlib.sha256("".join(lines).encode()).hexdigest(), "")
    return Origin(module, _NO_SOURCE, "")


_NO_SOURCE = secrets.token_hex(32)
"""Stands for code that nobody can read again (`python -c`): its results are not found later."""


@cache
def _package_digest(file: str) -> str:
    total = hashlib.sha256()
    for path in sorted(Path(file).parent.rglob("*.py")):
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


@cache
def _release(top: str) -> str:
    """Distribution and version of a package that names itself in entry points of this project."""
    for distribution in distributions():
        for point in distribution.entry_points:
            if point.group.startswith("rmutils.") and point.module.partition(".")[0] == top:
                return f"{distribution.name} {distribution.version}"
    return ""
