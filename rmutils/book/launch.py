"""Buttons that open a chapter's notebook on Binder or Colab: an extension of Sphinx.

They appear once the repository has an address: `repository.url` in `book/_config.yml`, or what
GitHub's workflows say of the repository that they run for. Without one a page has no such button.
Binder makes the environment from `environment.yml`; on Colab the lines of `COLAB` do.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from rmutils.errors import UserError

COLAB = """\
!git clone --quiet --depth 1 --branch {branch} {url} retmask-book
!pip install --quiet --editable retmask-book
%cd retmask-book/notebooks
import site, sysconfig; site.addsitedir(sysconfig.get_paths()["purelib"])"""
"""What a notebook on Colab runs first. Packages are those that `pyproject.toml` allows."""

CLOUD = """
(in-the-cloud)=
## In the cloud

The rocket at the top of a chapter opens its notebook on Binder or on Colab, with nothing to \
install on your machine. Binder makes the book's environment by itself, which takes some minutes. \
On Colab, run this in a new cell at the very top first:

```text
{install}
```
"""

QUICKSTART = "quickstart"
"""The page that says how to start on Colab."""

PROVIDERS = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab",
             "colab_url": "https://colab.research.google.com"}


def address(settings: dict, environment: dict[str, str]) -> tuple[str, str] | None:
    """The repository's address and branch; None if neither settings nor environment name it.

    Parameters
    ----------
    settings : dict
        The content of `book/_config.yml`.
    environment : dict
        Where GitHub's workflows set `GITHUB_REPOSITORY` and `GITHUB_REF_NAME`.

    Raises
    ------
    UserError
        The settings name a place that is not on github.com, which Colab cannot open.
    """
    known = settings.get("repository") or {}
    if url := known.get("url"):
        if not (found := re.fullmatch(r"(https://github\.com/[\w.-]+/[\w.-]+?)(\.git)?/?", url)):
            raise UserError(f"book/_config.yml: repository.url is {url!r}; launch buttons need an "
                            "address like https://github.com/OWNER/REPOSITORY")
        return found[1], known.get("branch", "main")
    server = environment.get("GITHUB_SERVER_URL", "https://github.com")
    if "GITHUB_REPOSITORY" in environment and server == "https://github.com":
        on_branch = environment.get("GITHUB_REF_TYPE") == "branch"
        branch = environment.get("GITHUB_REF_NAME", "main") if on_branch else "main"
        return f"{server}/{environment['GITHUB_REPOSITORY']}", branch
    return None


def setup(app) -> dict[str, bool]:
    """Called by Sphinx."""
    settings = yaml.safe_load(Path(app.srcdir, "_config.yml").read_text(encoding="utf-8"))
    if found := address(settings, dict(os.environ)):
        url, branch = found

        def configure(app, config) -> None:
            config.html_theme_options |= {
                "repository_url": url, "repository_branch": branch, "launch_buttons": PROVIDERS}

        def explain(app, page: str, source: list[str]) -> None:
            if page == QUICKSTART:
                source[0] += CLOUD.format(install=COLAB.format(url=url, branch=branch))

        app.connect("config-inited", configure)
        app.connect("source-read", explain)
        app.connect("html-page-context", lead_to_notebooks, priority=502)  # when buttons are there
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def lead_to_notebooks(app, page: str, template: str, context: dict[str, Any], doctree) -> None:
    """Chapters are executed copies, which the repository does not have; other pages have none."""
    groups = context["header_buttons"]
    for group in [g for g in groups if g.get("label") == "launch-buttons"]:
        if not page.startswith("chapters/"):
            groups.remove(group)
            continue
        for button in group["buttons"]:
            button["url"] = button["url"].replace("/chapters/", "/notebooks/")
        group["buttons"].append({
            "type": "link", "text": "First cell on Colab", "icon": "fas fa-circle-info",
            "tooltip": "What to run first on Colab",
            "url": f"{context['pathto'](QUICKSTART)}#in-the-cloud"})
