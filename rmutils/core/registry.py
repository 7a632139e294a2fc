"""Open places: what the project offers by name, and outside code can add to."""

from __future__ import annotations

import multiprocessing
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    GetCoreSchemaHandler,
    ValidationError,
)

from rmutils.core import plugins
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.validation import InnerError

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Named things of one kind, in the order in which they were added.

    Outside code adds its own with the decorator. It is imported as a plug-in (`--plugin`, see
    `rmutils.core.plugins`), or when the registry is first looked at, if an entry point names it.
    The registry remembers which code added a name, for the results that use it.

    A field of a configuration that takes one of the names is declared
    `strategy: Annotated[str, STRATEGIES]`: the configuration checks it, and the command line offers
    the names. Where the things are configurations with a `kind`, a field that holds any of them is
    declared `variant: Annotated[AttentionVariant, VARIANTS]`, by their common base.

    Parameters
    ----------
    what : str
        One of them, for messages: ``"strategy"``.
    group : str
        Entry point group: ``"rmutils.strategies"``.
    package : str, optional
        A package of this project whose modules register themselves: all of them are imported when
        the registry is first looked at, so that a new one is a new file and nothing else.

    Raises
    ------
    UserError
        On a lookup: nothing has that name. On an addition: something has it already.

    Examples
    --------
    >>> colours = Registry("colour", "rmutils.colours")
    >>> @colours.register("red")
    ... def red():
    ...     return "#f00"
    >>> colours["red"]()
    '#f00'
    >>> colours["rad"]
    Traceback (most recent call last):
    ...
    rmutils.core.errors.UserError: 'rad' is no colour. Did you mean red? There are: red.
    """

    outside: ClassVar[set[str]] = set()
    """Modules outside this project that have added something, to any registry."""

    def __init__(self, what: str, group: str, package: str | None = None):
        self.what, self.group, self.package = what, group, package
        self._known: dict[str, T] = {}
        self._origins: dict[str, plugins.Origin] = {}
        self._loaded = False

    def add(self, name: str, thing: T) -> T:
        """Add one under a name. A notebook's cell that runs again replaces its own."""
        origin = plugins.registering()
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
        """Say which code added those of these names that came from outside this project.

        Returns
        -------
        dict of str to str
            `strategy first-layer` -> the hash of the code, after distribution and version if it is
            installed.
        """
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
        plugins.load()
        if not self._loaded:
            self._loaded = True  # first: what is imported may look things up itself
            if self.package:
                for module in pkgutil.iter_modules(import_module(self.package).__path__):
                    import_module(f"{self.package}.{module.name}")
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
