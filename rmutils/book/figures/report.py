"""Numbers in words, tables and notes for the book's pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from difflib import SequenceMatcher
from io import StringIO
from itertools import pairwise
from math import ceil, isnan, log10

import numpy as np
import pandas as pd
from IPython.display import HTML, Markdown
from markdown_it import MarkdownIt

from rmutils.core.config import Config
from rmutils.core.files import to_csv
from rmutils.core.results import Artifact
from rmutils.corpora.niah import NiahCase
from rmutils.paper.tables import EDITIONS
from rmutils.stats import Interval

_COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
WIDEST = 5
"""An interval at least this wide is shown without decimals; one a tenth as wide has one more."""
DIGITS, NO_WIDTH = 6, 3  # most decimals, and those where an interval has no width
MOST_ROWS = 12  # a table with more rows is folded


def number(value: float, low: float | None = None, high: float | None = None) -> str:
    """A number rounded as findings are, as `0.62 [0.55, 0.70]`."""
    if low is None or high is None or isnan(low) or isnan(high):
        return f"{value:,.0f}" if 999.5 <= abs(value) < 1e9 else f"{value:z.3g}"
    shown, start, end = rounded(Interval(value, low, high))
    return f"{shown} [{start},\u00a0{end}]"


def rounded(found: Interval) -> tuple[str, str, str]:
    """Round a value and its ends as all prose, tables and figures show them; alone, no ends."""
    value, low, high = (float(f"{x:.12g}") for x in found)  # without the rounding of sums
    if isnan(value):
        return "\N{EN DASH}", "", ""
    if isnan(low) or isnan(high):
        whole = abs(value) >= 9.5 or value.is_integer()
        return f"{value:,.0f}" if whole else f"{value:z.2g}", "", ""
    width = high - low
    whole = width >= WIDEST or all(x.is_integer() for x in (value, low, high))
    whole |= width <= 0 and abs(value) >= 9.5
    digits = 0 if whole else ceil(log10(WIDEST / width)) if width > 0 else NO_WIDTH
    while digits < DIGITS and any(end and not float(f"{end:.{digits}f}") for end in (low, high)):
        digits += 1
    # As decimals, so that a share and the same in percent are rounded alike: 0.235 is no float.
    shown, start, end = (f"{Decimal(str(x)):z.{digits}f}" for x in (value, low, high))
    return shown, start, end


def intervals(rows: pd.DataFrame) -> list[str]:
    """Put a column of a table into words: `number` of each row of value, low and high."""
    return [number(*row) for row in rows.to_numpy(float)]


def spell(count: int) -> str:
    """Write a count as prose does: up to ten in words."""
    return _COUNTS[count] if count < len(_COUNTS) else f"{count:,}"


def join(words: Iterable[str]) -> str:
    """List words as a sentence does: a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def say(text: str) -> Markdown | None:
    """A sentence with computed numbers in it. An empty one shows nothing."""
    return Markdown(text) if text else None  # a notebook shows an empty one as its Python name


MOST_FOUND = 3  # sentences of what was found: more is not read


def inline(text: str) -> str:
    """Return a line of Markdown as HTML."""
    return MarkdownIt("js-default").renderInline(text)


def what_we_found(question: str, *findings: str | Markdown) -> HTML:
    """Show a chapter's question and what was found: the book puts the box below the title."""
    if not 1 <= len(findings) <= MOST_FOUND:
        raise ValueError(f"{len(findings)} findings: a chapter shows one to {MOST_FOUND}")
    items = "".join(f"<li>{inline(getattr(one, 'data', one))}</li>" for one in findings)
    return HTML(f'<section class="rm-found" aria-label="What we found"><p>{inline(question)}</p>'
                f"<p><strong>What we found</strong></p><ul>{items}</ul></section>")


def table(frame: pd.DataFrame, caption: str, by: str | None = None, *,
          folded: bool = False) -> Table:
    """A table with a caption, in a box that scrolls on a narrow screen."""
    if by:
        frame = frame.sort_values(by, key=lambda names: pd.factorize(names)[0], kind="stable")
    rows = (frame.drop(columns=by) if by else frame).fillna(np.nan)  # None is no dash
    shown = rows.to_html(index=False, border=0, escape=True, classes="rm-table",
                         float_format=number, na_rep="–")
    headed = _under_headings(shown, frame[by], rows.shape[1]) if by else shown
    return _scrolling(headed, caption, frame, folded)


