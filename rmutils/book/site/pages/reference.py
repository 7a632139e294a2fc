"""The page of the reference: the directive `promised`, for an `{eval-rst}` block."""

import inspect
import sys
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import desc_annotation, desc_signature
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import rmutils
from rmutils.core.config import Config

LONGEST = 60  # letters of a default that is shown
ALIAS = "Alias for field number"  # how Python documents the fields of named tuples


def promised() -> dict[str, object]:
    """Return what `rmutils` offers, by full name."""
    things = [getattr(rmutils, name) for name in rmutils.__all__]
    return {f"{thing.__module__}.{thing.__qualname__}": thing for thing in things}


class Promised(SphinxDirective):
    """The promised interface: each name with its signature, docstring and examples."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for name, thing in promised().items():
            kind = "class" if inspect.isclass(thing) else "function"
            lines += [f".. auto{kind}:: {name}", *(["   :members:"] if kind == "class" else []), ""]
        return self.parse_text_to_nodes("\n".join(lines))


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
    return (signature and plain(signature).replace("<factory>", "..."), returns and plain(returns))


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx calls this."""
    app.add_directive("promised", Promised)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("doctree-read", show_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
