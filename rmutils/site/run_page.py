"""A page to look at for a notebook that was run: one HTML file that needs nothing else.

It is no page of the book: of MyST's directives only the titles stay, formulas are LaTeX, and there
are no solutions.
"""

from __future__ import annotations

import html
import re
from base64 import b64encode
from pathlib import Path

import nbformat
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from rmutils.site.classroom import unsolved

_OURS, _COMPUTED = (MarkdownIt("commonmark", {"html": raw}).enable("table")
                    for raw in (True, False))
"""What a notebook computed may hold words of a model: they are escaped."""
_TITLE = re.compile(r"^:{3,}\{[\w-]+\} (.+)$", re.MULTILINE)
_LEFT_OUT = re.compile(r"^(:{3,}.*|:\w+:.*|\([\w-]+\)=)\n", re.MULTILINE)
_ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ max-width: 52em; margin: 2em auto; padding: 0 1em; font: 1em/1.5 system-ui, sans-serif; }}
img, svg {{ max-width: 100%; height: auto; }}
pre {{ overflow-x: auto; padding: 0.5em; background: #f2f4f6; font-size: 0.85em; }}
table {{ border-collapse: collapse; font-size: 0.9em; }}
th, td {{ padding: 0.2em 0.8em 0.2em 0; border-bottom: 1px solid #ccc; text-align: left; }}
summary {{ color: #4d5966; }}
</style></head><body>
{body}
</body></html>
"""


def write_page(executed: Path) -> Path:
    """Write a page beside an executed notebook, and return where it is."""
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
    page.write_text(_PAGE.format(title=html.escape(executed.stem), body="\n".join(parts)),
                    encoding="utf-8")
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
