"""Open places: what the project offers by name, and plug-ins, which add to it."""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import multiprocessing
import os
import pkgutil
import re
import secrets
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import distributions, entry_points
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    GetCoreSchemaHandler,
    ValidationError,
)

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.validation import InnerError

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Named things of one kind; annotates fields that take a name, or one with that `kind`."""

    outside: ClassVar[set[str]] = set()
    """Modules outside this project that have added something, to any registry."""

    def __init__(self, what: str, group: str, package: str | None = None, also: str | None = None):
        self.what = what  # one of them, for messages
        self.group = group  # entry points of this name bring some of outside packages
        # What is imported when the registry is first looked at, and registers itself: all modules
        # of a package, and another one.
        self.package, self.also = package, also
        self._known: dict[str, T] = {}
        self._origins: dict[str, Origin] = {}
        self._loaded = False

    def add(self, name: str, thing: T) -> T:
        """Add one under a name. A notebook's cell that runs again replaces its own."""
        origin = _registering()
        if self._known.get(name, thing) is not thing:
            before = self._origins.get(name)
            if before and origin and before.digest == origin.digest and (
                    before.module != origin.module):
                return thing  # a file that is a plug-in and installed: the first one stays
            if not (before and origin and before.module == origin.module == "__main__"):
                raise UserError(f"there is a {self.what} {name!r} already; choose another name.")
        self._known[name] = thing
        if origin:
            self._origins[name] = origin
            self.outside.add(origin.module)
        return thing

    def origins(self, names: Iterable[object]) -> dict[str, str]:
        """Say which code added those names that came from outside this project."""
        self._load()
        return {f"{self.what} {name}": str(self._origins[name])
                for name in map(str, names) if name in self._origins and name in self._known}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a function or class under a name."""
        return lambda thing: self.add(name, thing)

    def __getitem__(self, name: str) -> T:
        self._load()
        try:
            return self._known[name]
        except KeyError:
            raise UserError(self.unknown(name)) from None

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._known)

    def __len__(self) -> int:
        self._load()
        return len(self._known)

    def unknown(self, name: str) -> str:
        """Say that nothing has this name, what may be meant, and what there is."""
        known = ", ".join(self._known)
        if multiprocessing.parent_process():  # a worker of a notebook
            known += (". Worker processes know what modules and plug-ins register, but not a "
                      "notebook's own: put that into a file and name it in RMUTILS_PLUGINS, or "
                      "answer in one process")
        return f"{name!r} is no {self.what}.{did_you_mean(name, self._known)} There are: {known}."

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        if isinstance(source, type) and issubclass(source, BaseModel):
            read = BeforeValidator(self._read)
            return {**read.__get_pydantic_core_schema__(source, handler),
                    "serialization": {"type": "any"}}
        return AfterValidator(self._check).__get_pydantic_core_schema__(source, handler)

    def _check(self, name: str) -> str:
        if name not in self:
            raise ValueError(self.unknown(name).rstrip("."))
        return name

    def _read(self, value: Any) -> Any:
        """The configuration that a mapping describes; `kind` says which."""
        if not isinstance(value, Mapping):
            return value
        kind = str(value.get("kind", ""))
        if kind not in self:
            raise ValueError(self.unknown(kind).rstrip("."))
        model: Any = self[kind]
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise InnerError(error, model) from error

    def _load(self) -> None:
        load_plugins()
        if not self._loaded:
            self._loaded = True  # first: what is imported may look things up itself
            if self.package:
                for module in pkgutil.iter_modules(import_module(self.package).__path__):
                    import_module(f"{self.package}.{module.name}")
                if self.also:
                    import_module(self.also)
                # Some may have been imported before, so the order of imports is none to show.
                self._known = dict(sorted(self._known.items()))
            for point in entry_points(group=self.group):
                point.load()


@dataclass(frozen=True)
class Offers:
    """Annotates a field that takes names of a registry, and other words, which it checks itself."""

    registry: Registry[Any]


def outside_modules() -> list[str]:
    """Return what another process imports to know all names that this one has been told of."""
    return sorted(Registry.outside & sys.modules.keys() - {"__main__", "__mp_main__"})


PLUGINS = "RMUTILS_PLUGINS"  # names files or modules, with `os.pathsep` between them
_loaded: dict[str, UserError | None] = {}
"""Plug-ins that have been imported, by name, or why they could not be."""


class Origin(NamedTuple):
    """Where something in a registry comes from."""

    module: str
    digest: str  # SHA-256 (hex) of the module's file, or of all Python files of its package
    release: str  # distribution and version, for code that is installed; else empty

    def __str__(self) -> str:
        return " ".join(filter(None, (self.release, f"sha256:{self.digest}")))


def load_plugins(*names: str) -> None:
    """Import the plug-ins of `RMUTILS_PLUGINS`, after adding these to it."""
    before = os.environ.get(PLUGINS, "").split(os.pathsep)
    given = [str(Path(name).absolute()) if _is_file(name) else name for name in names]
    wanted = [*dict.fromkeys(filter(None, [*before, *given]))]
    for name in wanted:
        if name not in _loaded:
            _loaded[name] = None  # first: it may look up names itself, and so come here again
            try:
                _import(name)
            except UserError as error:
                _loaded[name] = error
        if wrong := _loaded[name]:
            if name not in before:  # it may be given again, or another one
                del _loaded[name]
            raise wrong
    if given:
        os.environ[PLUGINS] = os.pathsep.join(wanted)


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
    from rmutils.core.files import plain  # not above: it takes pandas with it

    if path.exists():
        plain(path)
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


def plugin_options() -> list[str]:
    """Return the words by which a command line names the plug-ins that are loaded."""
    return [word for name in _loaded
            for word in ("--plugin", os.path.relpath(name) if _is_file(name) else name)]


def _registering() -> Origin | None:
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
    """Import modules, so that this process knows the names that they register."""
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
