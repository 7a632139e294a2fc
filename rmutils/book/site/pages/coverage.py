"""What became of every item of the five papers (`data/coverage.yml` and the list of claims)."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rmutils.book.chapters.share_attention.findings import key_groups
from rmutils.book.claims.small_checks import planned_flattery
from rmutils.book.site.pages import COVERAGE
from rmutils.book.site.pages.items import folded, literal, table
from rmutils.core.files import read_yaml
from rmutils.core.paths import DATA
from rmutils.paper import load_tables
from rmutils.paper.tables import EDITIONS

SIGNS = {"live": "● live", "stored": "◆ stored", "transcribed": "○ transcribed",
         "left out": "– left out"}
"""States of an item, and how the page shows them."""
CLAIMS = "Claims of both RetMask editions"
MEANING = {
    "live": "computed while the book is built",
    "stored": "measured by longer runs, whose results ship with the book",
    "transcribed": "told as printed; nothing to measure, or not measured",
    "left out": "not reproduced, with the reason",
}
NOT_YET = "not computed yet"  # words of the reason why an item waits for runs


def read_coverage() -> list[dict[str, Any]]:
    """All papers with their items; those of `CLAIMS` follow from the list of claims."""
    found: list[dict[str, Any]] = read_yaml(COVERAGE)
    claims = read_yaml(DATA / "paper/claims.yml")
    waiting = {place: item["why"] for paper in found for item in paper["items"]
               if NOT_YET in item.get("why", "") for place in item.get("where", ())}
    return [*found[:2], {"paper": CLAIMS, "items": [_claim(one, waiting) for one in claims]},
            *found[2:]]


def _claim(claim: dict[str, Any], waiting: Mapping[str, str]) -> dict[str, Any]:
    """The item of a claim; one whose table waits for runs is left out for the same reason."""
    first, place = claim["said"][0], f"claim:{claim['id']}"
    why = claim.get("untestable") or waiting.get(place)
    return {"item": first["place"], "what": first["as_printed"], "where": [place],
            **({"state": "left out", "why": why} if why else {"state": "stored"})}


def coverage(book: Path) -> str:
    """A folded table of each paper's items: state, reason, and where it is."""
    parts = []
    for paper in read_coverage():
        items = paper["items"]
        parts += folded(table(["item", "what", "state, and where"], map(_row, items),
                              "|:--|:--|:--|", {"width": "100%", "widths": "22 30 48"}),
                        len(items), f"{paper['paper']}, {len(items)} items: {_told(items)}")
    return "\n".join(parts)


def in_all(book: Path) -> str:
    """How many items are in each state, and what that means."""
    counts = Counter(item["state"] for paper in read_coverage() for item in paper["items"])
    return "\n".join(table(["items", "state", "which means"], [
        [f"**{counts[state]}**", sign, MEANING[state]] for state, sign in SIGNS.items()],
        "|--:|:--|:--|"))


def _told(items: list[dict[str, Any]]) -> str:
    counts = Counter(item["state"] for item in items)
    return ", ".join(f"{counts[state]} {state}" for state in SIGNS if counts[state])


def _row(item: dict[str, Any]) -> list[str]:
    links = ", ".join(map(_link, item.get("where", ())))
    state = " ".join(filter(None, [f"**{SIGNS[item['state']]}**", item.get("why"), links]))
    return [literal(item["item"]), literal(item["what"]), state]


def _link(place: str) -> str:
    kind, _, name = place.partition(":")
    if kind == "claim":
        return f"{{ref}}`claims` (`{name}`)"
    if kind == "stored":
        return f"`data/artifacts/{name}`"
    if kind in ("table", "companion"):
        source, _, table = name.partition("/")
        return "as printed: " + (f"Table {table}, {EDITIONS[source]}" if kind == "table" else
                                 literal(table))
    return f"`{place}`" if "/" in place else f"{{ref}}`{place}`"


def japanese_tables(book: Path) -> str:
    """Tables 1 to 7 of the Japanese edition, as printed, each folded."""
    printed = load_tables().query("source == 'ja'")
    parts = []
    for number, rows in printed.groupby("table", sort=True):
        for group, part in rows.groupby("group", sort=False):
            wide = part.pivot_table(index="row", columns="column", values="value", sort=False)
            parts += folded(table(["", *map(literal, wide)], [
                [literal(name), *("" if pd.isna(value) else f"{value:.2f}" for value in values)]
                for name, *values in wide.itertuples()]), len(wide), f"Table {number}, {group}")
    return "\n".join(parts)


FLATTERY_COLUMNS = ["model", "settings to choose from", "lead on the texts that chose",
                    "lead on other texts", "flattery"]
GROUP_COLUMNS = ["model", "distance, same key head", "distance, other heads",
                 "difference, 95 % interval over layers", "layers where smaller"]


def chosen_settings(book: Path) -> str:
    """What choosing a setting by an evaluation adds to the score that it reports."""
    return "\n".join(table(FLATTERY_COLUMNS, [
        [row.model, row.settings, f"{row.shown:.2f}", f"{row.real:.2f}", f"{row.flattery:.2f}"]
        for row in planned_flattery().itertuples()]))


def head_groups(book: Path) -> str:
    """Distances of heads, within key groups and otherwise."""
    return "\n".join(table(GROUP_COLUMNS, [
        [model, *(f"{layers[where].mean():.3f}" for where in layers),
         f"{more.value:.3f} [{more.low:.3f}, {more.high:.3f}]",
         f"{(layers['within'] < layers['otherwise']).sum()} of {len(layers)}"]
        for model, (layers, more) in key_groups().items()]))
