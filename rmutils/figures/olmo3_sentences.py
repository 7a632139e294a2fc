"""What chapter 14 found, in sentences computed from the stored fine-tunes."""

from __future__ import annotations

import pandas as pd

from rmutils.experiments.olmo3 import (
    Extension,
    at_end,
    at_start,
    differences,
    gained,
    loss_change,
    shares,
)
from rmutils.figures.report import number
from rmutils.figures.sentences import by_sign, join
from rmutils.longcontext.extension import NONE
from rmutils.stats import Interval, smallest_effect

FULL, ALL = "YaRN, full layers", "YaRN, all layers"
ENDS = ["value", "low", "high"]


def found_at_longest(ours: Extension) -> str:
    """Say how far YaRN on full layers reaches, beside the other methods."""
    found = shares(at_end(ours.found)).set_index(["length", "method"])[ENDS]
    longest = found.index.levels[0].max()
    less = differences(at_end(ours.found), FULL).query(
        "length == @longest and method != @NONE").set_index("method")
    losses = loss_change(at_end(ours.losses), FULL, by=()).set_index("method")
    fewer = [name for name, row in less.iterrows() if row["high"] < 0]
    open_ = [name for name in less.index if name not in fewer]
    return (
        f"**YaRN on the full layers finds {number(*found.loc[(longest, FULL)])} of the facts in "
        f"texts of {longest:,} tokens.** Without an extension the same fine-tune ends at "
        f"{number(*found.loc[(longest, NONE)])}."
        + (f" With {join(fewer)} fewer are found." if fewer else "")
        + (" Facts alone cannot rule out that other methods do as well; the loss per token of the "
           "text, minus that of YaRN on full layers, is " + join(
               f"{number(*losses.loc[name])} nats with {name}" for name in open_) + "."
           if open_ else ""))


def sliding_layers(ours: Extension) -> str:
    """Say what YaRN on the sliding layers, too, costs: in loss first, then in facts found."""
    after = loss_change(at_end(ours.losses), FULL).query("method == @ALL")
    worse, better = (after["low"] > 0).sum(), (after["high"] < 0).sum()
    verdict = ("a worse model" if worse > len(after) / 2 else "a better model"
               if better > len(after) / 2 else "no clear difference")
    start = loss_change(at_start(ours.losses), FULL, by=()).query("method == @ALL")
    facts = differences(at_end(ours.found), FULL).query("method == @ALL")
    facts = facts.loc[facts["length"].idxmax()]
    found = Interval(*facts[ENDS])
    return (
        f"**YaRN on the sliding layers, too, makes {verdict}.** Each token of the longest texts "
        f"then costs {after['value'].min():.3f} to {after['value'].max():.3f} nats more than with "
        f"YaRN on full layers only, and the interval lies above zero at {worse} of {len(after)} "
        f"positions. Before the fine-tune, with the same weights in both, it is "
        f"{number(*start[ENDS].iloc[0])} nats. The share of facts found at {facts['length']:,} "
        f"tokens differs by {number(*found)}, which " + by_sign(
            found, "is a gain", "is a loss, too",
            "decides nothing: a loss below about "
            f"{smallest_effect(found.low, found.high):.2f} is likely to be missed") + ".")


def worth_of_tokens(ours: Extension) -> str:
    """Say what the fine-tune adds to YaRN, in facts and in loss."""
    change = gained(ours.found, FULL)
    longest = change["length"].max()
    found = Interval(*change.set_index("length").loc[longest, ENDS])
    own = ours.losses[ours.losses["method"] == FULL]
    tokens = own["tokens"].max()
    by_time = own.assign(method=own["tokens"])
    loss = loss_change(by_time, 0, by=()).set_index("method").loc[tokens, ENDS]
    return (
        f"**{tokens:,} tokens of fine-tune " + by_sign(
            found, "help YaRN to find more", "make YaRN find less",
            "change little in what YaRN finds") + f".** At {longest:,} tokens the share of "
        f"facts found moves by {number(*found)} (a change below about "
        f"{smallest_effect(found.low, found.high):.2f} is likely to be missed); the loss moves by "
        f"{number(*loss)} nats per token.")


def sliding_table(ours: Extension) -> pd.DataFrame:
    """YaRN on all layers less YaRN on full layers: loss by position, then facts by length.

    Returns
    -------
    DataFrame
        `measure`, `tokens` (position, or length of the text), the difference with its interval, and
        whether that says that all layers are worse.
    """
    loss = loss_change(at_end(ours.losses), FULL).rename(columns={"position": "at"})
    facts = differences(at_end(ours.found), FULL).rename(columns={"length": "at"})
    table = pd.concat([
        loss.assign(measure="loss at position (nats per token)", worse=loss["low"] > 0),
        facts.assign(measure="facts found in texts of (share)", worse=facts["high"] < 0),
    ], ignore_index=True).query("method == @ALL")
    alike = (table["low"] == 0) & (table["high"] == 0)  # both find all, say
    return pd.DataFrame({
        "measure": table["measure"], "tokens": [f"{at:,}" for at in table["at"]],
        "all layers minus full layers": [number(*row) for row in table[ENDS].to_numpy()],
        "all layers worse": table["worse"].map({True: "yes", False: "not shown"}).where(
            ~alike, "no room to show it")})
