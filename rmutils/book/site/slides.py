"""Slides of lessons, each lesson one HTML file; only its links need the book around it."""

import html
import re
from base64 import b64encode
from io import StringIO
from pathlib import Path
from string import Template
from typing import Any

from markdown_it import MarkdownIt
from matplotlib import rc_context
from matplotlib.figure import Figure
from nbformat import NotebookNode

from rmutils.book.site.pages import CITATION
from rmutils.book.site.pages.frame import FOUND
from rmutils.book.site.parameters import load_notebook
from rmutils.core.errors import UserError
from rmutils.core.files import read_yaml

FOLDER = "slides"  # folder of the lists, in `book/`
PLACE = "_static/slides"  # folder of the files, in the built pages
PAGES = "../../"  # the way from there to the book's pages, which slides link to
FRAME = "frame.html"  # beside the lists: the page that slides are put into
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def write_slides(book: Path, pages: Path) -> list[Path]:
    """Make the slides of all lessons."""
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
            made[-1].write_text(render(read_yaml(lesson), chapters, frame),
                                encoding="utf-8")
        except UserError as error:
            raise UserError(f"{lesson.name}: {error}") from None
    return made


def render(lesson: dict[str, Any], chapters: dict[str, NotebookNode], frame: Template) -> str:
    """The HTML of one lesson: `title`, `about` and `slides`."""
    slides, before = [], ""
    for number, slide in enumerate(lesson["slides"], 2):
        slides.append(_slide(slide, number, chapters, before))
        before = slide.get("model", before)
    paper, = read_yaml(CITATION)["references"]
    authors = " and ".join(f"{a['given-names']} {a['family-names']}" for a in paper["authors"])
    return frame.substitute(
        title=html.escape(lesson["title"]), about=html.escape(lesson["about"]),
        slides="\n".join(slides),
        paper=html.escape(paper["title"]), authors=html.escape(f"{authors}, {paper['year']}"),
        count=len(lesson["slides"]) + 1)


def _slide(slide: dict[str, Any], number: int, chapters: dict[str, NotebookNode],
           before: str) -> str:
    """The HTML of a slide; `before` is the model that was shown last."""
    if unknown := set(slide) - {"title", "text", "equation", "figure", "said", "model", "notes"}:
        raise UserError(f"slide {number} has {', '.join(sorted(unknown))}, which no slide has")
    parts = [f"<h2>{html.escape(slide['title'])}</h2>"]
    if model := slide.get("model"):
        changed = before not in ("", model)
        parts.append(f'<p class="model{" other" * changed}">{"From here" if changed else "Model"}'
                     f": {html.escape(model)}</p>")
    if "text" in slide:
        parts.append(_MARKDOWN.render(slide["text"]))
    if "equation" in slide:
        parts.append(_equation(slide["equation"]))
    if "figure" in slide:
        parts.append(_figure(slide["figure"], chapters))
    if "said" in slide:
        parts.append(f'<div class="said">{_said(slide["said"], chapters)}</div>')
    notes = _MARKDOWN.render(slide.get("notes", ""))
    body = "\n".join(parts)
    return (f'<section id="s{number}" aria-label="Slide {number}">\n<div class="slide">\n{body}\n'
            f'</div>\n<aside class="notes" aria-label="Notes">{notes}</aside>\n</section>')


def _equation(latex: str) -> str:
    """A picture, for a file that needs nothing else has no program that sets formulas."""
    canvas, picture = Figure(), StringIO()
    canvas.text(0, 0, f"${latex}$", fontsize=34, math_fontfamily="cm")
    with rc_context({"svg.hashsalt": "slides"}):
        canvas.savefig(picture, format="svg", bbox_inches="tight", pad_inches=0.05,
                       transparent=True, metadata={"Date": None})
    data = b64encode(picture.getvalue().encode()).decode()
    return (f'<img class="equation" alt="{html.escape(latex, quote=True)}" '
            f'src="data:image/svg+xml;base64,{data}">')


def _figure(name: str, chapters: dict[str, NotebookNode]) -> str:
    for chapter, notebook in chapters.items():
        for cell in notebook.cells:
            shown = cell.metadata.get("mystnb", {})
            if shown.get("figure", {}).get("name") == name:
                kind, data = _picture(cell, f"{name} of {chapter}")
                caption = _MARKDOWN.renderInline(shown["figure"]["caption"])
                alt = html.escape(shown["image"]["alt"], quote=True)
                title = html.escape(_TITLE.search(notebook.cells[0].source)[1])
                return (f'<figure><img alt="{alt}" src="data:{kind};base64,{data}">'
                        f'<figcaption>{caption} <a href="{PAGES}chapters/{chapter}.html#{name}">'
                        f"{title}</a></figcaption></figure>")
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
    """What a cell computed: its sentences, or the list of the box *What we found*."""
    chapter, _, wanted = place.partition("/")
    for cell in chapters[chapter].cells if chapter in chapters else ():
        if cell.get("id") == wanted:
            shown = [output.get("data", {}) for output in cell.get("outputs", [])]
            told = [_MARKDOWN.render(data["text/markdown"]) for data in shown
                    if "text/markdown" in data]
            boxes = [data["text/html"] for data in shown
                     if data.get("text/html", "").startswith(FOUND)]
            told += [box[box.index("<ul>"):].removesuffix("</section>") for box in boxes]
            if told:
                return "\n".join(told)
    raise UserError(f"{place}: no such cell, or it computed no sentence")
