"""Chapter 10: the list of the paper's claims."""

import html
from collections.abc import Mapping, Sequence

import numpy as np
from IPython.display import HTML, Markdown
from matplotlib.figure import Figure

from rmutils.book import verdicts
from rmutils.book.claims.claim_list import Judged, Part
from rmutils.book.figures.report import fold, inline, rounded
from rmutils.book.figures.style import CALLED, FAINT, MODEL_COLOURS, PALE, new_axes, on
from rmutils.book.figures.training_figures import SIGNS
from rmutils.stats import Interval

WIDTH, STEP = 240, 7  # width of a row's picture, and the height of an effect in it, in pixels


def claims_that_matter(judged: Sequence[Judged],
                       plain: Mapping[str, tuple[str, Markdown | None]]) -> HTML:
    """Show some claims, by name, in plain words, with their verdicts in a word, and the number
    that their page gives first; by default the one that says most."""
    by_name = {one.claim.id: one for one in judged}
    rows = "".join(
        f"<tr><td>{html.escape(words)}</td><td>{_word(by_name[name])}</td>"
        f"<td>{inline(said.data) if said else _sentence(by_name[name])}</td></tr>"
        for name, (words, said) in plain.items())
    return HTML('<div class="rm-claims rm-scroll"><table class="rm-table"><thead><tr><th>the claim'
                "</th><th>verdict here</th><th>the number behind it</th></tr></thead><tbody>"
                f"{rows}</tbody></table></div>")


IN_A_WORD = {verdicts.REACHED: "holds", verdicts.SHOWN: "holds", verdicts.SMALLER: "smaller",
             verdicts.PARTLY: "in part",
             verdicts.EXCLUDED: "too small", verdicts.UNDECIDED: "open",
             verdicts.AGAINST: "opposite", verdicts.BLIND: "could not tell",
             verdicts.NOT_RUN: "not run", verdicts.UNTESTABLE: "not testable"}
"""The verdicts for a reader of ten of them."""


def _sentence(one: Judged) -> str:
    number = _number(one)
    for model, called in CALLED.items():
        number = number.replace(model, called)
    return f"{number[:1].upper()}{number[1:]}."


def _word(one: Judged) -> str:
    sign, kind = SIGNS[one.verdict]
    return f'<span class="rm-sign rm-{kind}">{sign}</span> {IN_A_WORD[one.verdict]}'


def claim_list(judged: Sequence[Judged]) -> HTML:
    """Show a row for each claim: its words, verdict, the effect that says most, and its page."""
    rows = "".join(map(_claim_row, judged))
    head = "".join(f"<th>{name}</th>" for name in (
        "the paper says", "verdict here", "our number", "all effects", "page"))
    shown = fold(f'<table class="rm-table"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>'
                 "</table>", len(judged), f"All {len(judged)} claims")
    return HTML('<div class="rm-claims rm-scroll" tabindex="0" role="region" aria-label="Claims">'
                f"{shown}</div>")


def _claim_row(one: Judged) -> str:
    said = one.claim.said[0]
    known = [part for part in one.parts if part.effect]
    models = sorted({word for part in known for word in map(str, part.of)
                     if word in MODEL_COLOURS})
    return (
        f'<tr data-verdict="{one.verdict}" data-section="{html.escape(said.place)}" '
        f'data-model="{html.escape("|".join(models))}">'
        f"<td><q>{html.escape(said.as_printed)}</q> <small>{html.escape(said.place)}</small></td>"
        f"<td>{_sign(one)}</td><td>{_number(one)}</td><td>{_picture(known)}</td>"
        f"<td>{_link(one)}</td></tr>")


def _sign(one: Judged) -> str:
    sign, kind = SIGNS[one.verdict]
    return f'<span class="rm-sign rm-{kind}">{sign}</span> {html.escape(one.words)}'


def _number(one: Judged) -> str:
    told = one.telling
    return html.escape(_told(told) if told and told.effect else
                       one.note or one.claim.untestable).replace("`", "")


def _link(one: Judged) -> str:
    page, name = page_of(one.telling)
    return f'<a href="{page}.html">{name}</a>' if page else ""


