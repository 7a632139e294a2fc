"""Running a notebook: checked parameters, the copy written whole or not at all, and a page."""

import datetime
import functools
import html
import os
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from filelock import FileLock, Timeout
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from rmutils.book.site.classroom import unsolved
from rmutils.book.site.parameters import check_parameters, defaults, load_notebook
from rmutils.book.templates import template
from rmutils.core.errors import UserError
from rmutils.core.files import keeping

START_SECONDS = 60  # so long may a kernel take to answer
NO_START = ("Kernel didn't respond", "Kernel died before replying")


class ThisPython(AsyncKernelManager):
    """Starts ipykernel with the running interpreter."""

    transport_encryption = "auto"  # Else the kernel warns that its local port is not encrypted.

    @property
    def kernel_spec(self) -> KernelSpec:
        """The specification that ipykernel writes for `sys.executable`."""
        return KernelSpec(resource_dir="", **get_kernel_dict(["--HistoryManager.enabled=False"]))


class NotebookFailed(Exception):
    """A cell raised, or the kernel died: the message names notebook, cell and error."""


def run_notebook(notebook: Path, output: Path, parameters: Mapping[str, Any], *,
                 progress: bool = False) -> nbformat.NotebookNode:
    """Run a notebook from top to bottom with this very interpreter; write the executed copy."""
    checked = check_parameters(notebook, parameters)
    partial = output.parent / ".partial" / output.name
    elsewhere = ("say where the copy shall go: "
                 f"`rmutils run {notebook.stem} --output ~/{output.name}`")
    lock = FileLock(f"{partial}.lock")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
        partial.open("a").close()
    except Timeout:
        raise UserError(f"another process is making {output}. Wait for it, or give this run a name "
                        "of its own (--name).") from None
    except OSError as error:  # a project that a class may only read, after a run of the teacher's
        raise UserError(f"{output.parent} cannot be written ({error.strerror}): "
                        f"{elsewhere}.") from error
    with lock.acquire(), keeping(partial.parent, f"running {notebook.stem}", only_full=True,
                                 elsewhere=elsewhere):
        return _run(notebook, output, partial, checked, progress)


def _run(notebook: Path, output: Path, partial: Path, checked: dict,
         progress: bool) -> nbformat.NotebookNode:
    started, clock, used = datetime.datetime.now(datetime.UTC), time.monotonic(), _kernels()
    executed = _execute(notebook, partial, checked, progress)
    executed.metadata["rmutils"] = {
        **executed.metadata.get("rmutils", {}),
        "parameters": defaults(notebook) | checked,
        "changed": sorted(checked),
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 1),
        "cpu_seconds": round(_kernels()[0] - used[0], 1),
        "memory": _kernels()[1],
    }
    # Papermill notes absolute paths; those of the reader's machine have no place in a book.
    executed.metadata["papermill"].update(input_path=notebook.name, output_path=output.name)
    nbformat.write(executed, partial)
    os.replace(partial, output)
    return executed


def _kernels() -> tuple[float, int]:
    """Processor seconds of all kernels that have ended, and peak memory of the largest in bytes."""
    try:
        import resource
    except ImportError:
        return 0.0, 0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _execute(notebook: Path, partial: Path, parameters: dict, progress: bool):
    import papermill  # slow to import, and not needed to check parameters
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import strip_color
    from papermill.log import logger

    # It warns of parameters whose annotation or comment it cannot read. Ours have been checked.
    logger.setLevel("ERROR")
    execute = functools.partial(
        papermill.execute_notebook, notebook, partial, parameters, kernel_name="python3",
        language="python", kernel_manager_class=ThisPython, start_timeout=START_SECONDS,
        progress_bar=progress, cwd=notebook.parent)
    try:
        return _with_a_kernel(execute)
    except papermill.PapermillExecutionError as error:
        what = f"{error.ename}: {error.evalue}".strip().splitlines()[0]
        line = re.search(r"^-+> \d+ (.*)$", strip_color("\n".join(error.traceback)), re.M)
    except DeadKernelError:
        what, line = "the kernel died (out of memory?)", None
    place = f"{notebook.stem}: cell {_failed_cell(partial)}" + (f" (`{line[1]}`)" if line else "")
    raise NotebookFailed(f"{place}: {what}\n  the notebook as far as it got: {partial}")


def _with_a_kernel(execute: Callable, *, again: bool = True):
    """Once more if no kernel answers: on busy machines that happens, though rarely."""
    try:
        return execute()
    except RuntimeError as error:  # of jupyter_client
        if not str(error).startswith(NO_START):
            raise
        if again:
            return _with_a_kernel(execute, again=False)
        raise NotebookFailed(f"no kernel answers ({error}). `make doctor` looks at this machine."
                             ) from error


def _failed_cell(partial: Path) -> int:
    """The last cell that was begun, counted as in the notebook itself (from 1)."""
    added = {"injected-parameters", "papermill-error-cell-tag"}
    own = [c for c in load_notebook(partial).cells if not added & set(c.metadata.get("tags", []))]
    return max((number for number, cell in enumerate(own, 1)
                if cell.metadata.get("papermill", {}).get("start_time")), default=0)


_OURS, _COMPUTED = (MarkdownIt("commonmark", {"html": raw}).enable("table")
                    for raw in (True, False))
"""What a notebook computed may hold words of a model: they are escaped."""
_TITLE = re.compile(r"^:{3,}\{[\w-]+\} (.+)$", re.MULTILINE)
_LEFT_OUT = re.compile(r"^(:{3,}.*|:\w+:.*|\([\w-]+\)=)\n", re.MULTILINE)
_ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")


def write_page(executed: Path) -> Path:
    """Write one HTML file that stands alone beside an executed notebook; return its path."""
    notebook = nbformat.read(executed, as_version=4)
    run = notebook.metadata["rmutils"]
    given = ", ".join(f"{name} = {run['parameters'][name]!r}" for name in run["changed"])
    parts = [f"<p><strong>Changed parameters:</strong> {html.escape(given or 'none')}</p>"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            source = _TITLE.sub(r"### \1", f"{unsolved(cell.source)}\n")
            parts.append(_OURS.render(_ROLE.sub(r"`\1`", _LEFT_OUT.sub("", source))))
        elif cell.cell_type == "code":
            parts.append(f"<details><summary>code</summary><pre>{html.escape(cell.source)}</pre>"
                         "</details>")
            parts += map(_output, cell.outputs)
    page = executed.with_suffix(".html")
    page.write_text(template("run.html").format(
        title=html.escape(executed.stem), body="\n".join(parts)), encoding="utf-8")
    return page


def _output(output: NotebookNode) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return data["text/html"]
    if "text/markdown" in data:
        return _COMPUTED.render(_ROLE.sub(r"`\1`", data["text/markdown"]))
    if "image/svg+xml" in data:
        picture = b64encode(data["image/svg+xml"].encode()).decode()
        return f'<img alt="" src="data:image/svg+xml;base64,{picture}">'
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">'
    return f"<pre>{html.escape(output.get('text') or data.get('text/plain', ''))}</pre>"
