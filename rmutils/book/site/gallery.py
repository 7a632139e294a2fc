"""Runs of notebooks with other parameters, as pages beside the chapters."""

import hashlib
import html
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import yaml
from markdown_it import MarkdownIt
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from rmutils.book.site.parameters import as_word
from rmutils.book.site.percent import SIGN, SPACED
from rmutils.core.files import read_yaml

FOLDER = "gallery"  # where the pages of runs stand in the book

SHIPPED = Path("data/runs")  # runs that ship with the book; `make gallery` makes them again

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Names that runs may have: they become names of files and parts of addresses."""

PAGE = "run_gallery"  # the page of the book that explains runs; the pages of runs stand under it

NONE = "There is none yet: what you run is listed here.\n"

PLACE = "% run: {}/{}\n"  # where the page shows a run that ships, beside what is said of it

SIDES = {"rm-default": "The chapter", "rm-run": "This run"}
"""Tags of the cells that stand beside each other, which are CSS classes too, and what they hold."""

VIEW = 'class="rm-figure"'  # marks the data of a view (`rmutils.book.chapters.interactive`)

_FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})")
_HEADING = re.compile(r"(#{1,6})\s+(.*\S)")
_SAYS = re.compile(r"\bsay\(")
_NO_RESULT = re.compile(r'<details class="rm-made">|<div [^>]*><p class="rm-caption">[^<]*</p>'
                        r'<details class="rm-fold"><summary>Show the table, 0 rows<')
_DRAWN = re.compile(r"<dc:date>[^<]*</dc:date>")
_MARKDOWN = MarkdownIt("js-default", {"html": False})


@dataclass(frozen=True)
class Run:
    """A notebook that was run to its end, and the chapter of that name if the book has it."""

    file: Path
    chapter: Path

    @property
    def notebook(self) -> str:
        return self.file.parent.name

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def page(self) -> str:
        """Its page in the book, without an ending."""
        return f"{FOLDER}/{self.notebook}/{self.name}"

    @cached_property
    def executed(self) -> nbformat.NotebookNode:
        return nbformat.read(self.file, as_version=4)

    @cached_property
    def default(self) -> nbformat.NotebookNode | None:
        """The executed chapter; None where the book no longer has such a notebook."""
        return nbformat.read(self.chapter, as_version=4) if self.chapter.is_file() else None

    @property
    def record(self) -> dict[str, Any]:
        return self.executed.metadata["rmutils"]

    @property
    def usual(self) -> dict[str, Any]:
        """The chapter's parameters."""
        record = self.default.metadata.get("rmutils", {}) if self.default else {}
        return record.get("parameters", {})

    @property
    def changed(self) -> dict[str, Any]:
        """Parameters that are not those of the chapter, or without one: those that were given."""
        given = self.record["parameters"]
        if not self.default:
            return {name: given[name] for name in self.record["changed"]}
        return {k: v for k, v in given.items() if k not in self.usual or self.usual[k] != v}

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        given = self.record["parameters"]
        pairs = [word for k in self.record["changed"] for word in ("-p", k, as_word(given[k]))]
        return shlex.join(["rmutils", "run", self.notebook, *pairs, "--name", self.name])


def files(root: Path) -> list[Path]:
    """Return the notebooks of finished runs, not of those that failed or were interrupted."""
    found = {}
    for folder in (root / SHIPPED, root / "book" / "runs"):
        found |= {(f.parent.name, f.stem): f for f in folder.glob("*/*.ipynb")
                  if NAME.fullmatch(f.stem) and NAME.fullmatch(f.parent.name) and _whole(f)}
    return [found[place] for place in sorted(found)]


def _whole(file: Path) -> bool:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))["metadata"]["rmutils"]
        return {"parameters", "changed", "started", "seconds"} <= set(record)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def title(notebook: NotebookNode | None) -> str | None:
    """The text of a notebook's first heading."""
    cells = notebook.cells if notebook else []
    return next((text for cell in cells for _, text in headings(cell)), None)


def heading(run: Run) -> str:
    """What the page of a run is called."""
    return f"{run.name}: {title(run.default) or run.notebook}"


def headings(cell: NotebookNode) -> Iterator[tuple[int, str]]:
    """Level and text of the headings of a Markdown cell; not of what stands between fences."""
    if cell.cell_type != "markdown":
        return
    inside = ""
    for line in cell.source.splitlines():
        if fence := _FENCE.match(line):
            if not inside:
                inside = fence[1]
            elif fence[1].startswith(inside) and not line.strip().strip(inside[0]):
                inside = ""
        elif not inside and (heading := _HEADING.fullmatch(line.strip())):
            yield len(heading[1]), heading[2]


def compared(run: NotebookNode, default: NotebookNode | None) -> list[NotebookNode]:
    """Cells that show where a run differs from the default; without a default the run alone."""
    usual = {cell.id: cell for cell in default.cells} if default else None
    made, waiting = [], {}
    for cell in run.cells:
        for level, text in headings(cell):
            waiting = {k: v for k, v in waiting.items() if k < level} | {level: text}
        if beside := _beside(cell, usual):
            made += [new_markdown_cell(f"{'#' * level} {text}")
                     for level, text in waiting.items() if level > 1]
            waiting = {}
            made += beside
    return made


