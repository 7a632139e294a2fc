"""Versions of the book: each page says its own, and several can stand beside each other."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmutils import __version__
from rmutils.book.site.pages import CHANGELOG
from rmutils.core import paths
from rmutils.core.errors import UserError, exit_with_message

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

TEMPLATES, TEMPLATE = paths.BOOK / "_templates", "version.html"
"""What a page's sidebar shows below the search field."""
LIST = "_static/version_list.js"
"""The versions that stand beside a book, and their pages; in a book of its own there are none."""
VERSION = re.compile(r"\d+\.\d+\.\d+")


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.connect("config-inited", _name)
    app.connect("html-page-context", _show, priority=400)  # before the theme looks at sidebars


def _name(app: Sphinx, config: Config) -> None:
    config.version = config.release = __version__
    config.templates_path = [*config.templates_path, str(TEMPLATES)]


def _show(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    context["sidebars"] = [*(context.get("sidebars") or ()), TEMPLATE]
    context["later"] = has_later_changes(CHANGELOG.read_text(encoding="utf-8"))


def has_later_changes(changelog: str) -> bool:
    """Whether the list of changes names some that are in no version yet."""
    return "\n- " in changelog.partition("\n## [Unreleased]\n")[2].partition("\n## [")[0]


def publish(html: Path, folder: Path, version: str = __version__) -> list[str]:
    """Put a built book beside its other versions; return all versions, the newest first."""
    if not (html / "index.html").is_file():
        raise UserError("The book is not built yet: `make book`.")
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(html, folder / version)
    found = sorted((path.name for path in folder.iterdir() if VERSION.fullmatch(path.name)),
                   key=lambda name: [*map(int, name.split("."))], reverse=True)
    known = json.dumps([[name, _pages(folder / name)] for name in found])
    for name in found:
        (folder / name / LIST).write_text(f"window.rmVersions = {known};\n", encoding="utf-8")
    (folder / "index.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; '
        f'url={found[0]}/index.html"><a href="{found[0]}/index.html">{found[0]}</a>\n',
        encoding="utf-8")
    return found


def _pages(book: Path) -> list[str]:
    """Pages that may be switched to; the source of the package, several hundred, is left out."""
    return sorted(name for path in book.rglob("*.html")
                  if not (name := path.relative_to(book).as_posix()).startswith("_"))


def main() -> None:
    """Do it and say where; exit status 2 if there is no book or no folder is given."""
    with exit_with_message():
        if len(sys.argv) != 2:
            raise UserError("Say where: make publish SITE=FOLDER")
        folder = Path(sys.argv[1])
        found = publish(paths.BOOK / "_build/html", folder)
    print(f"{folder / 'index.html'}: {', '.join(found)}")


if __name__ == "__main__":
    main()
