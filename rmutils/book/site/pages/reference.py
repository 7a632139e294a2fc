"""Pages of the reference, made from the docstrings: directives `promised` and `modules`.

`promised` shows the names that `import rmutils` offers; `modules` shows all modules of a package,
without these names. Both are for `{eval-rst}` blocks.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import desc_annotation, desc_signature
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import rmutils
from rmutils.core.config import Config

LONGEST = 60
"""Letters of a default that is shown."""
ALIAS = "Alias for field number"
"""How Python documents the fields of named tuples."""
HIDDEN = ("__main__", "inside")
"""Modules that are programs: importing them runs them, or needs what is not installed."""


def promised() -> dict[str, object]:
    """Return what `rmutils` offers, by full name."""
    things = [getattr(rmutils, name) for name in rmutils.__all__]
    return {f"{thing.__module__}.{thing.__qualname__}": thing for thing in things}


@cache
def modules(package: str) -> list[str]:
    """Return the names of all modules of a package; of a module, its own."""
    home = importlib.import_module(package)
    if not hasattr(home, "__path__"):
        return [package]
    found = pkgutil.walk_packages(home.__path__, f"{package}.")
    return [one.name for one in found
            if not one.ispkg and one.name.rpartition(".")[2] not in HIDDEN]


class Promised(SphinxDirective):
    """The promised interface: each name with its signature, docstring and examples."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for name, thing in promised().items():
            kind = "class" if inspect.isclass(thing) else "function"
            lines += [f".. auto{kind}:: {name}", *(["   :members:"] if kind == "class" else []), ""]
        return self.parse_text_to_nodes("\n".join(lines))


class Modules(SphinxDirective):
    """A section for each module of one or more packages."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for package in self.arguments[0].split():
            for name in modules(package):
                found.append(self._section(name))
        return found

    def _section(self, name: str) -> nodes.section:
        section = nodes.section("", nodes.title("", "", nodes.literal(
            "", name.removeprefix("rmutils."))), ids=[
            nodes.make_id(f"of {name}")], names=[name.lower()])
        elsewhere = [full.rpartition(".")[2] for full in promised()
                     if full.rpartition(".")[0] == name]
        lines = [f".. automodule:: {name}"]
        if elsewhere:
            links = ", ".join(f":py:obj:`~{name}.{one}`" for one in elsewhere)
            lines += [f"   :exclude-members: model_config, {', '.join(elsewhere)}", "",
                      f"In the interface: {links}."]
        self.state.nested_parse(StringList(lines, name), 0, section)
        return section


def plain(annotation: str) -> str:
    """Return an annotation without what pydantic checks.

    >>> plain("Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None")
    'tuple[int, ...] | None'
    """
    before, mark, rest = annotation.partition("Annotated[")
    if not mark:
        return annotation
    depth, comma = 0, 0
    for place, letter in enumerate(rest):
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth and not comma:
            comma = place
        if depth < 0:
            return before + plain(rest[:comma]) + plain(rest[place + 1 :])
    return annotation


def sign(app: Sphinx, what: str, name: str, thing: object, options: object,
         signature: str | None, returns: str | None) -> tuple[str | None, str | None]:
    """Show signatures without constraints; of a configuration none, as its fields follow."""
    if inspect.isclass(thing) and issubclass(thing, Config):
        return "", None
    return (signature and plain(signature).replace("<factory>", "..."),
            returns and plain(returns))


def without_aliases(app: Sphinx, what: str, name: str, thing: object, skip: bool,
                    options: object) -> bool | None:
    """Leave out the fields of named tuples: what they are is listed under Attributes."""
    return True if (getattr(thing, "__doc__", None) or "").startswith(ALIAS) else None


def show_fields(app: Sphinx, doctree: nodes.document) -> None:
    """Show types of attributes without constraints, and the defaults of configurations."""
    for signature in doctree.findall(desc_signature):
        for note in signature.findall(desc_annotation):
            text = note.astext()
            if text.startswith(": "):
                note.children = [nodes.Text(plain(text) + _default(signature))]
    for paragraph in doctree.findall(nodes.paragraph):
        text = paragraph.astext()
        if text.startswith("alias of") and "Annotated[" in text:
            paragraph.children = [nodes.Text(plain(text))]


def _default(signature: desc_signature) -> str:
    """The default of a field, if it is short."""
    owner, _, field = signature.get("fullname", "").rpartition(".")
    thing = getattr(sys.modules.get(signature.get("module")), owner, None)
    if not (inspect.isclass(thing) and issubclass(thing, Config) and field in thing.model_fields):
        return ""
    info = thing.model_fields[field]
    shown = f" = {info.default!r}"
    short = len(shown) <= LONGEST and not isinstance(info.default, Config | Path)
    return shown if short and not info.is_required() and info.default_factory is None else ""


def new_modules(app: Sphinx, env, *_: object) -> list[str]:
    """Read the pages of the reference again when modules have come or gone."""
    now = [*promised(), *modules("rmutils")]
    before, env.rmutils_modules = getattr(env, "rmutils_modules", now), now
    return [] if before == now else [name for name in env.found_docs if name.startswith("api/")]


def import_all(app: Sphinx, env, names: list[str]) -> None:
    """Import what is documented first: autodoc changes classes in a way that subclasses which are
    made later do not survive."""
    if any(name.startswith("api/") for name in names):
        for name in modules("rmutils"):
            importlib.import_module(name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    app.add_directive("promised", Promised)
    app.add_directive("modules", Modules)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("doctree-read", show_fields)
    app.connect("env-get-outdated", new_modules)
    app.connect("env-before-read-docs", import_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
