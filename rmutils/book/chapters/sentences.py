"""Sentences that say what was found, computed from the results: the finding first, its interval
beside it, and never more than the interval allows.

Pages write no finding by hand, so none outlives the numbers that it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
import yaml

from rmutils.book.chapters.data_and_training.pair_statistics import difference_on_same
from rmutils.book.figures.report import by_sign, join, number
from rmutils.core.paths import DATA

PLAN = DATA / "plans" / "layer_matched.yml"


def missing_from_plan(chapter: str, model: str, draws: int) -> str:
    """Say how many of the layer-matched draws planned for a model are stored, if not all are."""
    plan = yaml.safe_load(PLAN.read_text(encoding="utf-8"))
    part, = (part for part in plan["parts"] if part["chapter"] == chapter)
    return "" if model not in part["models"] or draws >= part["draws"] else (
        f" Of the {part['draws']} layer-matched draws that were planned for {model}, {draws} "
        f"{'is' if draws == 1 else 'are'} stored.")


def _displaced(displaced: int) -> str:
    return (f" In each draw, {displaced} of these heads had to come from another layer, since "
            "their own has too few." if displaced else "")


NEARLY_ALL = 0.9
"""From this share of needles on, little is left to find."""


def little_left(found: Mapping[str, float]) -> str:
    """Say how many models find nearly all needles before a training, and what the others find.

    Parameters
    ----------
    found : mapping
        Model, or model and length -> share of needles.
    """
    others = {name: share for name, share in found.items() if round(share, 9) < NEARLY_ALL}
    many = len(found) - len(others)
    return (f"{many or 'none'} of {len(found)} find at least "
            f"{NEARLY_ALL:.0%} of the needles before RetMask, which leaves little to gain"
            + ("; not so " + join(f"{name} ({share:.0%})" for name, share in others.items())
               if others else "") + ".")


# Chapter 9

EXPECTED = {"names_difference": ("names", "share of the instruction's names that only the chosen "
                                          "response keeps"),
            "gap_mean": ("likelihood", "gap in log-likelihood, nats per token")}


def pairs_beside_controls(
    model: str, own: pd.DataFrame, controls: Mapping[str, Iterable[pd.DataFrame]]
) -> str:
    """Say whether RetMask's pairs are what the chapter expects of them, beside other masks.

    Parameters
    ----------
    own : DataFrame
        Measures of RetMask's pairs by the id of the instruction
        (`rmutils.book.chapters.data_and_training.pair_statistics`).
    controls : mapping
        Name -> the same of other masks, a table for each draw.
    """
    lines = []
    for measure, (name, unit) in EXPECTED.items():
        rows = {control: difference_on_same(own[measure], [t[measure] for t in tables])
                for control, tables in controls.items()}
        rows = {control: both for control, both in rows.items() if both is not None}
        if not rows:
            continue
        held = [control for control, (_, _, less) in rows.items() if less.low > 0]
        against = [control for control, (_, _, less) in rows.items() if less.high < 0]
        lead = ("as expected" if len(held) == len(rows) else
                "the contrary of what we expected" if against else
                "not what we expected" if not held else "only in part as expected")
        lines.append(f"- **{name}: {lead}** ({unit}). " + " ".join(
            f"RetMask {number(*first)} and {control} {number(*second)} on the same instructions, "
            f"which is {by_sign(less, 'more', 'less', 'not surely different')} "
            f"({number(*less)})." for control, (first, second, less) in rows.items()))
    return f"Pairs of {model}:\n\n" + "\n".join(lines)


def names_beyond_controls(
    model: str, own: pd.DataFrame, controls: Mapping[str, Sequence[pd.DataFrame]],
    displaced: int = 0,
) -> str:
    """Say whether RetMask's pairs lose more names than those of other masks.

    Parameters
    ----------
    own, controls
        As for `pairs_beside_controls`.
    displaced : int
        Heads of a layer-matched control that came from another layer.
    """
    told: dict[str, list[str]] = {}
    for name, tables in controls.items():
        both = difference_on_same(own["names_difference"],
                                  [table["names_difference"] for table in tables])
        if both:
            draws = f", {len(tables)} draws" if len(tables) > 1 else ""
            told.setdefault(by_sign(both[2], "more names than those of",
                                    "fewer names than those of",
                                    "no measurably other number than those of"), []).append(
                f"{name} ({number(*(100 * end for end in both[2]))} of 100{draws})")
    return (f"On `{model}`, RetMask's pairs lose "
            + ", but ".join(f"{how} {join(names)}" for how, names in told.items())
            + f".{_displaced(displaced)}")
