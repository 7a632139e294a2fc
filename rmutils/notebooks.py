"""Running a notebook: parameters checked first, the executed copy written whole or not at all."""

from __future__ import annotations

import datetime
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from pydantic import TypeAdapter

from rmutils.parameters import check_parameters, load_notebook, read_parameters


class NotebookFailed(Exception):
    """A cell raised, or the kernel died: the message names notebook, cell and error."""


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
    from papermill.exceptions import strip_color
    from papermill.log import logger

    from rmutils.kernel import ThisPython

    # It warns of parameters whose annotation or comment it cannot read. Ours have been checked.
    logger.setLevel("ERROR")
    try:
        return papermill.execute_notebook(
            notebook, partial, parameters, kernel_name="python3", language="python",
            kernel_manager_class=ThisPython, progress_bar=progress, cwd=notebook.parent)
    except papermill.PapermillExecutionError as error:
        what = f"{error.ename}: {error.evalue}".strip().splitlines()[0]
        line = re.search(r"^-+> \d+ (.*)$", strip_color("\n".join(error.traceback)), re.M)
    except DeadKernelError:
        what, line = "the kernel died (out of memory?)", None
    place = f"{notebook.stem}: cell {_failed_cell(partial)}" + (f" (`{line[1]}`)" if line else "")
    raise NotebookFailed(f"{place}: {what}\n  the notebook as far as it got: {partial}")


def _failed_cell(partial: Path) -> int:
    """The last cell that was begun, counted as in the notebook itself (from 1)."""
    added = {"injected-parameters", "papermill-error-cell-tag"}
    own = [c for c in load_notebook(partial).cells if not added & set(c.metadata.get("tags", []))]
    return max((number for number, cell in enumerate(own, 1)
                if cell.metadata.get("papermill", {}).get("start_time")), default=0)
