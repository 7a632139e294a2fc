"""The directive `generated`: parts of pages that are computed when the book is built."""

import json
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rmutils.book.chapters import speed
from rmutils.book.figures.report import edition, join
from rmutils.book.site.classroom import self_checking_points
from rmutils.book.site.pages import CHANGELOG, CITATION, FAULTS, MUTATION
from rmutils.book.site.pages import coverage as covered
from rmutils.book.site.pages.items import (
    by_part,
    chapters,
    folded,
    items,
    literal,
    shown,
    table,
    thumbnail,
    title,
)
from rmutils.book.site.pages.standards import missing, standards
from rmutils.book.site.pages.walk import walk
from rmutils.book.site.parameters import read_parameters
from rmutils.core.errors import UserError
from rmutils.core.files import read_yaml
from rmutils.core.paths import NOTEBOOKS
from rmutils.paper import audit, load_tables
from rmutils.paper.comparisons import ABOUT_SCORES, ABOUT_SENTENCES, beside_gains
from rmutils.stats import SHARE, Interval, interval

COUNTS = {"tried": "tried", "kept": "survived", "lost": "did harm"}
"""Counts of a record, and what a page calls them."""
MOST_OPEN = 3  # so many pairs of the errata are open; a longer group is folded
NAMED = 6  # so many parameters are named in the line that opens their table
UNNOTICED = "None of the tests that were tried runs it.", "No test notices it yet."
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z*`])")  # where the next one begins
COUNTED = {"class": "rm-counts", "width": "100%"}  # options of tables of counts
MADE = ("made", "commit", "machine")  # columns of `_made`
TOUCHES = {
    "bold is best": "which value of a table is marked as the best",
    "caption": "which input lengths a table is about",
    "fact stated twice": "what a reader would do to repeat the experiment",
    "unique failure": "what the caption calls unique to masked retrieval heads",
    "share masked": "the share of heads that section 5.2 says are masked",
    "published scores": "what is said about retrieval scores",
}
"""Consequences of each kind of disagreement; those about scores and sentences are computed."""


FAULT_WORDS = {
    "../ in a name": "A name leads out of its folder",
    "NaN in a score file": "A score is no number",
    "archive": "A package is not what it should be", "clock set back": "The clock is set back",
    "flipped byte": "A byte of a file changes", "foreign file": "A file from elsewhere is damaged",
    "foreign text": "A text holds code for the page", "full disk": "The disk fills up",
    "kill -9": "A process is killed", "out of memory": "Memory runs out",
    "parameter": "A parameter makes no sense", "pickle or code in a model folder":
    "A model brings code", "read-only cache": "A folder may only be read",
    "server": "A server fails", "token in the environment": "A secret could leak",
    "two at once": "Two processes do the same"}
"""Kinds of faults as readers know them."""
COMMON = [FAULT_WORDS[kind] for kind in ("kill -9", "full disk", "flipped byte")]
"""Those that a night's computation is most likely to meet; they are shown even without harm."""


def faults(book: Path) -> str:
    """How often faults were tried and did harm; folded, by kind, and each with its test."""
    runs = json.loads(FAULTS.read_text(encoding="utf-8"))["runs"]
    rows = sorted((row for run in runs for row in run["faults"]),
                  key=lambda row: FAULT_WORDS[row["kind"]])
    kinds = [(kind, [*group]) for kind, group in groupby(rows, lambda r: FAULT_WORDS[r["kind"]])]
    counted = [[kind, *(f"{sum(row[name] for row in group):,}" for name in ("tried", "lost"))]
               for kind, group in [*kinds, ("**all**", rows)]]
    open_rows = [row for row in counted if row[-1] != "0" or row[0] in COMMON]
    made = [[f"`{run['command']}`", len(run["faults"]), *_made(run)] for run in runs]
    return "\n".join([
        *table(["fault", "tried", "did harm"], open_rows,
               options=COUNTED | {"widths": "64 18 18"}), "",
        *folded(table(["fault", "tried", "did harm"], counted,
                      options=COUNTED | {"widths": "64 18 18"}), len(kinds), "Each kind of fault"),
        *folded(table(["fault, and the test", *COUNTS.values()], [
            [f"{FAULT_WORDS[row['kind']]}: {literal(row['what'])}<br>"
             f"`{row['test'].removeprefix('tests/')}`", *(f"{row[name]:,}" for name in COUNTS)]
            for row in rows],
            options=COUNTED | {"widths": "64 12 12 12"}), len(rows), "Each fault, and its test"),
        *folded(table(["command", "rows", *MADE], made, "|:--|--:|:--|:--|:--|"), len(made),
                f"How this was made, in {len(made)} runs")])


def _made(run: dict[str, Any]) -> tuple[str, str, str]:
    """Day, commit and machine of a record."""
    made = run["environment"]
    return made["created"][:10], made["commit"], literal(made["hardware"])


def mutation(book: Path) -> str:
    """Tables of how many small changes of each module its tests notice, and which they do not."""
    found = json.loads(MUTATION.read_text(encoding="utf-8"))
    rows = sorted(found["rows"], key=lambda row: row["module"])
    first, tried = (sum(row[name] for row in rows) for name in ("first", "tried"))
    value, low, high = (100 * share for share in _noticed_at_first(rows))
    survivors = [(row["module"], one) for row in rows for one in row["survivors"]]
    modules = [[f"`{row['module']}`", f"{row['mutants']:,}", row["tried"], row["first"],
                row["killed"], sum(bool(one["reason"]) for one in row["survivors"])]
               for row in rows]
    return "\n".join([
        *table(["changes that were noticed", "%", "95 % interval", "changes"],
               [["when they were drawn, mean over modules", f"**{value:.0f}**",
                 f"{low:.0f} to {high:.0f}", f"{first} of {tried}"]]), "",
        *folded(table(["module", "possible", "tried", "noticed at first", "noticed now",
                       "make no difference"], modules, options=COUNTED), len(rows)),
        *folded(table(["module, line", "change", "why no test notices it"], [
            [f"`{module}`, {one['line']}", literal(one["change"]),
             one["reason"] or UNNOTICED[one["tests"] > 0]] for module, one in survivors],
            "|:--|:--|:--|"), len(survivors), "Changes that no test noticed"), "",
        *table(["command", "most changes of a module", *MADE],
               [[f"`{found['command']}`", found["settings"]["most"], *_made(found)]],
               "|:--|--:|:--|:--|:--|")])


def _noticed_at_first(rows: list[dict[str, Any]]) -> Interval:
    """The share of changes that a test noticed when they were first tried, as a mean of modules."""
    values = [value for row in rows
              for value in [1] * row["first"] + [0] * (row["tried"] - row["first"])]
    modules = [row["module"] for row in rows for _ in range(row["tried"])]
    return interval(values, strata=modules, bounds=SHARE, cases=len(values))


def figures_and_tables(book: Path) -> str:
    """Picture, number, link and first sentence of all figures by chapter; tables are folded."""
    lines = []
    for part, found in by_part(book):
        lines += [f"## {part}", ""]
        for name, notebook in found:
            own = items(notebook, name)
            listed = {kind: [f"- {thumbnail(notebook, item)}{{numref}}`{item.label}`: "
                             f"{SENTENCE.split(item.caption)[0]}" for item in own
                             if item.kind == kind] for kind in ("figure", "table")}
            count = len(listed["table"])
            if own:
                lines += [f"### {title(notebook)}", "", "::::{div} rm-thumbs",
                          *listed["figure"], "", *(folded(listed["table"], count, f"{count} table"
                                                   + "s" * (count > 1)) if count else ()),
                          "::::", ""]
    return "\n".join(lines)


def parameters(book: Path) -> str:
    """A folded table of the parameters of each chapter: name, default, type, meaning."""
    lines = []
    for part, found in by_part(book):
        lines += [f"## {part}", "", "::::{div} rm-listing"]
        for name, notebook in found:
            own = read_parameters(book / "chapters" / f"{name}.ipynb").values()
            rows = [[*map(_code, (p.name, repr(p.default), p.annotation)), literal(p.comment)]
                    for p in own]
            names = ", ".join([*(p.name for p in own)][:NAMED] + ["..."] * (len(own) > NAMED))
            if rows:
                lines += folded(table(["name", "default", "type", "meaning"], rows,
                                      "|:--|:--|:--|:--|"), len(rows),
                                f"{title(notebook).replace('`', '')}: {names}")
        lines += ["::::", ""]
    return "\n".join(lines)


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def found(book: Path, *names: str) -> str:
    """A list of chapters, each with its question and what its box says first."""
    told, lines = dict(chapters(book)), ["::::{div} rm-listing"]
    for name in names:
        boxes = [box for cell in (told[name].cells if name in told else ()) for one in shown(cell)
                 if (box := BeautifulSoup(one.data.get("text/html", ""), "html.parser").select_one(
                     ".rm-found"))]
        if not boxes:
            raise UserError(f"no chapter {name!r} has a box of what was found")
        label = re.findall(r"^\((.+)\)=", told[name].cells[0].source)[0]
        question, first = (literal(boxes[0].select(part)[0].get_text()) for part in ("p", "li"))
        lines.append(f"- **{{ref}}`{label}`**\\\n  {question} *{first}*")
    return "\n".join([*lines, "::::"])


def errata(book: Path) -> str:
    """All disagreements that the audit finds, the largest first: both values with their places,
    what they touch."""
    findings = audit()
    wrong = findings[~findings["agrees"]]
    gains = beside_gains(findings, load_tables()).set_index("model")
    parts, number = [], 0
    for where, rows in _linked(wrong).items():
        lines = [[f"**E{number}**", literal(row.what), _printed(row.value_a, row.place_a),
                  _printed(row.value_b, row.place_b), _touched(row, gains)]
                 for number, row in enumerate(rows, number + 1)]
        number += len(rows)
        kinds = ", ".join(dict.fromkeys(row.check for row in rows))
        parts += [f"## {literal(where)}", "", *folded(
            table(["", "what", "printed", "and", "affects"], lines, "|:--|:--|:--|:--|:--|"),
            len(rows), f"{len(rows)} pairs: {kinds}" if len(rows) > MOST_OPEN else ""), ""]
    return "\n".join(parts)


def _linked(wrong: pd.DataFrame) -> dict[str, list]:
    """Pairs that are linked by the table or passage of one of their values, by these places; the
    largest differences first."""
    groups: list[tuple[set[str], list]] = []
    for row in wrong.itertuples():
        places, rows = {_place(row.place_a), _place(row.place_b)}, [row]
        for other in [group for group in groups if group[0] & places]:
            groups.remove(other)
            places, rows = other[0] | places, other[1] + rows
        groups.append((places, sorted(rows, key=_size)))
    return {_named(places): rows
            for places, rows in sorted(groups, key=lambda group: _size(group[1][0]))}


def _size(row: Any) -> float:
    return -np.nan_to_num(abs(row.difference))  # nothing is subtracted where a mark is wrong


def _named(places: set[str]) -> str:
    """Name the places of a group, as "Table 4 and Japanese Table 3 (Olmo-3-7B-Think)"; a whole
    table is left out beside a part of it."""
    parts = [place for place in sorted(places)
             if not any(other.startswith(f"{place}:") for other in places)]
    tables, models = [], dict[str, None]()
    for place in parts:
        japanese, rest = place.startswith("ja "), place.removeprefix("en ").removeprefix("ja ")
        table, _, model = rest.partition(": ")
        tables.append(f"Japanese {table}" if japanese else table)
        if model:
            models[model] = None
    return join(tables) + (f" ({', '.join(models)})" if models else "")


def _place(printed: str) -> str:
    """The rows of one model in a table, a section or a figure; all published scores are one."""
    part = printed.split(" / ")[0]
    return part if part != printed else re.split("[:,]", printed)[0]


def _printed(value: float | str, place: str) -> str:
    shown = literal(value) if isinstance(value, str) else "–" if pd.isna(value) else f"{value:.6g}"
    return f"{shown} ({literal(edition(place))})"


def _touched(row: tuple, gains: pd.DataFrame) -> str:
    model = row.what.split(",")[0].split(":")[0]
    if row.check in ABOUT_SENTENCES:
        return "the sentence that is quoted"
    if row.check in ABOUT_SCORES and row.what.endswith("Average") and model in gains.index:
        least, most = gains.loc[model, ["smallest_gain", "largest_gain"]]
        return (f"an average, by {abs(row.difference):.2f} points; RetMask is reported to gain "
                f"{least:.2f} to {most:.2f} on it")
    return TOUCHES.get(row.check, "the scores in this row")


def bibtex(book: Path, *keys: str) -> str:
    """Entries of the book's bibliography as they stand in its file."""
    text = (book / "references.bib").read_text(encoding="utf-8")
    entries = {found[1]: found[0] for found in re.finditer(r"^@\w+\{([^,]+),.*?^\}", text,
                                                           re.MULTILINE | re.DOTALL)}
    if unknown := set(keys) - set(entries):
        raise UserError(f"references.bib has no entry {', '.join(sorted(unknown))}")
    return "\n".join(["```bibtex", "\n\n".join(entries[key] for key in keys), "```"])


def citation(book: Path) -> str:
    """This project as `CITATION.cff` describes it: a line, and an entry for a bibliography."""
    known = read_yaml(CITATION)
    authors = [one.get("name") or f"{one['family-names']}, {one['given-names']}"
               for one in known["authors"]]
    fields = {"title": f"{{{known['title']}}}", "author": " and ".join(f"{{{a}}}" for a in authors),
              "version": known["version"], "license": known["license"],
              "year": str(known.get("date-released", ""))[:4],
              "doi": known.get("doi"), "url": known.get("url") or known.get("repository-code")}
    entry = [f"  {name:<7} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([
        f"{literal(', '.join(authors))}. *{literal(known['title'])}*, version "
        f"{literal(str(known['version']))}. {literal(known['license'])}.", "",
        "```bibtex", "@software{retmaskreproduced,", *entry, "}", "```"])


def points(book: Path) -> str:
    """A table of the points of the worksheets, and how many their checks give."""
    checked, whole = self_checking_points(NOTEBOOKS)
    return "\n".join(table(["points of all worksheets", "given by checks", "share"],
                           [[whole, checked, f"{checked / whole:.0%}"]], "|--:|--:|--:|"))


def changes(book: Path) -> str:
    """What each version changed, in a sentence, and which printed numbers moved."""
    shown = []
    for part in re.split(r"^## ", CHANGELOG.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        version = re.sub(r"[\[\]]", "", title).replace(" - ", ", ").replace(
            "Unreleased", "Not released yet")
        what = text.strip().split("\n", 1)[0]
        moved = re.search(r"^### Numbers that moved\n\n((?:- .+\n)+)", text, re.MULTILINE)
        shown += [f"## {version}", *([] if what.startswith("#") else [what]),
                  *(["Numbers that moved:", moved[1]] if moved else [])]
    return "\n\n".join(shown)


def playground_speed(book: Path) -> str:
    """What the playground's real model takes, and how much of that the kernel alone would."""
    found = speed.load("playground")

    def typical(column: str, **key: object) -> float:
        return float(np.median(found.find(**key)[0][column]))

    memory, weights = found.find(what="memory")[0], found.find(what="weights")[0]
    prompt, first = typical("tokens", what="first"), typical("seconds", what="first")
    rates = {rows: typical("per_second", what="kernel", tokens=rows) for rows in (1, 32)}
    reading = prompt * weights["layers"] / rates[32] + weights["words"] / rates[1]
    writing = (weights["layers"] + weights["words"]) / rates[1]
    step = 1 / typical("per_second", what="first")
    rows = {
        "load the model, from a web server":
            f"{typical('seconds', what='load', **{'from': 'server'}):.1f} s",
        "load the model, from a folder":
            f"{typical('seconds', what='load', **{'from': 'folder'}):.1f} s",
        f"read a prompt of {prompt:.0f} tokens and write the first of the answer":
            f"{first:.1f} s; the kernel's products alone, {reading:.1f} s",
        "write each later token":
            f"{1000 * step:.0f} ms; the kernel's products alone, {1000 * writing:.0f} ms",
        "begin another answer about the same text":
            f"{1000 * typical('seconds', what='again'):.0f} ms",
        "memory of the tab, with the model and with both answers":
            f"{memory['loaded'] / 1e6:.0f} and {memory['answered'] / 1e6:.0f} MB",
        "measured by": f"`{found.command}`, {found.environment['created'][:10]}, "
                       f"{found.environment['hardware'].split(',')[0]}"}
    return "\n".join(table(["what", "takes"], rows.items(), "|:--|:--|"))


WRITERS: dict[str, Callable[..., str]] = {
    "playground-speed": playground_speed,
    "figures-and-tables": figures_and_tables,
    "parameters": parameters,
    "found": found,
    "errata": errata,
    "bibtex": bibtex,
    "citation": citation,
    "changes": changes,
    "points": points,
    "faults": faults,
    "mutation": mutation,
    "walk": walk,
    "coverage": covered.coverage,
    "coverage-in-all": covered.in_all,
    "japanese-tables": covered.japanese_tables,
    "chosen-settings": covered.chosen_settings,
    "head-groups": covered.head_groups,
    "standards": standards,
    "standards-no": missing,
}
"""Each is given the book's folder and the words after its name, and returns Markdown."""


class Generated(SphinxDirective):
    """`{generated} NAME WORDS ...`: what the writer of that name makes of the words."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Put the text where the directive stands; with headings it cannot be handed back."""
        name, *rest = " ".join(self.arguments).split()
        if name not in WRITERS:
            raise self.error(f"nothing is generated as {name!r}; there is {', '.join(WRITERS)}")
        try:
            text = WRITERS[name](Path(self.env.srcdir), *rest)
        except UserError as wrong:
            raise self.error(str(wrong)) from wrong
        self.state.nested_parse(StringList(text.splitlines(), name), 0, self.state_machine.node,
                                match_titles=True)
        return []


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    app.add_directive("generated", Generated)
