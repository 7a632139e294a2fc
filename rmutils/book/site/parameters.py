"""Parameters of a notebook: declared in it with types, checked before anything starts."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import nbformat
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.validation import counts_a_bool, explain, readings

_NAMES = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple,
          "dict": dict, "Path": Path, "Literal": Literal, "Optional": Optional,
          "Annotated": Annotated, "Field": Field}
"""All that an annotation or a default in a parameters cell may name."""

SHOWN = 200  # characters of a wrong value that a message repeats


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell."""

    name: str
    annotation: str
    type: Any
    default: Any
    comment: str

    def parse(self, value: Any) -> Any:
        """The value as the notebook's type, in JSON-able form."""
        adapter = TypeAdapter(self.type, config=ConfigDict(allow_inf_nan=False))
        if not isinstance(value, str):
            return adapter.dump_python(adapter.validate_python(value, strict=True), mode="json")
        reason = ""
        for reading in readings(value):
            if counts_a_bool(reading, self.type):
                reason = reason or f"expected numbers, got {value}"
                continue
            try:
                return adapter.dump_python(adapter.validate_python(reading), mode="json")
            except ValidationError as error:
                reason = reason or explain(error, BaseModel).rstrip(".")
        raise ValueError(reason)


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters that a notebook declares, in its order."""
    cells = [c for c in load_notebook(notebook).cells if "parameters" in c.metadata.get("tags", [])]
    if not cells:
        return {}
    source = cells[0].source
    try:
        lines = ast.parse(source).body
    except SyntaxError as error:
        raise UserError(f"{notebook}: the parameters cell is not Python: {error}") from error
    parameters = {}
    for node in lines:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        line = ast.get_source_segment(source, node)
        try:
            node = _annotated(node)
            if not isinstance(node, ast.AnnAssign) or node.value is None:
                raise UserError(f"{notebook}: `{line}` in the parameters cell is not of the form "
                                "`name: type = value  # comment`")
            kind, default = _evaluate(node.annotation), _evaluate(node.value)
            TypeAdapter(kind).validate_python(default)
        except (NameError, TypeError, ValidationError, PydanticUserError) as error:
            raise UserError(f"{notebook}: cannot use the parameter `{line}`: {error}") from error
        name = ast.unparse(node.target)
        parameters[name] = Parameter(name, ast.unparse(node.annotation), kind, default,
                                     _comment(source, node))
    return parameters


def _annotated(node: ast.stmt) -> ast.stmt:
    """Return `name = value` as `name: type = value`, where the value tells its type."""
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and (kind := _type_of(_evaluate(node.value)))):
        return node
    annotation = ast.parse(kind, mode="eval").body
    return ast.copy_location(ast.AnnAssign(node.targets[0], annotation, node.value, 1), node)


def _type_of(value: Any) -> str | None:
    """Return the type of a number, a text, a truth value, or a list of such; None of others."""
    if isinstance(value, list):
        kinds = {_type_of(item) for item in value}
        kinds -= {"int"} if "float" in kinds else set()
        return f"list[{kinds.pop()}]" if len(kinds) == 1 and None not in kinds else None
    return type(value).__name__ if type(value) in (bool, int, float, str) else None


def defaults(notebook: Path) -> dict[str, Any]:
    """The notebook's own values of its parameters, in JSON-able form."""
    return {p.name: TypeAdapter(p.type).dump_python(p.default, mode="json")
            for p in read_parameters(notebook).values()}


def _comment(source: str, node: ast.AnnAssign) -> str:
    """The comment at the end of an assignment, or else the one on the line above it."""
    lines = source.split("\n")
    above = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
    after = lines[node.end_lineno - 1].encode()[node.end_col_offset:].decode().strip()
    comment = after or (above if above.startswith("#") else "")
    return comment.lstrip("# ")


def describe(parameters: Mapping[str, Parameter]) -> str:
    """One line per parameter: name, type, default, comment."""
    heads = [f"{p.name}: {p.annotation} = {p.default!r}" for p in parameters.values()]
    width = max(map(len, heads), default=0)
    return "\n".join(f"  {head:<{width}}  {p.comment}".rstrip()
                     for head, p in zip(heads, parameters.values(), strict=True))


def check_parameters(notebook: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """The given values, parsed; raises `UserError` listing the valid parameters if one is wrong."""
    declared = read_parameters(notebook)
    checked, wrong = {}, []
    for name, value in values.items():
        if name not in declared:
            wrong.append(f"no parameter {_short(name)}.{did_you_mean(name, declared)}".rstrip("."))
            continue
        try:
            checked[name] = declared[name].parse(value)
        except ValueError as error:
            reason = explain(error, BaseModel).rstrip(".") if isinstance(
                error, ValidationError) else error
            wrong.append(f"{name} = {_short(value)} is no {declared[name].annotation}: {reason}")
    if wrong:
        listing = describe(declared) or "  (it has none)"
        raise UserError(f"{notebook.name}: {'; '.join(wrong)}\nIts parameters are:\n{listing}")
    return checked


def from_folder(notebook: Path, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return checked values with the files and folders that they name in `folder` made absolute."""
    declared = read_parameters(notebook)

    from rmutils.models.known_models import REGISTRY  # torch: builds of the book do without

    def place(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [place(name, item) for item in value]
        free = "Literal" not in declared[name].annotation and isinstance(value, str) and value
        there = free and value not in REGISTRY and (folder / Path(value).expanduser()).exists()
        return str((folder / Path(value).expanduser()).absolute()) if there else value

    return {name: place(name, value) for name, value in values.items()}


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def load_notebook(notebook: Path) -> nbformat.NotebookNode:
    """Read a notebook; `UserError` if there is none or the file is something else."""
    try:
        return nbformat.read(notebook, as_version=4)
    except FileNotFoundError:
        raise UserError(f"no notebook {notebook}") from None
    except (ValueError, TypeError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise UserError(f"{notebook} is not a notebook: {str(error)[:200]}") from error


def _evaluate(node: ast.expr) -> Any:
    code = compile(ast.Expression(node), "<parameters>", "eval")
    return eval(code, {"__builtins__": {}}, dict(_NAMES))


def as_word(value: Any) -> str:
    """A value as a word of a command line, as `Parameter.parse` reads it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