def _under_headings(shown: str, headings: pd.Series, columns: int) -> str:
    head, *rows = shown.split("<tr>")  # the row of column names has a style, so it is in the head
    new = headings != headings.shift()
    return head + "".join(
        (f'<tr><th scope="rowgroup" colspan="{columns}">{html.escape(str(heading))}</th></tr>'
         if first else "") + f"<tr>{row}"
        for heading, first, row in zip(headings, new, rows, strict=True))


class Table(HTML):
    """A table of the book; in a notebook its output carries the data as CSV."""

    def __init__(self, shown: str, frame: pd.DataFrame):
        super().__init__(shown)
        self.csv = to_csv(frame)

    def _repr_mimebundle_(self, **_: object) -> tuple[dict, dict]:
        return {}, {"rmutils": {"csv": self.csv}}


def fold(shown: str, rows: int, line: str = "") -> str:
    """Return the HTML of a table behind a line that opens it; by default it says how many rows."""
    line = html.escape(line) or f"Show the table, {rows} row{'s' * (rows != 1)}"
    return f'<details class="rm-fold"><summary>{line}</summary>{shown}</details>'


def _scrolling(shown: str, caption: str, frame: pd.DataFrame, folded: bool = False) -> Table:
    if folded or len(frame) > MOST_ROWS:
        shown = fold(shown, len(frame))
    return Table(f'<div class="rm-scroll" tabindex="0" role="region" '
                 f'aria-label="{html.escape(caption, quote=True)}">'
                 f'<p class="rm-caption">{html.escape(caption)}</p>{shown}</div>', frame)


def tables(caption: str, *shown: Table) -> Table:
    """Several tables behind one line that opens them all, and their data with the table's number.
    """
    label = html.escape(caption, quote=True)
    rows = pd.concat([pd.read_csv(StringIO(one.csv), dtype=str).assign(table=number)
                      for number, one in enumerate(shown, 1)], ignore_index=True)
    return Table(f'<div class="rm-scroll" tabindex="0" role="region" aria-label="{label}">'
                  f'<p class="rm-caption">{html.escape(caption)}</p>'
                  f'<details class="rm-fold rm-tables"><summary>Show {len(shown)} tables</summary>'
                  f"{''.join(str(one.data) for one in shown)}</details></div>", rows)


def show_case(case: NiahCase) -> HTML:
    """The whole prompt; the inserted sentence is marked, the answer in it is underlined."""
    sentence, (start, end) = case.needle.needle, case.needle.answer_span
    before, after = case.prompt.split(sentence, 1)
    head, answer, tail = sentence[:start], sentence[start:end], sentence[end:]
    escaped = [html.escape(part) for part in (before, head, answer, tail, after)]
    return HTML('<div class="rm-case" tabindex="0" role="region" aria-label="A whole prompt">'
                "{}<mark>{}<u>{}</u>{}</mark>{}</div>".format(*escaped))


def quote(text: str) -> HTML:
    """Text that a model wrote, as a quotation."""
    return HTML(f"<blockquote>{html.escape(text)}</blockquote>")


def side_by_side(texts: Mapping[str, str], caption: str) -> HTML:
    """Texts that models wrote, by name, in columns that stand below each other on a phone."""
    first, *_ = texts.values()
    return _columns({name: _compared(first, text) for name, text in texts.items()}, caption)


def chosen_words(texts: Mapping[str, Iterable[tuple[str, bool]]], caption: str) -> HTML:
    """Show a text as often as it is named, side by side, with the chosen words marked."""
    return _columns({name: "".join(
        f"<mark>{html.escape(word)}</mark>" if chosen else html.escape(word)
        for word, chosen in words) for name, words in texts.items()}, caption)


def _columns(texts: Mapping[str, str], caption: str) -> HTML:
    columns = "".join(f"<div><strong>{html.escape(name)}</strong><p>{text}</p></div>"
                      for name, text in texts.items())
    return HTML(f'<p class="rm-caption">{html.escape(caption)}</p>'
                f'<div class="rm-sides">{columns}</div>')


def _compared(first: str, text: str) -> str:
    old, new = first.split(), re.findall(r"\s*\S+", text)
    parts = []
    for what, *_, start, end in SequenceMatcher(
            None, old, [word.strip() for word in new], autojunk=False).get_opcodes():
        words = "".join(new[start:end])
        shown = words.lstrip()
        gap, shown = words[: len(words) - len(shown)], html.escape(shown)
        if what == "delete":
            parts.append('<mark class="rm-gap" title="words are left out"></mark>')
        else:
            parts.append(gap + (shown if what == "equal" else f"<mark>{shown}</mark>"))
    return "".join(parts)