def shown(cell: NotebookNode) -> list[NotebookNode]:
    """Return the outputs of a cell that a reader sees."""
    removed = {"remove-output", "remove-cell"} & {*cell.metadata.get("tags", [])}
    if cell.cell_type != "code" or removed:
        return []
    return [_rendered(NotebookNode(one)) for one in cell.outputs
            if one.get("name") != "stderr" and VIEW not in one.get("data", {}).get("text/html", "")]


def _rendered(output: NotebookNode) -> NotebookNode:
    """Markdown becomes HTML here, where no HTML, role or directive in it has a meaning."""
    if "text/markdown" not in output.get("data", {}):
        return output
    text = _MARKDOWN.render(SIGN.sub(SPACED, "".join(output.data["text/markdown"])))
    return NotebookNode(output, data=NotebookNode({"text/html": text}))


def _beside(cell: NotebookNode, usual: dict[str, NotebookNode] | None) -> list[NotebookNode]:
    """A cell's outputs beside the chapter's; nothing where both are the same, or where the chapter
    has been worded anew, since that is no difference of the run."""
    image = {"image": cell.metadata.mystnb.image} if "image" in cell.metadata.get(
        "mystnb", {}) else {}
    caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption")
    own = shown(cell)
    if usual is None:
        made = [_cell(cell, own, ["remove-input"], image)] if own else []
    else:
        theirs = usual.get(cell.id)
        pair = shown(theirs) if theirs else []
        reworded = theirs and _is_prose(cell) and theirs.source != cell.source
        # Folds on how something was made, and tables without rows, say nothing alone.
        if (reworded or [_content(o) for o in own] == [_content(o) for o in pair]
                or all(_NO_RESULT.match(o.get("data", {}).get("text/html", ""))
                       for o in (*own, *pair))):
            return []
        if len(own) == len(pair):  # what is the same on both sides is left out
            pair, own = zip(*(both for both in zip(pair, own, strict=True)
                              if _content(both[0]) != _content(both[1])), strict=True)
        made = [_cell(cell, [new_output("display_data", {
                    "text/html": f'<p class="rm-side">{text}</p>'}), *outputs],
                      ["remove-input", tag], image)
                for (tag, text), outputs in zip(SIDES.items(), (pair, own), strict=True)]
    return [*made, new_markdown_cell(caption)] if caption and made else made


def _is_prose(cell: NotebookNode) -> bool:
    return bool(_SAYS.search(cell.source))


def _content(output: NotebookNode) -> dict:
    """What an output holds; when a figure was drawn is no difference."""
    data = {kind: _DRAWN.sub("", one) if isinstance(one, str) else one
            for kind, one in output.get("data", {}).items()}
    return {key: output.get(key) for key in ("output_type", "name", "text")} | {"data": data}


def _cell(cell: NotebookNode, outputs: list, tags: list[str], settings: dict) -> NotebookNode:
    return new_code_cell(cell.source, outputs=outputs, metadata={"tags": tags, "mystnb": settings})


def write(root: Path, book: Path) -> None:
    """Write the pages of a project's runs into a copy of its book, and into its contents."""
    gallery = book / f"{PAGE}.md"
    if not gallery.exists():
        return
    runs = [Run(f, book / "chapters" / f"{f.parent.name}.ipynb") for f in files(root)]
    for run in runs:
        target = book / f"{run.page}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(page(run), target)
        whole = book / FOLDER / "executed" / run.notebook / f"{run.name}.ipynb"
        whole.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(run.executed, whole)
    text, others = gallery.read_text(encoding="utf-8"), []
    for run in runs:
        place = PLACE.format(run.notebook, run.name)
        if place in text and run.default:
            text = text.replace(place, glimpse(run))
        else:
            others.append(run)
    gallery.write_text(f"{text}\n{listing(others) if others else NONE}", encoding="utf-8")
    contents = book / "_toc.yml"
    toc = read_yaml(contents)
    for entry in entries(toc) if runs else []:
        if entry["file"] == PAGE:
            entry["sections"] = [{"file": run.page, "title": heading(run)} for run in runs]
    contents.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")


def entries(node: Any) -> Iterator[dict]:
    """All entries of a table of contents that name a file."""
    if isinstance(node, dict) and "file" in node:
        yield node
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, dict | list):
            yield from entries(child)


def glimpse(run: Run) -> str:
    """The first sentence and the first figure that differ, beside the chapter's, as MyST text."""
    cells = compared(run.executed, run.default)
    pairs = [pair for pair in pairwise(cells) if "rm-default" in pair[0].metadata.get("tags", [])]
    rows = [next((row for pair in pairs if (row := find(*pair))), None)
            for find in (_sentences, _pictures)]
    changed = ", ".join(f"{name} = {_shown(value)}" for name, value in run.changed.items())
    table = _table("", ["The chapter", f"This run: {changed}"],
                   ["".join(f"<td>{one}</td>" for one in row) for row in rows if row],
                   named=html.escape(heading(run)))
    return (f'```{{raw}} html\n<div class="rm-glimpse">{table}</div>\n<p><a href="{run.page}.html">'
            "All differences</a></p>\n```\n")


