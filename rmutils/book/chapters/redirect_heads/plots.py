"""The figure of *Which passage is answered?*, its tables, and the answers that are given live."""

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from rmutils.attention.redirect import redirect
from rmutils.book.chapters.redirect_heads import experiment, findings
from rmutils.book.chapters.redirect_heads.texts import contradictions, prompts
from rmutils.book.figures.report import number
from rmutils.book.figures.style import BLUE, ON_BRIGHT, ORANGE, WIDTH, new_axes, on
from rmutils.heads.detection import detect_stored
from rmutils.models import LanguageModel
from rmutils.models.engine.generation import generate

PARTS = {findings.POINTED: BLUE, findings.OTHER: ORANGE, findings.BOTH: "#CFCFCF",
         findings.NEITHER: "#ECECEC"}
"""What an answer can hold, with its colour."""


ORDER = [experiment.PLAIN, experiment.MATCHED, experiment.ANYWHERE, experiment.TOP,
         experiment.EVERY, experiment.MOVED]
VARIANT_NAMES = {"alone": "one alone", "distractors": "among distractors", "moved": "one moved"}


def name_of(row: pd.Series) -> str:
    """Return what readers call a condition."""
    if row["policy"] == experiment.TOP:
        return f"{row['count']} head{'s' * (row['count'] > 1)} by {row['score']} score"
    others = "1 other head" if row["count"] == 1 else f"{row['count']} other heads"
    return {experiment.PLAIN: "none pointed", experiment.MATCHED: f"{others}, same layers",
            experiment.ANYWHERE: f"{others}, any layer", experiment.EVERY: "all heads",
            experiment.MOVED: "passage moved to the end"}[row["policy"]]


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Sort conditions within each kind of text, the plain model first."""
    place = table["policy"].map(ORDER.index)
    return table.assign(place=place).sort_values(["variant", "place"], kind="stable")


def followed(answers: Mapping[str, pd.DataFrame], names: Mapping[str, str] | None = None,
             width: float = WIDTH) -> Figure:
    """Draw what answers hold under each condition: a bar each, models below each other."""
    figure, panels = new_axes(0.6 + 1.1 * len(answers), rows=len(answers), width=width, sharex=True,
                              flat=True)
    for axes, (model, table) in zip(panels, answers.items(), strict=True):
        shown = in_order(findings.rates(table))
        for place, (_, row) in enumerate(shown.iterrows()):
            left = 0.0
            for part, colour in PARTS.items():
                axes.barh(place, 100 * row[part], left=left, color=colour, height=0.72)
                left += 100 * row[part]
            if row["policy"] != experiment.PLAIN:
                axes.hlines(place, 100 * row["low"], 100 * row["high"], color=ON_BRIGHT, lw=1.3)
        axes.set_yticks(range(len(shown)), [name_of(row).replace(", ", ",\n")
                                            for _, row in shown.iterrows()])
        axes.invert_yaxis()
        axes.set_title((names or {}).get(model, model), loc="left")
        axes.set_xlim(0, 100)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    for part, place in ((findings.POINTED, 1), (findings.OTHER, 55)):
        panels[0].text(place, 0, part, va="center", color=on(PARTS[part]))
    panels[-1].set_xlabel("answers, %")
    return figure


def rates_table(part: str) -> pd.DataFrame:
    """Return a part of the plan as readers see it: a row for each model and condition."""
    rows = []
    for model, answers in findings.stored(part).answers.items():
        for _, row in in_order(findings.rates(answers)).iterrows():
            rows.append({
                "model": model,
                **({"sentences": VARIANT_NAMES[row["variant"]]} if part == experiment.VARIANTS
                   else {}),
                "pointed": name_of(row),
                "bias": "" if row["policy"] in (experiment.PLAIN, experiment.MOVED)
                else f"{row['strength']:g}",
                "follow (%)": number(*(100 * row[end] for end
                                       in (findings.POINTED, "low", "high"))),
                "the other (%)": round(100 * row[findings.OTHER]),
                "neither (%)": round(100 * row[findings.NEITHER]),
                "nats per token": round(row["surprise"], 2)})
    return pd.DataFrame(rows)


def answer_live(lm: LanguageModel, pairs: int, *, share: float, strength: float) -> pd.DataFrame:
    """Answer the plan's first questions: as the model is, and pointed at each sentence."""
    config = next(iter(experiment.REDIRECT.runs().values())).config
    scores, _ = detect_stored(lm, config.detect)
    heads = scores.select(top_k=max(round(share * scores.mean.size), 1))
    rows = []
    for text in prompts(lm, contradictions(pairs, config.seed), config.length, ("two",)):
        row = {"question": text.pair.question, "as it is": _say(lm, text.ids)}
        follow = 0
        for i, (value, place) in enumerate(zip(text.pair.values, ("one sentence", "the other"),
                                               strict=True)):
            with redirect(lm, heads, text.spans[i], strength):
                said = _say(lm, text.ids)
            row[f"pointed at {place}"] = f"{said} [{value}]"
            follow += text.follows(said) == str(i)
        rows.append({**row, "follow": follow})
    return pd.DataFrame(rows)


def _say(lm: LanguageModel, prompt: tuple[int, ...]) -> str:
    tokens, = generate(lm, [prompt], max_new_tokens=20)
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=True)).strip()
