"""Two executions of one notebook beside each other, output by output, as cells of a page.

Headings are the notebook's; the prose, which is written about its own parameters, is left out. The
outputs are taken as they were executed. Figures lose their label, which the chapter has already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

SIDES = {"rm-default": "The chapter", "rm-run": "This run"}
"""Tags of the cells that stand beside each other, which are CSS classes too, and what they hold."""

SAME = {"code_prompt_show": "Show the output that is the same in both",
        "code_prompt_hide": "Hide the output that is the same in both"}

VIEW = 'class="rm-figure"'
"""Marks the data of a view (`rmutils.plots.interactive`)."""

_FENCE = re.compile(r"\s*(`{3,}|~{3,}|:{3,})")
_HEADING = re.compile(r"(#{1,6})\s+(.*\S)")
_CODE_OR_TAG = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)|<(?=[a-zA-Z/!?])", re.DOTALL)


def title(notebook: NotebookNode | None) -> str | None:
    """The text of a notebook's first heading."""
    cells = notebook.cells if notebook else []
    return next((text for cell in cells for _, text in headings(cell)), None)


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
    """Cells that show a run beside the default; without a default the run alone.

    Outputs belong together if their cells have the same id. A pair without any difference is shown
    once and folded away.
    """
    usual = {cell.id: shown(cell) for cell in default.cells} if default else None
    made, waiting = [], {}
    for cell in run.cells:
        for level, text in headings(cell):
            waiting = {k: v for k, v in waiting.items() if k < level} | {level: text}
        own = shown(cell)
        pair = [] if usual is None else usual.get(cell.id, [])
        if own or pair:
            made += [new_markdown_cell(f"{'#' * level} {text}")
                     for level, text in waiting.items() if level > 1]
            waiting = {}
            made += _beside(cell, own, None if usual is None else pair)
    return made


def shown(cell: NotebookNode) -> list[NotebookNode]:
    """What a reader sees of a cell's outputs.

    Without warnings, which name files of a machine, and the data of interactive views: side by side
    there is only room for the pictures.
    """
    removed = {"remove-output", "remove-cell"} & {*cell.metadata.get("tags", [])}
    if cell.cell_type != "code" or removed:
        return []
    return [_without_tags(NotebookNode(one)) for one in cell.outputs
            if one.get("name") != "stderr" and VIEW not in one.get("data", {}).get("text/html", "")]


def _without_tags(output: NotebookNode) -> NotebookNode:
    """HTML has no place in a Markdown output: a sentence may quote a parameter or a model."""
    if "text/markdown" not in output.get("data", {}):
        return output
    text = _CODE_OR_TAG.sub(lambda found: found[0] if found[1] else "&lt;",
                            output.data["text/markdown"])
    return NotebookNode(output, data=NotebookNode(output.data, **{"text/markdown": text}))


def _beside(cell: NotebookNode, own: list, usual: list | None) -> list[NotebookNode]:
    image = {"image": cell.metadata.mystnb.image} if "image" in cell.metadata.get(
        "mystnb", {}) else {}
    caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption")
    if usual is None:
        made = [_cell(cell, own, ["remove-input"], image)]
    elif [_content(o) for o in own] == [_content(o) for o in usual]:
        made = [_cell(cell, own, ["remove-input", "hide-output"], image | SAME)]
        caption = None
    else:
        made = [_cell(cell, [_label(text), *outputs], ["remove-input", tag], image)
                for (tag, text), outputs in zip(SIDES.items(), (usual, own), strict=True)]
    return [*made, new_markdown_cell(caption)] if caption else made


def _content(output: NotebookNode) -> dict:
    return {key: output.get(key) for key in ("output_type", "name", "text", "data")}


def _cell(cell: NotebookNode, outputs: list, tags: list[str], settings: dict) -> NotebookNode:
    return new_code_cell(cell.source, outputs=outputs,
                         metadata={"tags": tags, "mystnb": settings})


def _label(text: str) -> NotebookNode:
    return new_output("display_data", {"text/html": f'<p class="rm-side">{text}</p>'})
