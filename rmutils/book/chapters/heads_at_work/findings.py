"""How often retrieval heads look at the token that comes next, beside others of their layers."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd

from rmutils.book.chapters.heads_at_work.experiment import HEADS_AT_WORK
from rmutils.book.figures.report import number
from rmutils.book.findings import Measured, declare, scaled
from rmutils.core.errors import require
from rmutils.core.results import Artifact
from rmutils.heads.attention_kinds import KINDS
from rmutils.stats import DIFFERENCE, SHARE, Contrast, Interval, contrast, holm, interval

RETRIEVAL, OTHERS = "retrieval heads", "others, same layers"
MEANS = ("distance", "entropy")
POSSIBLE = "copies where possible"
"""The share of copies among the positions at which the next token stands before."""
Tables = Mapping[str, pd.DataFrame]
FIGURE = "fig-heads-at-work"


@cache
def stored() -> dict[str, tuple[Tables, Artifact]]:
    """Look the tables of all models up."""
    return HEADS_AT_WORK.collect().by_model()


def tables_of(model: str) -> tuple[Tables, Artifact]:
    """Return the tables of a model; raise NotStored with the command that makes them."""
    require([] if model in stored() else [HEADS_AT_WORK.command])
    return stored()[model]


def weights(heads: pd.DataFrame) -> dict[str, pd.Series]:
    """Return what each head counts: retrieval heads alike; others so that each layer counts by its
    number of retrieval heads."""
    chosen = heads["retrieval"]
    by_layer = chosen.groupby(heads["layer"])
    count, size = by_layer.transform("sum"), by_layer.transform("size")
    others = (count / (size - count).clip(lower=1)).where(~chosen, 0.0)
    return {RETRIEVAL: chosen / chosen.sum(), OTHERS: others / others.sum()}


def by_window(tables: Tables, group: str) -> pd.DataFrame:
    """Return what a group of heads does in each window, by `text` and `window`."""
    heads = tables["heads"].assign(counts=weights(tables["heads"])[group])
    rows = tables["kinds"].merge(heads, on=["layer", "head"]).merge(
        tables["windows"], on=["text", "window"])
    values = rows[[*KINDS]].div(rows["positions"], axis=0).join(rows[[*MEANS]]).assign(
        **{POSSIBLE: rows["copy"] / rows["copyable"]})
    return values.mul(rows["counts"], axis=0).groupby([rows["text"], rows["window"]]).sum()


def difference(tables: Tables, kind: str) -> Contrast:
    """Compare retrieval heads with the others, window by window."""
    both = by_window(tables, RETRIEVAL)[kind] - by_window(tables, OTHERS)[kind]
    return contrast(both.to_numpy(), np.arange(len(both)),
                    both.index.get_level_values("text").to_numpy(),
                    **({} if kind in MEANS else {"bounds": DIFFERENCE}))


def level(tables: Tables, kind: str, group: str = RETRIEVAL) -> Interval:
    """Return the mean of a group of heads, with its interval over windows."""
    values = by_window(tables, group)[kind]
    return interval(values.to_numpy(), strata=values.index.get_level_values("text").to_numpy(),
                    **({} if kind in MEANS else {"bounds": SHARE}))


def compared(kind: str) -> pd.DataFrame:
    """Apply the plan's rule to a kind, Holm over the models."""
    rows = []
    for model, (tables, _) in stored().items():
        found = difference(tables, kind)
        rows.append({"model": model, "retrieval": level(tables, kind).value,
                     "others": level(tables, kind, OTHERS).value, **found.columns,
                     "smallest_effect": found.smallest_effect, "windows": found.clusters})
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"], len(HEADS_AT_WORK.runs()))) if rows else table


def kinds_table() -> pd.DataFrame:
    """Return all kinds as readers see them: shares in percent, distance, entropy."""
    rows = []
    for kind in (*KINDS, POSSIBLE, *MEANS):
        scale = 1 if kind in MEANS else 100
        rows += [{"model": row.model, "looked at": kind,
                  RETRIEVAL: scale * row.retrieval, OTHERS: scale * row.others,
                  "difference": number(*(scale * end for end in (row.value, row.low, row.high))),
                  "p": f"{row.p_holm:.2g}" if kind in ("copy", "sink") else "",
                  "smallest effect": scale * row.smallest_effect}
                 for row in compared(kind).itertuples()]
    return pd.DataFrame(rows)


def texts_table() -> pd.DataFrame:
    """Return the copies and sinks in each kind of text, in percent."""
    rows = []
    for model, (tables, _) in stored().items():
        both = {group: by_window(tables, group).groupby("text") for group in (RETRIEVAL, OTHERS)}
        about = tables["windows"].groupby("text")[["copyable", "positions"]].sum()
        for text in tables["windows"]["text"].unique():
            rows.append({
                "model": model, "text": text,
                "copy possible": 100 * about.loc[text, "copyable"] / about.loc[text, "positions"],
                **{f"{kind}, {group}": 100 * both[group][kind].mean()[text]
                   for kind in ("copy", "sink") for group in both}})
    return pd.DataFrame(rows)


def examples_table(model: str) -> pd.DataFrame:
    """Return where the highest head of a model looks hardest, as readers see it."""
    shown = tables_of(model)[0]["examples"]
    return pd.DataFrame({
        "text": shown["text"], "rank": shown["rank"], "weight": shown["weight"].round(2),
        "looks at": [f"… {_line(a)} [{_line(b)}]" for a, b in zip(
            shown["before"], shown["seen"], strict=True)],
        "when the text stands at": ["… " + _line(text) for text in shown["here"]],
        "comes next": shown["next"].map(_line), "kind": shown["kind"]})


def _line(text: str) -> str:
    return text.replace("\n", "⏎").strip(" ")[-60:]


@declare("work-share", unit="percent", place=FIGURE, otherwise="{value} % {ci}.")
def share(model: str, kind: str, group: str = RETRIEVAL) -> Measured:
    """Positions at which a group of heads, by default the retrieval heads, looks at a kind."""
    tables, artifact = tables_of(model)
    return Measured(scaled(level(tables, kind, group)), [artifact], len(tables["windows"]),
                    verdict="")


@declare("work-more", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, retrieval heads look at a token of the kind {kind} at {value} percentage points "
    "{ci} {more|less} of the positions than other heads of the same layers: {verdict}."))
def more(model: str, kind: str) -> Measured:
    """Retrieval heads minus others of the same layers."""
    tables, artifact = tables_of(model)
    p = compared(kind).set_index("model").loc[model, "p_holm"]
    return Measured.contrast(difference(tables, kind), [artifact], p=p)


def copies_in(model: str, text: str) -> str:
    """Return the percent of positions in a kind of text at which retrieval heads copy."""
    if model not in stored():
        return "?"
    return f"{100 * by_window(stored()[model][0], RETRIEVAL).loc[text, 'copy'].mean():.1f}"
