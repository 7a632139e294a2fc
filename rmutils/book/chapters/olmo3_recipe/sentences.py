"""What chapter 14 found, in sentences computed from the stored fine-tunes."""

from __future__ import annotations

import pandas as pd

from rmutils.book.chapters.olmo3_recipe.ablations import ARMS, RECIPE, RecipeParts, arm_effects
from rmutils.book.chapters.olmo3_recipe.experiment import (
    Extension,
    at_end,
    differences,
    gained,
    loss_change,
    shares,
)
from rmutils.book.figures.report import by_sign, join, number, spell
from rmutils.longcontext.extension import NONE
from rmutils.stats import Interval, smallest_effect

FULL, ALL = "YaRN, full layers", "YaRN, all layers"
ENDS = ["value", "low", "high"]
ONE_RUN = "(one fine-tune each; intervals over texts)"
"""Another seed would move a difference of two single runs: see `seeds_beside`."""


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
        f"texts of {longest:,} tokens.** With unchanged positions, the same fine-tune ends at "
        f"{number(*found.loc[(longest, NONE)])}."
        + (f" Fewer are found with {_named(fewer)}." if fewer else "")
        + (f" {_named(open_)[0].upper()}{_named(open_)[1:]} may find as many facts, but "
           f"{'they predict' if len(open_) > 1 else 'it predicts'} the text worse, by " + join(
               number(*losses.loc[name]) for name in open_) + f" nats per token {ONE_RUN}."
           if open_ and (losses.loc[open_, "low"] > 0).all() else
           f" With {_named(open_)}, facts decide nothing." if open_ else ""))


def seeds_beside(parts: RecipeParts | None) -> str:
    """Say how far the loss of one recipe moves with its seed, for the differences of single runs;
    empty if fewer than two of its seeds are stored."""
    if parts is None:
        return ""
    losses = at_last(parts.losses)
    own = losses[losses["arm"] == RECIPE].groupby("seed")["loss"].mean()
    return (f"For comparison, the final losses of {spell(len(own))} seeds of one recipe span "
            f"{own.max() - own.min():.3f} nats per token." if len(own) > 1 else "")


def _named(methods: list[str]) -> str:
    """List methods in a sentence, where their commas would be read as the list's."""
    return join(name.replace(", ", " on ") for name in methods)


