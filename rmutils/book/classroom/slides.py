"""Slides of a lesson: one HTML file that needs nothing else, made from the executed chapters.

What is on them stands in `book/slides/*.yml`, a list of slides each. A slide has a `title` and any
of: `text` (Markdown), `figure` (the name of a figure of the book), `said` (chapter/cell: sentences
that this cell computed), `notes` (for the teacher). No result is written into the lists.
"""

from __future__ import annotations

import html
from base64 import b64encode
from pathlib import Path
from string import Template
from typing import Any

import yaml
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from rmutils.errors import UserError
from rmutils.parameters import load_notebook

FOLDER = "slides"
"""Of the lists, in `book/`."""
PLACE = "_static/slides"
"""Of the files, in the built pages."""
FRAME = "frame.html"
"""Beside the lists: the page that slides are put into."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def write_slides(book: Path, pages: Path) -> list[Path]:
    """Make the slides of all lessons.

    Parameters
    ----------
    book : Path
        With `slides/*.yml`, and the executed chapters in `chapters/`.
    pages : Path
        Folder of the HTML.

    Raises
    ------
    UserError
        A slide asks for what no executed chapter has.
    """
    lessons = sorted((book / FOLDER).glob("*.yml"))
    if not lessons:
        return []
    (pages / PLACE).mkdir(parents=True, exist_ok=True)
    chapters = {p.stem: load_notebook(p) for p in sorted((book / "chapters").glob("*.ipynb"))}
    frame = Template((book / FOLDER / FRAME).read_text(encoding="utf-8"))
    made = []
    for lesson in lessons:
        made.append(pages / PLACE / f"{lesson.stem}.html")
        try:
            made[-1].write_text(render(yaml.safe_load(lesson.read_text("utf-8")), chapters, frame),
                                encoding="utf-8")
        except UserError as error:
            raise UserError(f"{lesson.name}: {error}") from None
    return made


def render(
    lesson: dict[str, Any], chapters: dict[str, NotebookNode], frame: Template
) -> str:
    """The HTML of one lesson: `title`, `about` and `slides`."""
    slides = "\n".join(_slide(slide, number, chapters)
                       for number, slide in enumerate(lesson["slides"], 1))
    return frame.substitute(
        title=html.escape(lesson["title"]), about=html.escape(lesson["about"]), slides=slides,
        count=len(lesson["slides"]))


def _slide(slide: dict[str, Any], number: int, chapters: dict[str, NotebookNode]) -> str:
    if unknown := set(slide) - {"title", "text", "figure", "said", "notes"}:
        raise UserError(f"slide {number} has {', '.join(sorted(unknown))}, which no slide has")
    parts = [f"<h2>{html.escape(slide['title'])}</h2>"]
    if "text" in slide:
        parts.append(_MARKDOWN.render(slide["text"]))
    if "figure" in slide:
        parts.append(_figure(slide["figure"], chapters))
    if "said" in slide:
        parts.append(f'<div class="said">{_said(slide["said"], chapters)}</div>')
    notes = _MARKDOWN.render(slide.get("notes", ""))
    body = "\n".join(parts)
    return (f'<section id="s{number}" aria-label="Slide {number}">\n<div class="slide">\n{body}\n'
            f'</div>\n<aside class="notes" aria-label="Notes">{notes}</aside>\n</section>')


def _figure(name: str, chapters: dict[str, NotebookNode]) -> str:
    for chapter, notebook in chapters.items():
        for cell in notebook.cells:
            shown = cell.metadata.get("mystnb", {})
            if shown.get("figure", {}).get("name") == name:
                kind, data = _picture(cell, f"{name} of {chapter}")
                caption = _MARKDOWN.renderInline(shown["figure"]["caption"])
                alt = html.escape(shown["image"]["alt"], quote=True)
                return (f'<figure><img alt="{alt}" src="data:{kind};base64,{data}">'
                        f"<figcaption>{caption} <small>Chapter {chapter}</small></figcaption>"
                        "</figure>")
    raise UserError(f"no chapter has a figure {name}")


def _picture(cell: NotebookNode, where: str) -> tuple[str, str]:
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/svg+xml" in data:
            return "image/svg+xml", b64encode(data["image/svg+xml"].encode()).decode()
        if "image/png" in data:
            return "image/png", data["image/png"].strip()
    raise UserError(f"{where} shows no picture; run the chapter: `make book`")


def _said(place: str, chapters: dict[str, NotebookNode]) -> str:
    chapter, _, wanted = place.partition("/")
    for cell in chapters[chapter].cells if chapter in chapters else ():
        if cell.get("id") == wanted:
            told = [output["data"]["text/markdown"] for output in cell.get("outputs", [])
                    if "text/markdown" in output.get("data", {})]
            if told:
                return _MARKDOWN.render("\n\n".join(told))
    raise UserError(f"{place}: no such cell, or it computed no sentence")
