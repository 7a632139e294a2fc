"""Extension of Sphinx: the book's address, launch buttons, scenes, Japanese search."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish
from sphinx.util.docutils import ReferenceRole

from rmutils.core.errors import UserError

VARIABLE = "RMUTILS_ADDRESS"
COLAB = """\
!git clone --quiet --depth 1 --branch {branch} {url} retmask-book
!pip install --quiet --editable retmask-book[book]
%cd retmask-book/notebooks
import site, sysconfig; site.addsitedir(sysconfig.get_paths()["purelib"])"""
"""The first cell of a notebook on Colab. Packages are those that `pyproject.toml` allows."""

CLOUD = """
(in-the-cloud)=
## In the cloud

The rocket at the top of a chapter opens its notebook on Binder or on Colab, with nothing to \
install on your machine. Binder builds the book first, which takes a quarter of an hour or more. \
On Colab, run this in a new cell at the very top first:

```text
{install}
```
"""

QUICKSTART = "quickstart"  # the page that says how to start on Colab

PROVIDERS = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab",
             "colab_url": "https://colab.research.google.com"}
LETTERS = r"\u30a1-\u30ff\u3400-\u9fff"
"""Katakana and Kanji. Hiragana holds words together and is no help in finding one."""

PARTS = re.compile(f"[{LETTERS}]+|[^{LETTERS}]+")


def connect(app: Sphinx) -> None:
    """Add address, scenes and search to a build; `setup` adds the launch buttons."""
    app.add_role("scene", Scene())
    app.add_search_language(English)
    address = os.environ.get(VARIABLE) or app.config.html_baseurl
    if not address:
        return
    address = address.rstrip("/") + "/"
    app.config.html_baseurl = address
    for extension in ("sphinxext.opengraph", "sphinx_sitemap"):
        app.setup_extension(extension)
    app.config.ogp_site_url = address
    app.config.ogp_site_name = app.config.html_title
    app.config.ogp_enable_meta_description = True
    app.config.sitemap_url_scheme = "{link}"
    app.config.sitemap_excludes = ["search.html", "genindex.html", "py-modindex.html"]


def address(settings: dict, environment: dict[str, str]) -> tuple[str, str] | None:
    """The repository's address and branch; None if neither settings nor environment name it."""
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


def pieces(word: str) -> list[str]:
    """The word itself, or what stands for it where it is Japanese.

    >>> pieces("検索ヘッド"), pieces("heads")
    (['検索', '索ヘ', 'ヘッ', 'ッド'], ['heads'])
    """
    found = []
    for part in PARTS.findall(word):
        pairs = len(part) > 2 and re.match(f"[{LETTERS}]", part)
        found += [part[i: i + 2] for i in range(len(part) - 1)] if pairs else [part]
    return found


class English(SearchEnglish):
    """The search of English pages that may hold Japanese words."""

    js_splitter_code = rf"""
function splitQuery(query) {{  // as rmutils.book.site.pages.links_and_search.pieces
  const words = query.split(/[^\p{{Letter}}\p{{Number}}_\p{{Emoji_Presentation}}]+/gu);
  const parts = words.flatMap((word) => word.match(/[{LETTERS}]+|[^{LETTERS}]+/g) ?? []);
  return parts.flatMap((part) => part.length > 2 && /[{LETTERS}]/.test(part)
    ? [...Array(part.length - 1).keys()].map((i) => part.slice(i, i + 2)) : [part],
  ).filter((part) => part.length > 2 || !/^[\u3041-\u3096]/.test(part));
}}
"""

    def split(self, input: str) -> list[str]:
        """The words of a text, for the index."""
        return [piece for word in super().split(input) for piece in pieces(word)]


PAGE = "playground.html"


class Scene(ReferenceRole):
    """The role `scene`: a link that opens the playground with a scene set."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        up = "../" * self.env.docname.count("/")
        return [nodes.reference(
            self.rawtext, self.title, refuri=f"{up}{PAGE}#{self.target}", internal=True)], []
