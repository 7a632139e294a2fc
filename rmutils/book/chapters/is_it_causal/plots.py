"""Figures and sentences about exchanged heads: what they return, what they lose, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.chapters.is_it_causal.effects import (
    LEAST,
    compare_leaders,
    effects,
    imbalance,
    own_heads,
    room,
    token_leaders,
)
from rmutils.book.chapters.is_it_causal.experiment import COPY, REMOVE, RESTORE, IsItCausal, Leaders
from rmutils.book.figures.report import by_sign, join, number
from rmutils.book.figures.style import BLUE, GREY, INK, ORANGE, RED, WIDTH
from rmutils.heads.scores import Head
from rmutils.stats import Interval

CEILING = 0.95
"""Share of tokens that are right: above it, own heads have no room to return more than others."""
VERBS = {RESTORE: "restoring", REMOVE: "removing"}
VERDICTS = {(True, True): "sufficient and necessary beyond the control",
            (True, False): "sufficient beyond the control, and it is undecided whether they are "
            "necessary",
            (False, True): "necessary beyond the control, and it is undecided whether they are "
            "sufficient",
            (False, False): "undecided in both directions"}
"""By whether restoring, and removing, is clear of the control."""


def exchanged_sets(results: Mapping[str, IsItCausal]) -> Figure:
    """Tokens of the answer that are right by how many heads are restored, or removed, with 95 %
    intervals.
    """
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    panels = figure.subplots(2, len(results), sharey=True, squeeze=False)
    for column, (model, result) in enumerate(results.items()):
        table, start = effects(result), 1 - room(result).value
        for axes, way, sign, base in ((panels[0, column], RESTORE, 1, start),
                                      (panels[1, column], REMOVE, -1, 1.0)):
            part = table[table["way"] == way]
            counts = sorted(part["count"].unique())
            lines = [(colour, marker, f"by {kind}", part.loc[part["kind"] == kind, "top"])
                     for colour, marker, kind in zip((RED, ORANGE), "os", part["kind"].unique(),
                                                     strict=False)]
            lines.append((BLUE, "^", "others, same layers",
                          part.loc[part["kind"] == COPY, "control"]))
            for shift, (colour, marker, label, found) in enumerate(lines):
                value, low, high = (base + sign * np.array([[*one] for one in found], float)).T
                place = np.arange(1, len(counts) + 1) + 0.09 * (shift - 1)
                axes.plot([0, *place], [base, *value], color=colour, lw=1.2, marker=marker, ms=4,
                          label=label)
                axes.vlines(place, np.minimum(low, high), np.maximum(low, high), color=colour, lw=1)
            axes.axhline(start if way == REMOVE else 1.0, color=GREY, lw=0.8, ls=":")
            axes.set_xticks(range(len(counts) + 1), [0, *counts], fontsize=9)
            axes.tick_params(labelsize=9)
        panels[0, column].set_title(model, fontsize=9.5)
    for axes, way in zip(panels[:, 0], (RESTORE, REMOVE), strict=True):
        axes.set_ylabel(f"tokens right, heads {way}d", fontsize=9)
        axes.set_ylim(-0.03, 1.05)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), fontsize=9, ncols=3,
                  loc="outside upper left", handlelength=1.2)
    figure.supxlabel("heads exchanged together (dotted: all heads)", fontsize=9.5)
    return figure


def necessary_against_sufficient(results: Mapping[str, IsItCausal], named: int = 1) -> Figure:
    """Each head alone: nats of an answer that it restores, and that removing it loses."""
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, (model, result) in zip(panels, results.items(), strict=True):
        heads = single_heads_mean(result)
        axes.plot(heads["restored"], heads["removed"], "o", ms=3, color=BLUE, alpha=0.6)
        most = float(heads[["restored", "removed"]].max().max())
        axes.plot([0, most], [0, most], color=GREY, lw=0.8, ls=":")
        for head, row in heads.nlargest(named, "restored").iterrows():
            axes.annotate("-".join(map(str, head)), (row["restored"], row["removed"]),
                          xytext=(-9, 5), textcoords="offset points", fontsize=9)
        axes.margins(0.12)
        axes.set_title(model, fontsize=9.5)
        axes.tick_params(labelsize=9)
    panels[0].set_ylabel("lost without it (nats)", fontsize=9.5)
    figure.supxlabel("restored by the head alone (nats of an answer)", fontsize=9.5)
    return figure


def single_heads_mean(result: IsItCausal) -> pd.DataFrame:
    """Nats of an answer, mean over answers: `restored` and `removed` by (layer, head)."""
    answers = result.singles.groupby(["case", "layer", "head"])[["restored", "removed"]].sum()
    return answers.groupby(level=["layer", "head"]).mean()


def restored_by_token(result: IsItCausal, model: str, top: int = 8) -> Figure:
    """One answer token by token: what each head restores alone. A dot marks the token's leader.

    It is the answer with most tokens, the first of those that are alike.
    """
    case = result.singles.groupby("case", sort=False)["step"].nunique().idxmax()
    part = result.singles[result.singles["case"] == case]
    leaders = token_leaders(result).query("case == @case").set_index("step")["leader"]
    grid = part.pivot(index=["layer", "head"], columns="step", values="restored")
    shown = list(dict.fromkeys([*grid.sum(axis=1).nlargest(top).index, *leaders]))
    grid = grid.loc[shown]
    words = part.drop_duplicates("step").sort_values("step")["token"]
    figure = Figure(figsize=(WIDTH, 1.3 + 0.24 * len(grid)), layout="constrained")
    axes = figure.subplots()
    most = float(np.abs(grid.to_numpy()).max())
    mesh = axes.pcolormesh(grid.to_numpy(), cmap="PuOr_r", vmin=-most, vmax=most,
                           edgecolor="face", linewidth=0.3)
    axes.plot([grid.columns.get_loc(step) + 0.5 for step in leaders.index],
              [shown.index(head) + 0.5 for head in leaders], "o", color="black", ms=4)
    axes.set_yticks(np.arange(len(grid)) + 0.5, ["-".join(map(str, head)) for head in shown],
                    fontsize=9)
    axes.set_xticks(np.arange(len(words)) + 0.5, words.str.strip().str.replace("$", r"\$"),
                    rotation=45, ha="right", fontsize=9)
    axes.invert_yaxis()
    axes.set_title(f"{model}: what each head restores alone", loc="left", fontsize=10)
    figure.colorbar(mesh, ax=axes, label="nats", pad=0.01)
    return figure


def _points(found: Interval) -> str:
    return number(*(100 * end for end in found))


def finding(model: str, result: IsItCausal, level: float) -> str:
    """Say by the rule of the plan whether the top heads are necessary or sufficient.

    Scores that choose the same heads are named together.
    """
    there, table = room(result), effects(result)
    if there.value < 0.1:
        return (f"- **{model}**: without the needle, {1 - there.value:.0%} of the answer's tokens "
                f"are right already, so nothing can be returned or lost.")
    count = int(table["count"].min())
    alike: dict[frozenset[Head], list[str]] = {}
    for kind in table["kind"].unique():
        alike.setdefault(frozenset(result.ranking(kind)[:count]), []).append(kind)
    told: list[str] = []
    verdicts: list[str] = []
    for kinds in alike.values():
        rows = table[(table["kind"] == kinds[0]) & (table["count"] == count)].set_index("way")
        verdict = VERDICTS[tuple(_clear(rows.loc[way], level) for way in (RESTORE, REMOVE))]
        if verdict in verdicts:
            told.append(f"So are those by {join(kinds)}.")
            continue
        verdicts = [verdict]
        same = ", the same heads," * (len(kinds) > 1)
        less = imbalance(result, kinds[0], count)
        fewer = Interval(-less.value, -less.high, -less.low)
        told.append(
            f"The top {count} by {join(kinds)}{same} are {verdict}: restoring them returns "
            f"{_points(rows.loc[RESTORE, 'top'])} tokens of 100, and removing them loses "
            + by_sign(less, f"{_points(less)} more than that (rather necessary than sufficient).",
                      f"{_points(fewer)} fewer than that (rather sufficient than necessary).",
                      f"not surely more or fewer ({_points(less)})."))
    return f"- **{model}**. {' '.join(told)}"


def _clear(row: pd.Series, level: float) -> bool:
    return bool(row["p_holm"] < level and row["difference"].low > 0)


def across_models(results: Mapping[str, IsItCausal], way: str, level: float) -> str:
    """Say in how many models the heads that copy most are necessary, or sufficient.

    Numbers are those of the model in which they differ most from others of their layers.
    """
    rows = {}
    for model, result in results.items():
        table = effects(result)
        part = table[(table["way"] == way) & (table["kind"] == COPY)]
        rows[model] = part.sort_values("count").iloc[0]
    able = [model for model, row in rows.items() if row["least_p"] < level]
    clear = [model for model in able if _clear(rows[model], level)]
    most = max(clear or rows, key=lambda model: rows[model]["difference"].value)
    undecided = ", ".join(f"`{model}`" for model in able if model not in clear)
    few = ", ".join(f"`{model}`, of which {rows[model]['needles']} needles count"
                    for model in rows if model not in able)
    left = "; ".join(f"{why}: {names}" for why, names in (
        ("undecided", undecided), ("could not have shown it", few)) if names)
    verb, verbs = ("return", "returns") if way == RESTORE else ("lose", "loses")
    return (f"**{VERBS[way].capitalize()} the few heads that copy most {verbs} more of an answer "
            f"than {VERBS[way]} others of their layers in {len(clear)} of {len(able)} models "
            f"that could show it**{f' ({left})' if left else ''}. The difference is largest on "
            f"`{most}`: of 100 tokens, these heads {verb} {_points(rows[most]['top'])} and others "
            f"{_points(rows[most]['control'])}.")


def same_at_every_token(results: Mapping[str, IsItCausal], level: float) -> str:
    """Say whether the heads that restore one token restore the next as well.

    Models in which even the heads of another token return nearly everything cannot tell. Numbers
    are those of the model in which the two differ most.
    """
    found = own_heads(results)
    full = [model for model, one in found.items() if one.shifted > CEILING]
    seen = [model for model in found if model not in full]
    if not seen:
        return ("**Whether the heads that matter change from token to token could not have been "
                "shown:** the heads of another token already make nearly every token right.")
    clear = [model for model in seen if found[model].p < level and found[model].more.low > 0]
    lead = (f"The heads that matter change from token to token in {len(clear)} of {len(seen)} "
            f"models that can tell" if clear else
            "No model shows that the heads that matter change from token to token")
    most = max(clear or seen, key=lambda model: found[model].more.value)
    return (f"**{lead}.** On `{most}`, each token's own heads return {_points(found[most].more)} "
            "of 100 tokens more than the heads of the token before it"
            + (f"; on {join(f'`{model}`' for model in full)} the heads of any token return "
               "everything, so a change could not have been shown." if full else "."))


def leaders_told(model: str, result: IsItCausal) -> str:
    """Say how many heads lead at some token, and how often the most frequent one does."""
    table = token_leaders(result)
    often = table["leader"].value_counts()
    layer, head = often.index[0]
    return (f"- **{model}**: {len(often)} heads restore most of a token. The most frequent, "
            f"{layer}-{head}, leads at {often.iloc[0]} of {len(table)} tokens (those of which a "
            f"head restores {LEAST:g} nats or more).")


def copy_scores_by_length(table: pd.DataFrame, heads: Sequence[Head]) -> Figure:
    """Copy scores of two heads over the length of the prompt, and their difference."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    scores, less = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    for (layer, head), column, colour, marker in zip(
            heads, ("first", "second"), (BLUE, RED), ("o", "s"), strict=True):
        scores.plot(table["length"], table[column], color=colour, marker=marker, ms=4,
                    label=f"head {layer}-{head}")
    scores.legend(fontsize=9)
    value, low, high = np.array([[*one] for one in table["difference"]], float).T
    less.axhline(0, color=GREY, lw=0.8)
    less.vlines(table["length"], low, high, color=INK, lw=1.2)
    less.plot(table["length"], value, "o", color=INK, ms=4)
    scores.set_ylabel("copy score", fontsize=9.5)
    less.set_ylabel("difference", fontsize=9.5)
    less.set_xscale("log", base=2)
    less.set_xticks(table["length"], [f"{n:,}" for n in table["length"]], fontsize=9)
    less.set_xlabel("prompt length (tokens)", fontsize=9.5)
    return figure


