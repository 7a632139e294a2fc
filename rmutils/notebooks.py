"""Running a notebook with checked parameters.

Papermill only warns about a parameter that the notebook does not have, and passes on a value of
the wrong type. Here both are refused before a kernel starts. The notebook declares its parameters
in the code cell tagged `parameters`, one annotated assignment each::

    tau: float = 0.1  # heads at or above this mean score count as retrieval heads
"""

from __future__ import annotations

import ast
import contextlib
import datetime
import difflib
import io
import json
import os
import time
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import nbformat
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError

from rmutils.errors import UserError

_NAMES = {"int": int, "float": float, "str": str, "bool": bool, "list": list, "tuple": tuple,
          "dict": dict, "Path": Path, "Literal": Literal, "Optional": Optional,
          "Annotated": Annotated, "Field": Field}
"""All that an annotation or a default in a parameters cell may name."""


class NotebookFailed(Exception):
    """A cell raised, or the kernel died: the message names notebook, cell and error."""


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell."""

    name: str
    annotation: str
    type: Any
    default: Any
    comment: str

    def parse(self, value: Any) -> Any:
        """The value as the notebook's type, in JSON-able form.

        Text is read as on a command line: `0.05`, `true`, `null`, `256,512` or `[256, 512]`.
        Any other value must have the type already.

        Raises
        ------
        ValueError
            If the value does not fit the type.
        """
        adapter = TypeAdapter(self.type, config=ConfigDict(allow_inf_nan=False))
        if not isinstance(value, str):
            return adapter.dump_python(adapter.validate_python(value, strict=True), mode="json")
        reason = ""
        for reading in _readings(value):
            try:
                return adapter.dump_python(adapter.validate_python(reading), mode="json")
            except ValidationError as error:
                reason = reason or error.errors()[0]["msg"]
        raise ValueError(reason)


def _readings(text: str) -> list[Any]:
    """What a text may mean, likeliest first."""
    readings: list[Any] = [None] if text in ("None", "null") else []
    readings.append(text)
    with contextlib.suppress(json.JSONDecodeError):
        readings.append(json.loads(text))
    readings.append([part.strip() for part in text.split(",") if part.strip()])
    return readings


def read_parameters(notebook: Path) -> dict[str, Parameter]:
    """The parameters that a notebook declares, in its order.

    Raises
    ------
    UserError
        If the file is no notebook, or a line of its parameters cell is not an annotated assignment.
    """
    cells = [c for c in _load(notebook).cells if "parameters" in c.metadata.get("tags", [])]
    if not cells:
        return {}
    source = cells[0].source
    comments = {token.start[0]: token.string.lstrip("# ").rstrip()
                for token in tokenize.generate_tokens(io.StringIO(source).readline)
                if token.type == tokenize.COMMENT}
    parameters = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        line = ast.get_source_segment(source, node)
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            raise UserError(f"{notebook}: `{line}` in the parameters cell is not of the form "
                            "`name: type = value  # comment`")
        try:
            kind, default = _evaluate(node.annotation), _evaluate(node.value)
            TypeAdapter(kind).validate_python(default)
        except (NameError, TypeError, ValidationError, PydanticUserError) as error:
            raise UserError(f"{notebook}: cannot use the parameter `{line}`: {error}") from error
        name = ast.unparse(node.target)
        parameters[name] = Parameter(name, ast.unparse(node.annotation), kind, default,
                                     comments.get(node.end_lineno, ""))
    return parameters


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
            near = difflib.get_close_matches(name, declared, n=1)
            wrong.append(f"no parameter {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))
            continue
        try:
            checked[name] = declared[name].parse(value)
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            wrong.append(f"{name} = {value!r} is no {declared[name].annotation}: {reason}")
    if wrong:
        listing = describe(declared) or "  (it has none)"
        raise UserError(f"{notebook.name}: {'; '.join(wrong)}\nIts parameters are:\n{listing}")
    return checked


def run_notebook(
    notebook: Path, output: Path, parameters: Mapping[str, Any], *, progress: bool = False
) -> nbformat.NotebookNode:
    """Run a notebook from top to bottom with this very interpreter; write the executed copy.

    The copy appears under its name only when it is whole. What was run is on record in its
    metadata (`rmutils`): all parameters with their values, start (UTC) and seconds.

    Raises
    ------
    UserError
        Unknown or ill-typed parameter; nothing was started.
    NotebookFailed
        A cell raised. The notebook as far as it got stays in `.partial/` beside the output.
    """
    checked = check_parameters(notebook, parameters)
    partial = output.parent / ".partial" / output.name
    partial.parent.mkdir(parents=True, exist_ok=True)
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    executed = _execute(notebook, partial, checked, progress)
    defaults = {p.name: TypeAdapter(p.type).dump_python(p.default, mode="json")
                for p in read_parameters(notebook).values()}
    executed.metadata["rmutils"] = {
        **executed.metadata.get("rmutils", {}),
        "parameters": {**defaults, **checked},
        "changed": sorted(checked),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 1),
    }
    # Papermill notes absolute paths; those of the reader's machine have no place in a book.
    executed.metadata["papermill"].update(input_path=notebook.name, output_path=output.name)
    nbformat.write(executed, partial)
    os.replace(partial, output)
    return executed


def _execute(notebook: Path, partial: Path, parameters: dict, progress: bool):
    import papermill  # slow to import, and not needed to check parameters
    from nbclient.exceptions import DeadKernelError

    from rmutils.kernel import ThisPython

    try:
        return papermill.execute_notebook(
            notebook, partial, parameters, kernel_name="python3", language="python",
            kernel_manager_class=ThisPython, progress_bar=progress, cwd=notebook.parent)
    except papermill.PapermillExecutionError as error:
        what = f"{error.ename}: {error.evalue}".strip().splitlines()[0]
    except DeadKernelError:
        what = "the kernel died (out of memory?)"
    raise NotebookFailed(f"{notebook.stem}: {_failed_cell(partial)}: {what}\n"
                         f"  the notebook as far as it got: {partial}")


def _failed_cell(partial: Path) -> str:
    """The cell at which an executed copy stops, counted as in the notebook itself (from 1)."""
    added = {"injected-parameters", "papermill-error-cell-tag"}
    own = [c for c in _load(partial).cells if not added & set(c.metadata.get("tags", []))]
    for number, cell in enumerate(own, 1):
        if cell.metadata.get("papermill", {}).get("status") in ("failed", "running"):
            first = next((line for line in cell.source.splitlines() if line.strip()), "")
            return f"cell {number} (`{first}`)"
    return "a cell"


def _load(notebook: Path) -> nbformat.NotebookNode:
    try:
        return nbformat.read(notebook, as_version=4)
    except FileNotFoundError:
        raise UserError(f"no notebook {notebook}") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"{notebook} is not a notebook: {str(error)[:200]}") from error


def _evaluate(node: ast.expr) -> Any:
    code = compile(ast.Expression(node), "<parameters>", "eval")
    return eval(code, {"__builtins__": {}}, dict(_NAMES))
