"""The answers to reporting standards, each with what shows it (`data/standards.yml`)."""

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from rmutils.book.site.pages import CITATION, FAULTS, STANDARDS
from rmutils.book.site.pages.items import folded, literal, table
from rmutils.core.files import read_yaml
from rmutils.core.paths import DATA, ROOT
from rmutils.paper import audit

SIGNS = {"yes": "✓ yes", "no": "✗ no", "not applicable": "– not applicable"}
"""What can be answered, and how the page shows it."""


def read_standards() -> list[dict[str, Any]]:
    """All standards, with answers and reasons whose facts are filled in."""
    known = facts()
    found = read_yaml(STANDARDS)
    for item in (item for standard in found for item in standard["items"]):
        if item["answer"] not in SIGNS:
            item["answer"] = "yes" if known[item["answer"]] not in ("none", False) else "no"
        item["why"] = item.get("why", "").format_map(known)
    return found


@cache
def facts() -> dict[str, Any]:
    """What answers are computed from."""
    citation = read_yaml(CITATION)
    faults = json.loads(FAULTS.read_text(encoding="utf-8"))["runs"]
    manifests = [json.loads(path.read_text(encoding="utf-8"))
                 for path in (DATA / "artifacts").glob("*/*/*/manifest.json")]
    recorded = sum({"hardware", "packages", "commit"} <= {*one["environment"]} for one in manifests)
    agrees = audit()["agrees"]
    return {
        "claims": len(read_yaml(DATA / "paper/claims.yml")),
        "comparisons": len(agrees), "disagreements": int((~agrees).sum()),
        "doi": citation.get("doi", "none"),
        "faults": f"{sum(row['tried'] for run in faults for row in run['faults']):,}",
        "plans": len([*(DATA / "plans").glob("*.yml")]),
        "recorded": recorded == len(manifests), "recorded_results": recorded,
        "results": len(manifests)}


def evidence() -> list[Path]:
    """The files that answers point to; the pages hold copies of them."""
    found = read_yaml(STANDARDS)
    named = {place.partition("::")[0] for standard in found for item in standard["items"]
             for place in item.get("where", ()) if is_file(place)}
    return [ROOT / name for name in sorted(named)]


def is_file(place: str) -> bool:
    """Whether a place is a file or a test; labels of the book are words without these marks."""
    return "/" in place or "." in place or place[0].isupper()


def missing(book: Path) -> str:
    """All questions that are answered with no, of every standard."""
    return "\n".join(f"- {standard['name']}, {item['id']}: {literal(item['asks'])} {item['why']}"
                     for standard in read_standards() for item in standard["items"]
                     if item["answer"] == "no")


def standards(book: Path) -> str:
    """Each standard: what it is, how many answers of each kind there are, and a table of them."""
    parts = []
    for standard in read_standards():
        counts = Counter(item["answer"] for item in standard["items"])
        told = ", ".join(f"{counts[answer]} {answer}" for answer in SIGNS if counts[answer])
        parts += [f"## {standard['name']}", "",
                  f"{{cite:t}}`{standard['source']}`. {standard['about']} **{told}.**", "",
                  *folded(table(["item", "question", "answer"],
                                [_row(item, book) for item in standard["items"]],
                                "|:--|:--|:--|", {"width": "100%", "widths": "10 36 54"}),
                          len(standard["items"])), ""]
    return "\n".join(parts)


def _row(item: dict[str, Any], book: Path) -> list[str]:
    links = ", ".join(_link(place, book) for place in item.get("where", ()))
    answer = " ".join(filter(None, [f"**{SIGNS[item['answer']]}**", item["why"],
                                    f"*Shown by:* {links}" if links else ""]))
    return [item["id"], literal(item["asks"]), answer]


def _link(place: str, book: Path) -> str:
    if not is_file(place):
        return f"{{ref}}`{place}`"
    name, _, test = place.partition("::")
    shown = f"{name}, {test}" if test else name
    return f"{{download}}`{shown} <{os.path.relpath(ROOT / name, book)}>`"
