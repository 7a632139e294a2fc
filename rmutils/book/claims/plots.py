"""Chapter 10: the list of the paper's claims."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import HTML

from rmutils.book.claims.claim_list import Judged, Part
from rmutils.book.figures.report import counted, sentence, spell
from rmutils.book.figures.style import MODEL_COLOURS
from rmutils.book.figures.training_figures import SIGNS
from rmutils.book.verdicts import AGAINST, BLIND

WIDTH, STEP = 240, 7
"""Width of a row's picture, and the height of an effect in it, in pixels."""


def claim_list(judged: Sequence[Judged]) -> HTML:
    """Show each claim with its verdict, its effects as dots, and behind a click what they are.

    `book/_static/filters.js` adds the filters; without it, and on paper, all claims are listed.
    Each picture has a scale of its own, from the smallest to the largest end of an interval or
    bound; the upright line is the claimed bound. A paler dot is shown beside those that decide.
    """
    rows = "".join(map(_claim_row, judged))
    return HTML(f'<div class="rm-claims"><ol>{rows}</ol></div>')


def _claim_row(one: Judged) -> str:
    sign, kind = SIGNS[one.verdict]
    said = one.claim.said[0]
    known = [part for part in one.parts if part.effect]
    models = sorted({word for part in known for word in map(str, part.of)
                     if word in MODEL_COLOURS})
    parts = "".join(f"<li>{_told(part)}</li>" for part in known) or (
        f"<li>{html.escape(one.note or one.claim.untestable)}</li>")
    return (
        f'<li data-verdict="{one.verdict}" data-section="{html.escape(said.place)}" '
        f'data-model="{html.escape("|".join(models))}"><details><summary>'
        f'<span class="rm-sign rm-{kind}" title="{one.verdict}">{sign}</span>'
        f"<q>{html.escape(said.as_printed)}</q>"
        f"{_picture(known)}</summary>"
        f"<p><strong>{html.escape(one.words.capitalize())}.</strong> {html.escape(said.place)}. "
        f"The test: {html.escape(one.claim.test)}</p><ul>{parts}</ul></details></li>")


def _told(part: Part) -> str:
    effect = part.effect
    sign, kind = SIGNS[part.answer.verdict]
    mark = f'<span class="rm-sign rm-{kind}">{sign}</span>'
    if np.isnan(effect.value):
        of = html.escape(", ".join(map(str, part.of)))
        return f"{mark} {of}: not computed ({html.escape(effect.blocked)})."
    ends = (effect.value, effect.low, effect.high)
    shown = counted(*(part.scale * end for end in ends))
    text = part.sentence.format(effect=shown).replace("`", "")
    text = text[0].upper() + text[1:]
    beside = "" if part.measure.decides else ", shown beside"
    why = f" {effect.blocked}." if effect.blocked else ""
    claimed = part.measure.words_in_units(part.scale)
    return (f"{mark} {html.escape(text)}. Claimed: {html.escape(claimed)}; "
            f"{part.answer.verdict}{beside}.{html.escape(why)}")


def _picture(parts: Sequence[Part]) -> str:
    """The dots of a claim, drawn for any colours of the page."""
    drawn = [part for part in parts if not np.isnan(part.effect.value)]
    if not drawn:
        return f'<svg viewBox="0 0 {WIDTH} {STEP}" aria-hidden="true"></svg>'
    bounds = sorted({b for part in drawn for b in part.measure.bounds if np.isfinite(b)})
    ends = [*bounds, *(e for part in drawn for e in (part.effect.low, part.effect.high))]
    low, high = min(ends), max(ends)

    def x(value: float) -> float:
        return 6 + (WIDTH - 12) * (value - low) / ((high - low) or 1)

    height = STEP * len(drawn) + 4
    marks = [f'<line class="rm-bound" x1="{x(b):.1f}" x2="{x(b):.1f}" y1="0" y2="{height}"/>'
             for b in bounds]
    for place, part in enumerate(drawn):
        y, effect = STEP * (place + 0.5) + 2, part.effect
        pale = "" if part.measure.decides else " rm-pale"
        marks.append(
            f'<g class="rm-{SIGNS[part.answer.verdict][1]}{pale}">'
            f'<line x1="{x(effect.low):.1f}" x2="{x(effect.high):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle cx="{x(effect.value):.1f}" cy="{y}" r="3"/></g>')
    return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{len(drawn)} effects '
            f'beside the claimed bound">{"".join(marks)}</svg>')


CONTROLS = "same_layers"
"""How the name of a quantity ends that compares with other heads of the same layers, by a plan."""


def effects_against(parts: pd.DataFrame) -> str:
    """Say how many of the effects that decide go against the paper, of those that could."""
    heard = parts[parts["decides"] & (parts["verdict"] != BLIND)]
    blind, against = (parts["decides"] & (parts["verdict"] == BLIND)).sum(), (
        heard["verdict"] == AGAINST).sum()
    beside = parts[~parts["decides"] & (parts["verdict"] == AGAINST)
                   & parts["quantity"].str.endswith(CONTROLS)]
    one = len(beside) == 1
    return (f"Of {len(heard)} deciding effects that could go either way, {against or 'none'} "
            f"{'goes' if against == 1 else 'go'} against the paper, after correction for many "
            f"comparisons; {blind} more could not have shown anything."
            + (f" Beside the claims, {spell(len(beside))} planned comparison{'s' * (not one)} "
               f"{'goes' if one else 'go'} the other way: "
               + " ".join(map(_with_claim, beside.itertuples())) if len(beside) else ""))


def _with_claim(row: Any) -> str:
    return f"{sentence(row)} Claimed: {row.claimed_in_units}."


def opposite_shown(parts: pd.DataFrame) -> str:
    """List the effects on the other side of their bound, first those that decide."""
    against = parts[parts["verdict"] == AGAINST].sort_values("p")
    lines = [f"- {_with_claim(row)}" for row in against.itertuples()]
    own = [line for line, decides in zip(lines, against["decides"], strict=True) if decides]
    beside = [line for line in lines if line not in own]
    return "\n".join([*(own or ["No effect that decides a claim contradicts it."]),
                      *(["", "Shown beside the claims, without deciding them:", "", *beside]
                        if beside else [])])
