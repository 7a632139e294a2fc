"""What retrieval heads add to the next token, beside others; and the data of each head's card."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.heads_at_work.cards import HEAD_CARDS
from rmutils.book.chapters.heads_at_work.findings import MEANS, OTHERS, RETRIEVAL, Tables, weights
from rmutils.book.chapters.heads_at_work.findings import tables_of as looked_at
from rmutils.book.figures.report import number
from rmutils.book.findings import Measured, declare
from rmutils.core.errors import require
from rmutils.core.results import Artifact
from rmutils.heads.attention_kinds import KINDS
from rmutils.stats import Contrast, contrast, holm

ADDED = [f"added_{kind}" for kind in KINDS]
UNIT = 1000
"""Contributions are computed in units of 0.001 logits."""
WINDOW = ["text", "window"]
FIGURE = "fig-head-cards"


@cache
def stored() -> dict[str, tuple[Tables, Artifact]]:
    """Look the tables of all models up."""
    return HEAD_CARDS.collect().by_model()


def tables_of(model: str) -> tuple[Tables, Artifact]:
    """Return the tables of a model; raise NotStored with the command that makes them."""
    require([] if model in stored() else [HEAD_CARDS.command])
    return stored()[model]


def by_window(tables: Tables, group: str, *, copying: bool | None = None) -> pd.Series:
    """Return a group's mean contribution at a position in each window, in `UNIT` parts of a logit.
    `copying`: at positions at which the heads copy, or at the others; NaN where there are none."""
    heads = tables["heads"].assign(counts=weights(tables["heads"])[group])
    rows = tables["kinds"].merge(heads, on=["layer", "head"]).query("counts > 0")
    copies = rows["copy"].astype(float)
    added, places = rows[ADDED].sum(axis=1), rows[[*KINDS]].sum(axis=1)
    if copying is not None:
        added, places = ((rows["added_copy"], copies) if copying
                         else (added - rows["added_copy"], places - copies))
    sums = pd.DataFrame({"added": added * rows["counts"], "places": places * rows["counts"]})
    sums = sums.groupby([rows["text"], rows["window"]]).sum()
    return UNIT * sums["added"] / sums["places"].where(sums["places"] > 0)


def _compared(values: pd.Series) -> Contrast:
    """Test differences, one for each window."""
    kept = values.dropna()
    return contrast(kept.to_numpy(), np.arange(len(kept)),
                    kept.index.get_level_values("text").to_numpy())


def difference(tables: Tables) -> Contrast:
    """Compare retrieval heads with the others, window by window."""
    return _compared(by_window(tables, RETRIEVAL) - by_window(tables, OTHERS))


def copying(tables: Tables) -> Contrast:
    """Compare positions at which retrieval heads copy with their others, window by window."""
    return _compared(by_window(tables, RETRIEVAL, copying=True)
                     - by_window(tables, RETRIEVAL, copying=False))


def share_of_copies(tables: Tables) -> tuple[float, float]:
    """Return the part of the contribution added while copying, and the part of such positions."""
    own = tables["heads"].query("retrieval")[["layer", "head"]].merge(tables["kinds"])
    return (own["added_copy"].sum() / own[ADDED].sum().sum(),
            own["copy"].sum() / own[[*KINDS]].to_numpy().sum())


def compared() -> pd.DataFrame:
    """Apply the plan's rules, Holm over the models."""
    rows = []
    for model, (tables, _) in stored().items():
        for outcome, found, levels in (
                ("retrieval heads minus others, same layers", difference(tables), (
                    by_window(tables, RETRIEVAL), by_window(tables, OTHERS))),
                ("retrieval heads: copies minus other positions", copying(tables), (
                    by_window(tables, RETRIEVAL, copying=True),
                    by_window(tables, RETRIEVAL, copying=False)))):
            first, second = (level.mean() for level in levels)
            rows.append({"model": model, "outcome": outcome, "first": first, "second": second,
                         **found.columns, "smallest_effect": found.smallest_effect,
                         "windows": found.clusters})
    table = pd.DataFrame(rows)
    return table.assign(p_holm=table.groupby("outcome")["p"].transform(
        lambda p: holm(p, len(HEAD_CARDS.runs())))) if rows else table


def contributions_table() -> pd.DataFrame:
    """Return both outcomes as readers see them, in logits."""
    return pd.DataFrame([{
        "model": row.model, "contribution": row.outcome,
        "first mean": row.first / UNIT, "second mean": row.second / UNIT,
        "difference": number(row.value / UNIT, row.low / UNIT, row.high / UNIT),
        "p": f"{row.p_holm:.2g}", "smallest effect": row.smallest_effect / UNIT,
        "windows": row.windows}
        for row in compared().itertuples()])


@declare("work-adds-more", unit="logits", place=FIGURE, otherwise=(
    "On {model}, a retrieval head adds {value} logits {more|less} {ci} to the token that "
    "comes next than another head of its layer: {verdict}."))
def adds_more(model: str) -> Measured:
    """Retrieval heads minus others of the same layers."""
    return _measured(model, difference, "retrieval heads minus others, same layers")


@declare("work-adds-copying", unit="logits", place=FIGURE, otherwise=(
    "On {model}, where a retrieval head copies it adds {value} logits {more|less} {ci} to "
    "the token that comes next than elsewhere: {verdict}."))
def adds_copying(model: str) -> Measured:
    """Retrieval heads while they copy minus the same heads elsewhere."""
    return _measured(model, copying, "retrieval heads: copies minus other positions")


def _measured(model: str, compare: Any, outcome: str) -> Measured:
    tables, artifact = tables_of(model)
    p = compared().set_index(["model", "outcome"]).loc[(model, outcome), "p_holm"]
    return Measured.contrast(compare(tables), [artifact], 1 / UNIT, p=p)


def card_data(model: str) -> list[dict[str, Any]]:
    """Return what the card of each head shows."""
    tables, _ = stored().get(model) or looked_at(model)
    grouped = tables["kinds"].groupby(["layer", "head"])
    sums = grouped[[*KINDS]].sum().astype(float)
    places = sums.sum(axis=1)
    shares, means = 100 * sums.div(places, axis=0), grouped[[*MEANS]].mean()
    added = (UNIT * grouped[ADDED].sum().sum(axis=1) / places if model in stored()
             else pd.Series(np.nan, shares.index))
    examples = tables["examples"]
    if "layer" not in examples:  # all of the highest head
        best = tables["heads"].loc[tables["heads"]["score"].idxmax()]
        examples = examples.assign(layer=best["layer"], head=best["head"])
    chosen = {head: [[one.text, round(float(one.weight), 2), one.kind, *map(_line, (
        one.before, one.seen, one.here, one.next))] for one in part.itertuples()]
        for head, part in examples.groupby(["layer", "head"])}
    found = []
    for row in tables["heads"].itertuples():
        head = (int(row.layer), int(row.head))
        adds = added.loc[head]
        found.append({
            "head": [*head], "score": round(float(row.score), 3),
            "shares": shares.loc[head].round(1).tolist(),
            "distance": round(float(means.loc[head, "distance"])),
            "entropy": round(float(means.loc[head, "entropy"]), 1),
            "adds": None if np.isnan(adds) else round(float(adds), 1),
            "examples": chosen.get(head, [])})
    return found


def _line(text: str) -> str:
    return text.replace("\n", "⏎")[-40:]