def leaders_by_length_told(
    table: pd.DataFrame, heads: Sequence[Head], leaders: Leaders | None, level: float
) -> str:
    """Say at which lengths each of two heads leads, and which restores more there."""
    first, second = (f"{layer}-{head}" for layer, head in heads)
    names = []
    for rows in (table, table[table["p_holm"] < level]):
        parts = [f"head {name} at {_span(lengths)} tokens"
                 for name, sign in ((first, 1), (second, -1))
                 if (lengths := [row.length for row in rows.itertuples()
                                 if sign * row.difference.value > 0])]
        names.append(" and ".join(parts) or "at none of these lengths")
    copies = (f"The higher copy score has {names[0]}; beyond chance, {names[1]} (p corrected over "
              f"{len(table)} lengths).")
    if leaders is None:
        return f"{copies} What each restores alone was planned and has not been run."
    parts, few = [], []
    for row in compare_leaders(leaders, heads).itertuples():
        found, length = row.difference, row.length
        if row.least_p >= level:
            few.append(f"{row.answers} answers at {length:,} tokens ({number(*found)} nats)")
            continue
        more, neither = (Interval(-found.value, -found.high, -found.low),
                         "neither surely restores more")
        parts.append(f"at {length:,} tokens ({row.answers} answers) " + (by_sign(
            found, f"head {first} restores {number(*found)} nats more",
            f"head {second} restores {number(*more)} nats more",
            neither) if row.p_holm < level else neither))
    told = f" Alone, {join(parts)}." if parts else ""
    blind = (f" Whether head {first} restores more than head {second} could not have been shown by "
             f"{join(few)}: signs of so few cannot give a p below {level:g}." if few else "")
    return f"{copies}{told}{blind}"


def _span(numbers: Sequence[int]) -> str:
    """The lowest and the highest of some numbers in rising order."""
    return " to ".join(dict.fromkeys(f"{end:,}" for end in (numbers[0], numbers[-1])))
