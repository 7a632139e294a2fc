"""Help without waiting: nothing of the libraries that take seconds to import."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

SLOW = frozenset(("accelerate", "datasets", "matplotlib", "pandas", "peft", "safetensors", "scipy",
                  "tokenizers", "torch", "transformers", "trl", "vllm"))


class Absent(type):
    """Stands for a module, a base class, a decorator or a value, and so does each attribute."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and not callable(getattr(operator, name, None)):
            raise AttributeError(name)
        return Absent(name, (), {})

    def __call__(cls, *args: Any, **named: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else cls

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class Finder(MetaPathFinder, Loader):
    """Finds a stand-in for every module of a slow library."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in SLOW else None

    def create_module(self, spec: ModuleSpec) -> Any:
        return Absent(spec.name, (), {})

    def exec_module(self, module: Any) -> None:
        pass


def install() -> None:
    """Let every later import of a slow library give a stand-in."""
    sys.meta_path.insert(0, Finder())