def _sentences(*sides: NotebookNode) -> list[str] | None:
    """The first sentences that differ, without what is marked up in them."""
    told = []
    for side in sides:
        text = "".join(one.get("data", {}).get("text/html", "") for one in side.outputs[1:])
        parts = re.findall(r"<li>(.*?)</li>" if "<li>" in text else r"<p>(.*?)</p>", text, re.S)
        told.append([re.split(r"(?<=[.?!])\s", re.sub(r"<(?!/?code\b)[^>]*>", "", part))[0]
                     for part in parts])
    return next(([*pair] for pair in zip(*told, strict=False) if pair[0] != pair[1]), None)


def _pictures(*sides: NotebookNode) -> list[str] | None:
    """The first figure of each side."""
    alt = html.escape(sides[0].metadata.mystnb.get("image", {}).get("alt", ""))
    found = [next((one.data["image/svg+xml"] for one in side.outputs
                   if "image/svg+xml" in one.get("data", {})), None) for side in sides]
    return None if None in found else [
        f'<img src="_images/{picture_file(svg)}" alt="{alt}" loading="lazy">'
        for svg in found]


def picture_file(svg: str) -> str:
    """The name under which the book keeps a figure."""
    return hashlib.sha256(os.linesep.join(svg.splitlines()).encode()).hexdigest() + ".svg"


def listing(runs: list[Run]) -> str:
    """A table of all runs, as MyST text."""
    rows = [f'<td><a href="{run.page}.html">{html.escape(heading(run))}</a></td>'
            f"<td>{', '.join(f'{k} = {_shown(v)}' for k, v in run.changed.items()) or 'none'}</td>"
            f"<td>{_when(run)}</td>" for run in runs]
    table = _table("The runs of this book", ["run", "changed parameters", "made"], rows)
    return f"```{{raw}} html\n{table}\n```\n"


def _shown(value: Any) -> str:
    """A parameter's value on one line of HTML."""
    return f"<code>{html.escape(json.dumps(value, ensure_ascii=False))}</code>"


def _when(run: Run) -> str:
    started = html.escape(str(run.record["started"])[:16].replace("T", " "))
    return f"{started}, in {float(run.record['seconds']):,.0f} s"


def _table(caption: str, names: list[str], rows: list[str], named: str = "") -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    above = f'<p class="rm-caption">{caption}</p>' if caption else ""
    return (f'<div class="rm-scroll" tabindex="0" role="region" aria-label="{caption or named}">'
            f'{above}<table class="rm-table"><thead><tr>{head}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>")


def page(run: Run) -> nbformat.NotebookNode:
    """The page of a run: its parameters, and its outputs beside those of the chapter."""
    about = new_output("display_data", {"text/html": _parameters(run)})
    cells = [new_markdown_cell("\n\n".join(_introduction(run))),
             new_code_cell("# parameters", outputs=[about], metadata={"tags": ["remove-input"]}),
             *compared(run.executed, run.default)]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    # Two columns need the room of the page's own contents.
    return new_notebook(cells=cells, metadata={
        "kernelspec": kernel, "html_theme.sidebar_secondary.remove": "true"})


def _introduction(run: Run) -> Iterator[str]:
    yield f"# {heading(run)}"
    file = f"/{FOLDER}/executed/{run.notebook}/{run.name}.ipynb"
    whole = f"{{download}}`the executed notebook <{file}>`"
    if run.default is None:
        yield (f"A run of `{run.notebook}`, which is no chapter of this book any more: there is "
               f"nothing to compare its outputs with. Its code and prose: {whole}.")
        return
    yield (f"{{doc}}`The chapter </chapters/{run.notebook}>` with other parameters, and what came "
           "out beside what the chapter shows. What is the same in both is left out. All of the "
           f"run: {whole}.")
    if _code(run.executed) != _code(run.default):
        yield ("**The chapter has changed since this run was made.** Differences may come from "
               "that. Make the run again with the command below.")


def _code(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what was executed, but for the parameters and for what only words results."""
    own = {"parameters", "injected-parameters"}
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"
            and not own & {*cell.metadata.get("tags", [])} and not _is_prose(cell)]


def _parameters(run: Run) -> str:
    """A table of the parameters that were changed, or of all if none was, with time and command."""
    rows = []
    given = run.record["parameters"]
    for name, value in {k: given[k] for k in run.changed or given}.items():
        usual = _shown(run.usual[name]) if name in run.usual else ""
        new = f"<mark>{_shown(value)}</mark> changed" if name in run.changed else _shown(value)
        rows.append(f"<td>{html.escape(name)}</td><td>{usual}</td><td>{new}</td>")
    return (_table("Parameters", ["parameter", *SIDES.values()], rows)
            + f'<p>Made {_when(run)}. Make it again:</p><div class="rm-scroll" tabindex="0" '
            f'role="region" aria-label="Command"><pre>{html.escape(run.command)}</pre></div>')