def made_by(artifact: Artifact) -> HTML:
    """Note on how a figure or table was made: result, parameters, command, time, machine."""
    m = artifact.manifest
    environment = m["environment"]
    rows = {
        "result": f"{artifact.name} ({'shipped' if artifact.shipped else 'computed here'})",
        "parameters": ", ".join(f"{k} = {_short(v)}" for k, v in m["config"].items()),
        "command": m["command"],
        "time": _duration(m["facts"].get("case_seconds", m["seconds"])),
        "machine": environment["hardware"],
        "versions": ", ".join(f"{k} {v}" for k, v in environment["packages"].items()),
        "commit": environment["commit"] or "unknown",
        "made": environment["created"],
    }
    return how_made(rows)


def made_from(files: Iterable[str], command: str) -> HTML:
    """The same for what is drawn from files of the project, without a long run."""
    return how_made({"data": ", ".join(files), "command": command})


def how_made(rows: Mapping[str, str]) -> HTML:
    """A fold-out that says how something was made: names and what stands under them."""
    body = "".join(f"<dt>{k}</dt><dd>{html.escape(str(v))}</dd>" for k, v in rows.items())
    return HTML('<details class="rm-made"><summary>How this was made</summary>'
                f"<dl>{body}</dl></details>")


def _short(value: object) -> str:
    """Long evenly spaced lists as `512, 1024 ... 4096`."""
    if not isinstance(value, list) or len(value) < 5 or not isinstance(value[0], int | float):
        return str(value)
    steps = [b - a for a, b in pairwise(value)]
    if max(steps) - min(steps) < 0.001:  # depths are rounded
        return f"{value[0]:g}, {value[1]:g} ... {value[-1]:g} ({len(value)})"
    return str(value)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def comparisons(findings: pd.DataFrame, caption: str) -> Table:
    """Lines of the audit: each value with its place, the difference with what rounding explains."""
    rounding = [f"rounding: {f'below {t:.3g}' if t else 'none'}" for t in findings.tolerance]
    columns = {
        "what": findings.what.map(html.escape),
        "value a": map(_with_note, findings.value_a, findings.place_a),
        "value b": map(_with_note, findings.value_b, findings.place_b),
        "a - b": map(_with_note, findings.difference.round(4), rounding),
    }
    shown = pd.DataFrame({name: list(cells) for name, cells in columns.items()})
    return _scrolling(shown.to_html(index=False, border=0, escape=False,
                                    classes="rm-table rm-comparisons"), caption, findings)


def edition(place: str) -> str:
    """A place with its edition in words: `English edition, Section 5.3` for `en Section 5.3`."""
    return re.sub(r"\b(en|ja) (?=[A-Z])", lambda found: f"{EDITIONS[found[1]]}, ", place)


def _with_note(value: float | str, note: str) -> str:
    return f"{html.escape(_as_printed(value))}<small>{html.escape(edition(note))}</small>"


def _as_printed(value: float | str) -> str:
    """All digits of a number of the paper (six at most), text as it is."""
    if isinstance(value, str):
        return value
    return "–" if pd.isna(value) else f"{value:z.6g}"


QUOTED = re.compile(r'\b(?:Section|Appendix) [\w.]+: "')  # a place in the paper and its words
CODE = re.compile(r"\bauthors'|\bdefault\b|\.py\b")
"""The authors' scripts and notebooks, and the defaults of what they call."""


def settings(**configs: Config) -> pd.DataFrame:
    """A row for each field of configurations of one class, with who sets it."""
    first = next(iter(configs.values()))
    rows = []
    for name, field in type(first).model_fields.items():
        words = " ".join((field.description or "").replace("`", "").split())
        values = {column: _shown(getattr(config, name)) for column, config in configs.items()}
        rows.append({"setting": name, **values, "set_by": _set_by(words), "words": words})
    return pd.DataFrame(rows)


def _set_by(words: str) -> str:
    if QUOTED.search(words):
        return "paper"
    return "authors' code" if CODE.search(words) else "–"


def _shown(value: object) -> str:
    """Five of a long list are enough."""
    if value is None or value == ():
        return "–"
    if isinstance(value, tuple):
        parts = [_shown(part) for part in value]
        return ", ".join(parts if len(parts) < 6 else [*parts[:3], "...", parts[-1]])
    return f"{value:g}" if isinstance(value, float) else str(value)
