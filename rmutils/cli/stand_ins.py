"""Help without waiting: libraries that take seconds to import are replaced by empty stand-ins.

The help of a command needs the names, types and docstrings of configurations, which live beside the
code that uses them, but nothing of torch. Sphinx reads packages in the same way
(`autodoc_mock_imports`). Only for a process that prints help and ends.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SLOW = frozenset((
    "accelerate", "datasets", "matplotlib", "pandas", "peft", "safetensors", "scipy", "tokenizers",
    "torch", "transformers", "trl", "vllm"))


def install() -> None:
    """Let every later import of a slow library give a stand-in."""
    sys.meta_path.insert(0, _Finder())


class _Names(type):
    """A stand-in for a class or function; each of its attributes is another."""

    def __getattr__(cls, name: str) -> Any:
        return _named(name)

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if len(args) == 1 and callable(args[0]) and not named:
            return args[0]  # it decorates
        return super().__call__()

    def __or__(cls, other: Any) -> Any:
        return other

    __ror__ = __or__

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


def _named(name: str) -> Any:
    if name.startswith("__") and not callable(getattr(operator, name, None)):
        raise AttributeError(name)
    return _Names(name, (_Thing,), {})


class _Thing(metaclass=_Names):
    def __call__(self, *args: Any, **named: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not named else self

    def __getattr__(self, name: str) -> Any:
        return _named(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _named(name)


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        slow = fullname.split(".")[0] in SLOW
        return ModuleSpec(fullname, self, is_package=True) if slow else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass
