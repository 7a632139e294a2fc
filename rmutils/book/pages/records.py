"""Pages on record: errata of the paper, how to cite, changes."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import yaml

from rmutils.book.pages import CHANGELOG, CITATION
from rmutils.book.pages.items import literal
from rmutils.errors import UserError
from rmutils.paper import audit, load_tables
from rmutils.paper.consequences import ABOUT_SCORES, ABOUT_SENTENCES, beside_gains

TOUCHES = {
    "bold is best": "which value of a table is marked as the best",
    "caption": "which input lengths a table is about",
    "fact stated twice": "what a reader would do to repeat the experiment",
    "unique failure": "what the caption calls unique to masked retrieval heads",
    "share masked": "the share of heads that section 5.2 says are masked",
    "published scores": "what is said about retrieval scores",
}
"""What a disagreement of a kind bears upon; those about scores and sentences are computed."""


def errata(book: Path) -> str:
    """All disagreements that the audit finds: both values with their places, what they touch."""
    findings = audit()
    wrong = findings[~findings["agrees"]]
    gains = beside_gains(findings, load_tables()).set_index("model")
    parts = [f"{len(wrong)} of {len(findings)} comparisons disagree.", ""]
    number = 0
    for check, rows in wrong.groupby("check", sort=False):
        parts += [f"## {check[0].upper()}{check[1:]}", ""]
        for row in rows.itertuples():
            number += 1
            parts += [f"**E{number}** {literal(row.what)}", "",
                      f"- {_value(row.value_a)} ({literal(row.place_a)})",
                      f"- {_value(row.value_b)} ({literal(row.place_b)})",
                      f"- touches: {_touched(row, gains)}", ""]
    return "\n".join(parts)


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return literal(value)
    return "–" if pd.isna(value) else f"{value:.6g}"


def _touched(row: tuple, gains: pd.DataFrame) -> str:
    model = row.what.split(",")[0].split(":")[0]
    if row.check in ABOUT_SENTENCES:
        return "the sentence that is quoted"
    if row.check in ABOUT_SCORES and row.what.endswith("Average") and model in gains.index:
        least, most = gains.loc[model, ["smallest_gain", "largest_gain"]]
        return (f"an average of {literal(model)}; RetMask is reported to gain {least:.2f} to "
                f"{most:.2f} points on it, this disagreement is {abs(row.difference):.2f}")
    return TOUCHES.get(row.check, "the scores in this row")


def bibtex(book: Path, *keys: str) -> str:
    """Entries of the book's bibliography as they stand in its file.

    Raises
    ------
    UserError
        There is no such entry.
    """
    text = (book / "references.bib").read_text(encoding="utf-8")
    entries = {found[1]: found[0] for found in re.finditer(r"^@\w+\{([^,]+),.*?^\}", text,
                                                           re.MULTILINE | re.DOTALL)}
    if unknown := set(keys) - set(entries):
        raise UserError(f"references.bib has no entry {', '.join(sorted(unknown))}")
    return "\n".join(["```bibtex", "\n\n".join(entries[key] for key in keys), "```"])


def citation(book: Path) -> str:
    """This project as `CITATION.cff` describes it: a line, and an entry for a bibliography."""
    known = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    authors = [one.get("name") or f"{one['family-names']}, {one['given-names']}"
               for one in known["authors"]]
    fields = {"title": f"{{{known['title']}}}", "author": " and ".join(f"{{{a}}}" for a in authors),
              "version": known["version"], "license": known["license"],
              "year": str(known.get("date-released", ""))[:4],
              "url": known.get("url") or known.get("repository-code")}
    entry = [f"  {name:<7} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([
        f"{literal(', '.join(authors))}. *{literal(known['title'])}*, version "
        f"{literal(str(known['version']))}. {literal(known['license'])}.", "",
        "```bibtex", "@software{retmaskreproduced,", *entry, "}", "```"])


def changes(book: Path) -> str:
    """The project's changelog without its heading."""
    return CHANGELOG.read_text(encoding="utf-8").partition("\n")[2]