def _told(part: Part) -> str:
    """Say the effect as its quantity does, with the rounding of findings."""
    effect = part.effect
    if np.isnan(effect.value):
        return effect.blocked
    shown = part.sentence.format(
        effect=shown_effect(effect.value, effect.low, effect.high, part.scale))
    if effect.blocked:
        return f"{shown}; {effect.blocked}"
    beyond = not any(effect.low <= bound <= effect.high for bound in part.measure.bounds)
    return shown + (f"; p = {part.answer.p:.2g}, corrected for the parts of the claim"
                    if beyond and part.answer.verdict == verdicts.UNDECIDED else "")


def shown_effect(value: float, low: float, high: float, scale: float = 1) -> str:
    """Round an effect in the units of its sentence as findings are; a count has no interval."""
    if np.isnan(value):
        return "–"
    ends = (scale * end for end in (value, low, high))
    value, *bounds = rounded(Interval(*ends))
    return value if low == high else f"{value} [{bounds[0]},\u00a0{bounds[1]}]"


HEADS, MASKING, TRAINED, ANSWERS, NOT_HERE = (
    "which heads retrieve", "what masking costs", "training and heads", "training and answers",
    "not testable at this size")
SPREAD, PAIRS = "How scores spread", "The pairs"
PAGES = {
    ("share_of", "scores_held", "published"): ("05_score_distribution", SPREAD, HEADS),
    ("gain_over", "loss_over"): ("05_score_distribution", SPREAD, ANSWERS),
    ("retrieval_heads_from",): ("01_preliminaries", "Finding a needle", HEADS),
    ("needles_lost", "answers_", "repetition"): ("02_masking_sweep", "How many to mask", MASKING),
    ("failures",): ("08_failure_modes", "What goes wrong", MASKING),
    ("rejected",): ("09_data_and_training", PAIRS, MASKING),
    ("mean_score", "retrieval_heads_change", "selective", "needles_found"): (
        "06_training_effect", "What training does", TRAINED),
    ("half_learned",): ("09_data_and_training", PAIRS, TRAINED),
    ("general",): ("07_general_abilities", "What else it can do", ANSWERS),
    ("left_out", "gain_left_out", "gain_kept"): (
        "04_reasoning_ablation", "Thinking aloud", ANSWERS),
    ("",): ("03_main_tables", "Long texts", ANSWERS)}
"""How names of quantities begin -> the page that shows them, its short title, their topic."""


def page_of(part: Part | None) -> tuple[str, str]:
    """Return the page that shows an effect, and its short title; empty without an effect."""
    return _place(part.measure.quantity)[:2] if part else ("", "")


def _place(quantity: str) -> tuple[str, str, str]:
    return next(place for begins, place in PAGES.items() if quantity.startswith(begins))


def verdicts_by_topic(judged: Sequence[Judged]) -> Figure:
    """Draw how many claims have which verdict, a bar for each thing that claims are about."""
    topics = [_place(one.claim.measures[0].quantity)[2] if one.claim.measures else NOT_HERE
              for one in judged]
    names = [HEADS, MASKING, TRAINED, ANSWERS, NOT_HERE]
    figure, axes = new_axes(3.0)
    left = np.zeros(len(names))
    for kind, (label, colour) in KINDS.items():
        count = np.array([sum(topic == name and SIGNS[one.verdict][1] == kind
                              for topic, one in zip(topics, judged, strict=True))
                          for name in names])
        if count.any():
            axes.barh(range(len(names)), count, left=left, color=colour, height=0.6,
                      label=f"{label}: {count.sum()}")
            for y in np.flatnonzero(count):
                axes.text(left[y] + count[y] / 2, y, str(count[y]), ha="center", va="center",
                          color=on(colour), fontsize=10)
        left += count
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="claims")
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=3, fontsize=10)
    return figure


KINDS = {"for": ("✓ shown", "#7fc8a9"), "part": ("✓< ½ smaller, or in part", "#cfe8b4"),
         "small": ("< size excluded", "#f6d58a"), "against": ("✗ opposite shown", "#f0a48a"),
         "open": ("? undecided", PALE), "blind": ("– · could not be shown here", FAINT)}
"""Label and colour of the parts of a bar: the signs and colours of the list of claims."""


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
