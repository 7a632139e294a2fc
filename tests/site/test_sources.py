"""The table of contents leaves nothing out; the reference shows readable types."""

import re

import yaml

from rmutils.core import paths

TOC = yaml.safe_load((paths.BOOK / "_toc.yml").read_text(encoding="utf-8"))


def listed(node) -> list[str]:
    """All files that a part of the table of contents names."""
    if isinstance(node, list):
        return [name for item in node for name in listed(item)]
    if isinstance(node, dict):
        own = [node[key] for key in ("root", "file") if key in node]
        return own + [name for value in node.values() for name in listed(value)]
    return []


def test_contents_list_every_page_and_every_notebook_once():
    pages = [p.relative_to(paths.BOOK).with_suffix("") for p in paths.BOOK.rglob("*.md")
             if not {"_build", "runs"} & set(p.relative_to(paths.BOOK).parts)]
    notebooks = ["index" if p.stem == "essay" else f"chapters/{p.stem}"
                 for p in paths.NOTEBOOKS.glob("*.ipynb")]
    assert sorted(listed(TOC)) == sorted([*map(str, pages), *notebooks])


def test_every_citation_has_an_entry():
    entries = set(re.findall(r"^@\w+\{([^,]+),", (paths.BOOK / "references.bib").read_text(
        encoding="utf-8"), flags=re.MULTILINE))
    sources = [*paths.BOOK.glob("*.md"), *paths.NOTEBOOKS.glob("*.ipynb")]
    cited = {key.strip() for p in sources for group in
             re.findall(r"\{cite[:a-z]*\}`([^`]+)`", p.read_text(encoding="utf-8"))
             for key in group.split(",")}
    assert cited <= entries