def sliding_layers(ours: Extension) -> str:
    """Say what YaRN on the sliding layers, too, costs: in loss first, then in facts found."""
    after = loss_change(at_end(ours.losses), FULL).query("method == @ALL")
    worse, better = (after["low"] > 0).sum(), (after["high"] < 0).sum()
    verdict = ("makes the model worse" if worse > len(after) / 2 else "makes the model better"
               if better > len(after) / 2 else "makes no clear difference")
    facts = differences(at_end(ours.found), FULL).query("method == @ALL")
    facts = facts.loc[facts["length"].idxmax()]
    found = Interval(*facts[ENDS])
    return (
        f"**YaRN on the sliding layers as well {verdict}.** Along the longest texts, a token "
        f"costs {after['value'].min():.3f} to {after['value'].max():.3f} nats more {ONE_RUN}, and "
        f"the interval lies above zero at {worse} of {len(after)} positions. The share of facts "
        f"found at {facts['length']:,} tokens differs by {number(*found)}, which " + by_sign(
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
    loss = Interval(*loss_change(by_time, 0, by=()).set_index("method").loc[tokens, ENDS])
    return (
        f"**{tokens:,} tokens of fine-tune " + by_sign(
            loss, "predict the text worse", "predict the text better",
            "do not change how well the text is predicted") + by_sign(
            found, ", and YaRN finds more", ", and YaRN finds less",
            "; that YaRN finds more is not shown") + ".** The loss changes by "
        f"{number(*loss)} nats per token {ONE_RUN}, the share of facts found at {longest:,} tokens "
        f"by {number(*found)}, where a change below about "
        f"{smallest_effect(found.low, found.high):.2f} is likely to be missed.")


def near_and_far(ours: Extension) -> str:
    """Say where along a text YaRN on full layers predicts better than unchanged positions."""
    change = loss_change(at_end(ours.losses), NONE).query("method == @FULL")
    worse, better = change[change["low"] > 0], change[change["high"] < 0]
    return (
        f"YaRN on full layers predicts the text better than unchanged positions at {len(better)} "
        f"of {len(change)} positions"
        + (f", from token {better['position'].min():,} on" if len(better) else "")
        + (f", and worse at {len(worse)}, up to token {worse['position'].max():,}: near its "
           "beginning, where the model needed no help, the extension has a price" if len(worse)
           else "") + ".")


def sliding_table(ours: Extension) -> pd.DataFrame:
    """YaRN on all layers minus YaRN on full layers: loss by position, then facts by length.

    Columns: `measure`, `tokens` (position, or length of the text), the difference with its
    interval, and whether that says that all layers are worse.
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


def which_part(parts: RecipeParts | None) -> str:
    """Say what each part of the recipe is worth in loss; by the rule of
    `data/plans/olmo3_ablations.yml` only if no planned run is missing."""
    if parts is None:
        return "**Which part of the recipe brings the gain?** None of the planned runs is stored."
    state = f"{len(parts.done)} of {parts.planned} planned runs are stored"
    effects = at_last(arm_effects(parts)).query("measure == 'loss'")
    if effects.empty:
        return f"**Which part of the recipe brings the gain has no verdict yet:** {state}."
    if not parts.complete:
        costs = join(f"{number(row.effect, row.low, row.high)} without {ARMS[row.arm].part}"
                     for row in effects.itertuples())
        seeds = effects["seeds"].max()
        return (
            f"**Which part of the recipe brings the gain has no verdict yet: {state}.** Minus the "
            f"whole recipe, a token of the longest texts costs, in nats: {costs}"
            + (". This is one seed: the intervals are over texts, and other documents or another "
               "order would move the numbers." if seeds == 1 else
               f", from up to {seeds} seeds."))
    told = {"higher": [], "lower": [], "undecided": []}
    for row in effects.itertuples():
        shown = Interval(row.effect, row.low, row.high)
        which = by_sign(shown, "higher", "lower", "undecided")
        told[which].append(f"{number(*shown)} without {ARMS[row.arm].part}" + (
            "" if which != "undecided" else
            f" (less than about {row.smallest_effect:.1g} likely missed)"))
    higher = len(told["higher"])
    lead = ("Whatever is left out of the recipe, the loss on long texts is higher"
            if higher == len(effects) else
            f"In {spell(higher)} of {spell(len(effects))} ways to leave something out of the "
            "recipe, the loss on long texts is higher")
    costs = [*told["higher"], *(f"{one}, which is less" for one in told["lower"]),
             *(f"{one}: undecided" for one in told["undecided"])]
    return (f"**{lead}.** Minus the whole recipe, a token of the longest texts costs, in nats: "
            f"{'; '.join(costs)}. "
            + _facts(at_last(arm_effects(parts)).query("measure == 'found'")))


def _facts(effects: pd.DataFrame) -> str:
    """Say whether leaving a part out changes the share of facts found."""
    clear = effects[(effects["low"] > 0) | (effects["high"] < 0)]
    least, most = (100 * end for end in (effects["smallest_effect"].min(),
                                         effects["smallest_effect"].max()))
    return ("Facts found change, in points, by " + join(
        f"{number(*(100 * end for end in (row.effect, row.low, row.high)))} without "
        f"{ARMS[row.arm].part}" for row in clear.itertuples()) + "." if len(clear) else
        "No part is shown to change how many facts are found; the smallest detectable change is "
        f"{least:.0f} to {most:.0f} points.")


def at_last(effects: pd.DataFrame) -> pd.DataFrame:
    """The rows of `arm_effects` after all tokens."""
    return effects[effects["tokens"] == effects["tokens"].max()]


def parts_table(effects: pd.DataFrame) -> pd.DataFrame:
    """Each arm minus the whole recipe after all tokens.

    Columns: `arm`, `without`, `seeds`, and for the loss and for the facts found the difference with
    its interval, p after Holm's correction, and the smallest effect that was likely to be shown.
    """
    rows = []
    for arm, part in at_last(effects).groupby("arm", sort=False):
        row = {"arm": ARMS[arm].label, "without": ARMS[arm].part, "seeds": part["seeds"].max()}
        for measure, name in (("loss", "loss (nats per token)"), ("found", "facts found (share)")):
            own, = part[part["measure"] == measure].itertuples()
            row |= {name: number(own.effect, own.low, own.high), f"p, {measure}": own.p_holm,
                    f"smallest effect, {measure}": own.smallest_effect}
        rows.append(row)
    return pd.DataFrame(rows)
