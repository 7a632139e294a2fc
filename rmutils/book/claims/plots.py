"""Chapter 10: the list of the paper's claims, and those of the texts beside it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import HTML

from rmutils.attention.select_attention import Select
from rmutils.attention.share_attention import Share
from rmutils.book.chapters.ms_poe import sentences as ms_poe_sentences
from rmutils.book.chapters.olmo3_recipe import sentences as olmo3_sentences
from rmutils.book.chapters.olmo3_recipe.ablations import recipe_parts
from rmutils.book.chapters.olmo3_recipe.experiment import extension_stored
from rmutils.book.chapters.retrieval_heads_under_change.experiment import needles_found
from rmutils.book.chapters.share_attention import later_sharing
from rmutils.book.chapters.share_attention import sentences as sharing_sentences
from rmutils.book.chapters.share_attention.layer_choice import (
    AgreementConfig,
    LayersConfig,
    early_and_later,
    planned_recall,
)
from rmutils.book.chapters.share_attention.savings_curves import look_up, planned_sharing
from rmutils.book.claims.claim_list import Judged, Part
from rmutils.book.experiments.run_costs import roofline
from rmutils.book.experiments.variant_questions import DocumentsConfig
from rmutils.book.figures.report import counted, sentence, spell
from rmutils.book.figures.style import MODEL_COLOURS
from rmutils.book.figures.training_figures import SIGNS
from rmutils.book.verdicts import AGAINST, BLIND
from rmutils.core.errors import NotStored
from rmutils.core.experiment import load_plan
from rmutils.heads.detection import DetectConfig
from rmutils.longcontext.extension import ExtensionConfig

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


MS_POE, SHARE_SELECT, OLMO3 = ("Ms-PoE, the summary", "Taniguchi and others",
                               "Olmo 3, the summary")
LARGE, LAYERS = "smollm2-135m", 30
FILTER = 14
"""Its filter layer in chapter 13."""
NONE = "Not stored."
_PLACES = (0.0, 0.5, 1.0)
ONE_LAYER = LayersConfig(
    variant=Share(threshold=0.9), layers=(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 29),
    needles=DetectConfig(lengths=(512,), depths=_PLACES, needles=3, max_new_tokens=24),
    documents=DocumentsConfig(lengths=(512,), places=_PLACES, questions=4))
"""What chapter 12 measured on it, layer by layer."""


def companion_claims() -> pd.DataFrame:
    """Compare claims of the companion texts with what is stored; nothing is computed.

    Columns: `text`, `place`, `claim` (translated), `chapter`, `here`.
    """
    rows = [(MS_POE, *row) for row in ms_poe_sentences.claims_of_the_summary()]
    rows += [(SHARE_SELECT, *row) for row in _share_select()]
    rows += [(OLMO3, *row) for row in _olmo3()]
    found = pd.DataFrame(rows, columns=["text", "place", "claim", "chapter", "here"])
    found["here"] = found["here"].str.replace(r"[*`]", "", regex=True)
    return found


def _share_select() -> Iterator[tuple]:
    plan = load_plan("later_sharing")
    planned, _, lacks = planned_sharing(plan)
    yield ("Sections 3.1 and 4.1", "Heads of a layer that look alike can share their weights", 12,
           sharing_sentences.alike_or_random(
               later_sharing.primary(planned["needles"], plan), len(lacks)) if planned else NONE)
    alone, _, _ = look_up(LARGE, ONE_LAYER, compute="never")
    yield ("Section 5, Figure 6", "Sharing in one of layers 0 to 14 costs accuracy, in one of "
           "15 to 31 little", 12,
           sharing_sentences.by_layer(alone["needles"], LARGE, LAYERS) if alone else NONE)
    agreed, _, _ = look_up(LARGE, AgreementConfig(), compute="never")
    yield ("Section 3.2, Figures 3 and 4", "Later layers agree on tokens more than early ones; "
           "over time the tokens change", 13, sharing_sentences.layers_agree(
               early_and_later(agreed["layers"], FILTER - 3), agreed["overlap"], LARGE, FILTER)
           if agreed else NONE)
    model, layer, asked = planned_recall(load_plan("select_recall"))
    seen, _, _ = look_up(model, asked, compute="never")
    selecting = Select(filter_layer=1, p=0.99)
    yield ("Sections 3.2 and 4.2", "Choosing at each step keeps what choosing once, from the "
           "prompt, misses", 13, " ".join([
               sharing_sentences.prompt_or_steps(seen["recall"], model, layer, 0.97),
               sharing_sentences.each_step_elsewhere(needles_found(selecting), 1, 0.99)])
           if seen else NONE)
    table = roofline([8_000], [0.1])
    yield ("Section 4.2", "The cache is half", 13, f"With the hidden states that have to be kept, "
           f"{table['held_share'].iloc[0]:.0%} of it is left for Llama 3.1 8B; counted.")


def _olmo3() -> Iterator[tuple]:
    parts = recipe_parts()
    try:
        ours, _ = extension_stored("tiny-olmo3", ExtensionConfig(), compute="never")
    except NotStored:
        ours = None
    for place, claim, tell in (
            ("Section 3.3, Figure 13a", "YaRN on the full layers alone does best",
             olmo3_sentences.sliding_layers),
            ("Section 7.2, Figure 13e", "Scores rise with the tokens of the extension",
             olmo3_sentences.worth_of_tokens)):
        yield place, claim, 14, (
            f"{tell(ours)} {olmo3_sentences.seeds_beside(parts)}".strip() if ours else NONE)
    yield ("Sections 5.4 and 6, Figures 13c and 13d", "CWE and REX in the texts help, and so do "
           "best-fit packing and masks between documents", 14, olmo3_sentences.which_part(parts))
