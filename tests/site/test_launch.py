"""Launch buttons: only where the repository has an address, and then to the chapter's notebook."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_markdown_cell, new_notebook

from rmutils.book.site.pages.links_and_search import address
from rmutils.core import paths
from rmutils.core.errors import UserError

GITHUB = {"GITHUB_REPOSITORY": "someone/theirs", "GITHUB_REF_NAME": "release",
          "GITHUB_REF_TYPE": "branch", "GITHUB_SERVER_URL": "https://github.com"}


@pytest.mark.parametrize(("url", "environment", "found"), [
    (None, {}, None),
    (None, GITHUB, ("https://github.com/someone/theirs", "release")),
    (None, GITHUB | {"GITHUB_REF_TYPE": "tag"}, ("https://github.com/someone/theirs", "main")),
    (None, GITHUB | {"GITHUB_SERVER_URL": "https://git.example"}, None),
    ("https://github.com/a/b.git", GITHUB, ("https://github.com/a/b", "main")),
    ("https://github.com/a/b/", {}, ("https://github.com/a/b", "main")),
])
def test_address_is_the_set_one_else_the_workflows(url, environment, found):
    assert address({"repository": {"url": url}} if url else {}, environment) == found


@pytest.mark.parametrize("url", ["https://gitlab.com/a/b", "github.com/a/b", "https://github.com/a"])
def test_address_that_colab_cannot_open_is_refused(url):
    with pytest.raises(UserError, match="OWNER/REPOSITORY"):
        address({"repository": {"url": url}}, {})


def built(root: Path, repository: dict) -> dict[str, str]:
    """The pages of a book with one chapter. (tests/site/test_runs.py has one without address.)"""
    (root / "chapters").mkdir(parents=True)
    config = {"title": "T", "author": "A", "only_build_toc_files": True,
              "execute": {"execute_notebooks": "off"},
              "sphinx": {"extra_extensions": ["rmutils.book.site.pages.links_and_search"]},
              "repository": repository}
    (root / "_config.yml").write_text(yaml.safe_dump(config))
    (root / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters:\n- file: quickstart\n"
                                   "- file: chapters/01_first\n")
    (root / "index.md").write_text("# Index\n")
    (root / "quickstart.md").write_text("# Quickstart\n")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(new_notebook(cells=[new_markdown_cell("# First")],
                                metadata={"kernelspec": kernel}), root / "chapters/01_first.ipynb")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    subprocess.run([sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build",
                    str(root), "-n", "-W", "--keep-going", "-q"], check=True, env=environment)
    html = root / "_build" / "html"
    return {name: (html / f"{name}.html").read_text(encoding="utf-8")
            for name in ("index", "quickstart", "chapters/01_first")}


def test_buttons_lead_to_the_notebook_in_the_repository(tmp_path):
    pages = built(tmp_path, {"url": "https://github.com/a/b", "branch": "dev"})
    links = re.findall(r'href="(https?://[^"]*(?:binder|colab)[^"]*)"', pages["chapters/01_first"])
    assert links == ["https://mybinder.org/v2/gh/a/b/dev?urlpath=lab/tree/notebooks/01_first.ipynb",
                     "https://colab.research.google.com/github/a/b/blob/dev/"
                     "notebooks/01_first.ipynb"]
    assert (paths.NOTEBOOKS / "01_preliminaries.ipynb").is_file()  # notebooks/ is the folder
    assert 'href="../quickstart.html#in-the-cloud"' in pages["chapters/01_first"]
    assert 'id="in-the-cloud"' in pages["quickstart"]
    assert "--branch dev https://github.com/a/b " in pages["quickstart"]
    assert "mybinder" not in pages["index"] + pages["quickstart"]
