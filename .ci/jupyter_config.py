"""JupyterLab as `make lab` starts it: without the network, chapters are saved without outputs.

So a notebook that was only looked at and run stays as it is, and its chapter up to date.
"""

from __future__ import annotations


def without_outputs(model: dict, path: str, **_) -> None:
    """Called with what is about to be saved, and where in the project; changes it."""
    if not path.strip("/").startswith("notebooks/"):  # a worksheet, or a run
        return
    if model["type"] != "notebook" or model["content"]["nbformat"] != 4:
        return
    notebook = model["content"]
    notebook["metadata"] |= {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"}}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
            for ours_not in ("execution", "collapsed", "trusted"):
                cell["metadata"].pop(ours_not, None)
        else:
            cell["metadata"].pop("trusted", None)


if "get_config" in globals():  # read by Jupyter, not imported by a test
    c = get_config()  # noqa: F821
    c.FileContentsManager.pre_save_hook = without_outputs
    c.LabApp.default_url = "/lab/tree/notebooks"
    c.LabApp.news_url = None
    c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
