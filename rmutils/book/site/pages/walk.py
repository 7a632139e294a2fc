"""The moving picture of the front page: where a retrieval head looks while an answer is written."""

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from nbformat import NotebookNode

from rmutils.book.site.parameters import load_notebook
from rmutils.book.templates import template
from rmutils.core.errors import UserError
from rmutils.core.paths import BOOK

CHAPTER, CELL = "01_preliminaries", "needle-view"
"""Cell whose output carries the case, the answer and where heads look."""
PICTURE = BOOK / "_static" / "walk.svg"  # the same picture for the README
WIDTH, NARROW, LETTER, LINE, SIZE = 620, 340, 9.0, 26, 15
"""Widths of the picture, of that for a phone and of a letter; heights of a line and the letters."""
AROUND = 88
"""For each of so many pixels of width a token of the prompt is shown on either side of what the
head looks at."""
SECONDS, HOLD = 0.4, 8
"""Each token of the answer takes so long; the whole answer stands for so many more."""
GAP = "…"
Placed = tuple[float, float, float, str]  # left, line, width and text of a token


def walk(book: Path) -> str:
    """Return the picture, wide and for a phone, as an HTML block with a switch that stops it."""
    case = _case(load_notebook(book / "chapters" / f"{CHAPTER}.ipynb"))
    pictures = "".join(f'<div class="{name}">{picture(case, width)}</div>'
                       for name, width in (("rm-wide", WIDTH), ("rm-narrow", NARROW)))
    return ('<div class="rm-walk"><input type="checkbox" id="rm-walk-stop">'
            f'<label for="rm-walk-stop">pause</label>{pictures}</div>')


def _case(notebook: NotebookNode) -> dict[str, Any]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []) if cell.get("id") == CELL else ():
            text = output.get("data", {}).get("text/html", "")
            if found := re.search(r">(\{.*\})</script>", text):
                return json.loads(found[1])
    raise UserError(f"the chapter {CHAPTER} has no cell {CELL!r} with the data of a case")


def picture(case: dict[str, Any], width: int = WIDTH) -> str:
    """Return the picture as SVG on one line."""
    head = case["heads"][0]
    prompt, written, looks = case["prompt"], case["written"], head["looks"]
    shown = _excerpt(prompt, case["inserted"], looks, width // AROUND)
    places = _lines(shown, prompt, 1.6, width)
    below = max(line for _, line, *_ in places.values()) + 2.6
    answer = _lines([*range(len(written))], written, below, width)
    height = (max(line for _, line, *_ in answer.values()) + 0.7) * LINE
    name = head["name"].partition(":")[0]
    parts = [_label("parts of the prompt; underlined: the answer", 0.5)]
    parts += [_token(places[j], "needle" if j in range(*case["needle"]) else "prompt")
              for j in places]
    rules, first = [], head["copied"].index(True)  # the picture begins with a look that copies
    for step, (where, copied) in enumerate(zip(looks, head["copied"], strict=True)):
        kind = "copied" if copied else "other"
        parts.append(_token(answer[step], f"{kind} s{step}"))
        if where in places and step >= first:
            parts.append(_look(places[where], answer[step], f"{kind} l{step}"))
        rules.append(_motion(max(0, step - first), len(written) - first, step))
    parts.append(_label(f"the answer; blue: what {name} points at", below - 1.1))
    seconds = (len(written) - first + HOLD) * SECONDS
    title = f"{name[0].upper()}{name[1:]} looks at each word of the hidden answer as it is written"
    return (f'<svg class="rm-walking" viewBox="-3 0 {width + 6} {height:.0f}" role="img" '
            f'xmlns="http://www.w3.org/2000/svg"><title>{html.escape(title)}</title>'
            f"<style>{_style(seconds)}{''.join(rules)}}}</style>{''.join(parts)}</svg>")


def _excerpt(prompt: Sequence[str], inserted: Sequence[int], looks: Sequence[int],
             around: int) -> list[int]:
    """The positions that are shown; -1 stands for a gap."""
    near = {j for middle in {*looks, *range(*inserted)} - {0}
            for j in range(middle - around, middle + around + 1) if 0 < j < len(prompt)}
    chosen: list[int] = [0]
    for j in sorted(near):
        gap = j > chosen[-1] + 1
        if re.fullmatch(r"<\|.*\|>", prompt[j]) or gap and not prompt[j].strip().isalnum():
            continue
        chosen += [-j, j] if gap else [j]
    return chosen


def _lines(which: Sequence[int], texts: Sequence[str], first: float,
           wide: int) -> dict[int, Placed]:
    """Set tokens in lines; words stay whole."""
    placed: dict[int, Placed] = {}
    left, line = 0.0, first
    for at, j in enumerate(which):
        text = GAP if j < 0 else "start" if j == 0 and texts[0].startswith("<|") else texts[j]
        text = f" {text} " if j < 0 else text.replace("\n", " ")
        word = len(text) + sum(len(texts[k]) for k in _rest(which[at + 1:], texts))
        if left + word * LETTER > wide and text.startswith(" "):
            left, line = 0.0, line + 1
        shown = text.lstrip() if left == 0 else text
        indent = (len(shown) - len(shown.lstrip())) * LETTER
        placed[j] = (left + indent, line, len(shown.strip()) * LETTER, shown.strip())
        left += len(shown) * LETTER
    return placed


def _rest(following: Sequence[int], texts: Sequence[str]) -> list[int]:
    """The tokens that end the word begun before."""
    rest = []
    for j in following:
        if j < 0 or texts[j][:1].isspace():
            break
        rest.append(j)
    return rest


def _label(text: str, line: float) -> str:
    return f'<text class="label" x="0" y="{line * LINE:.0f}">{html.escape(text)}</text>'


def _token(place: Placed, kind: str) -> str:
    left, line, width, text = place
    return (f'<text class="{kind}" x="{left:.0f}" y="{line * LINE:.1f}" '
            f'textLength="{width:.0f}" lengthAdjust="spacingAndGlyphs">{html.escape(text)}</text>')


def _look(there: Placed, here: Placed, kind: str) -> str:
    """A line from the token that is written to the one that the head looks at, and a frame."""
    left, line, width, _ = there
    top = line * LINE - SIZE
    start, end = here[0] + here[2] / 2, left + width / 2
    low, high = here[1] * LINE - SIZE - 1, top + SIZE + 6
    middle = (low + high) / 2
    return (f'<g class="{kind}"><rect x="{left - 2:.0f}" y="{top - 1:.1f}" width="{width + 4:.0f}" '
            f'height="{SIZE + 7}" rx="3"/><path d="M{start:.0f} {low:.1f}C{start:.0f} {middle:.1f} '
            f'{end:.0f} {middle:.1f} {end:.0f} {high:.1f}"/></g>')


def _style(seconds: float) -> str:
    """Rules for the still picture, then the beginning of those for the moving one."""
    rules = template("walk.css").replace("\n", "")
    return Template(rules).substitute(size=SIZE, seconds=f"{seconds:.1f}")


def _motion(at: int, steps: int, step: int) -> str:
    """Rules of a token of the answer, which comes and stays, and of its look, which goes again."""
    begin, end = (f"{100 * n / (steps + HOLD):.2f}%" for n in (at, at + 1))
    return (f".rm-walking .s{step}{{animation-name:s{step}}}"
            f".rm-walking .l{step}{{animation-name:l{step}}}"
            f"@keyframes s{step}{{0%{{opacity:0}}{begin}{{opacity:1}}}}"
            f"@keyframes l{step}{{0%{{opacity:0}}{begin}{{opacity:1}}{end}{{opacity:0}}}}")
