"""JupyterLab as `make lab` starts it leaves the notebooks as they are."""

import copy
import json
import runpy

from rmutils.core import paths

SAVE = runpy.run_path(str(paths.ROOT / ".ci" / "jupyter_config.py"))["without_outputs"]


def test_notebook_that_was_run_in_the_browser_is_saved_as_it_was():
    for path in paths.NOTEBOOKS.glob("*.ipynb"):
        before = json.loads(path.read_text(encoding="utf-8"))
        shown = copy.deepcopy(before)
        shown["metadata"]["kernelspec"]["display_name"] = "Python 3 (ipykernel)"
        shown["metadata"]["language_info"] = {"name": "python", "version": "3.12.1"}
        for number, cell in enumerate(shown["cells"]):
            cell["metadata"]["trusted"] = True
            if cell["cell_type"] == "code":
                cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "seen"}]
                cell["execution_count"] = number
                cell["metadata"]["execution"] = {"iopub.status.busy": "2026-01-01T00:00:00"}
        SAVE({"type": "notebook", "content": shown}, path=f"notebooks/{path.name}")
        assert shown == before, path.name


def test_what_is_written_by_hand_is_kept_and_other_files_are_left_alone():
    cell = {"cell_type": "code", "source": "tau = 0.05", "outputs": [], "execution_count": None,
            "metadata": {"tags": ["parameters"]}}
    notebook = {"nbformat": 4, "metadata": {"rmutils": {"data": []}}, "cells": [cell]}
    kept = copy.deepcopy(cell), {"data": []}
    SAVE({"type": "notebook", "content": notebook}, path="notebooks/a.ipynb")
    assert (notebook["cells"][0], notebook["metadata"]["rmutils"]) == kept
    for other, path in (({"type": "file", "content": "outputs"}, "notebooks/a.txt"),
                        ({"type": "notebook", "content": {"nbformat": 4, "cells": [
                            cell | {"outputs": ["seen"]}]}}, "class/release/a/a.ipynb")):
        before = copy.deepcopy(other)
        SAVE(other, path=path)
        assert other == before
