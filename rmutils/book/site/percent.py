"""One way to write percent on all pages: "44 %", with a space that no line breaks."""

import re

from docutils import nodes
from sphinx.application import Sphinx

SIGN = re.compile(r"(?<=\d)[ \N{NO-BREAK SPACE}]?%")
AFTER_A_NUMBER = re.compile(r"^[ \N{NO-BREAK SPACE}]?%")  # the number is a link of its own
INTERVAL = re.compile(r"95%(?= (?:CI|interval))")
SPACED = "\N{NO-BREAK SPACE}%"
CODE = nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw


def connect(app: Sphinx) -> None:
    """Have every page written so."""
    app.connect("doctree-read", lambda app, document: space(document))


def space(document: nodes.document) -> None:
    """Space the signs of a page: in its text, and in the box and the tables that cells show."""
    for text in [*document.findall(nodes.Text)]:
        if any(isinstance(parent, CODE) for parent in _above(text)):
            continue
        new = SIGN.sub(SPACED, text.astext())
        before = text.parent.parent and _text_before(text)
        if before and before[-1].isdigit():
            new = AFTER_A_NUMBER.sub(SPACED, new)
        if new != text.astext():
            text.parent.replace(text, nodes.Text(new))
    for raw in [*document.findall(nodes.raw)]:
        if "html" in raw.get("format", ""):
            shown = in_html(raw.astext())
            raw.children = [nodes.Text(shown)]
            raw.rawsource = shown


def _above(node: nodes.Node) -> list[nodes.Node]:
    found = []
    while node := node.parent:
        found.append(node)
    return found


def _text_before(text: nodes.Text) -> str:
    place = text.parent.index(text)
    return text.parent[place - 1].astext() if place else ""


def in_html(shown: str) -> str:
    """Do the same in what a cell shows: in the box, captions, heads and numbers of tables. What
    models and the paper say stays as it is."""
    parts = re.split(r"(<[^>]*>)", shown)
    box, tag = "rm-found" in shown, ""
    for i, part in enumerate(parts):
        if i % 2:
            tag = part if not part.startswith("</") else tag
        elif box or tag.startswith(('<p class="rm-caption"', "<th", "<summary")) or (
                tag.startswith("<td") and not re.search(r"[^\W\d_]", part)):
            parts[i] = SIGN.sub(SPACED, part)
            if i and parts[i - 1] == "</a>" and parts[i - 2][-1:].isdigit():
                parts[i] = AFTER_A_NUMBER.sub(SPACED, parts[i])
        else:
            parts[i] = INTERVAL.sub("95" + SPACED, part)
    return "".join(parts)
