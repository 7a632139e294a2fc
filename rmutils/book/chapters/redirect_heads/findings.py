"""What the stored runs of `data/plans/redirect.yml` say."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.redirect_heads import experiment
from rmutils.book.chapters.redirect_heads.experiment import CONDITIONS, CONTRADICTIONS, VARIANTS
from rmutils.book.figures.report import number, spell
from rmutils.book.findings import Measured, declare, scaled
from rmutils.core.errors import NotStored, require
from rmutils.core.results import Artifact
from rmutils.stats import DIFFERENCE, SHARE, Contrast, contrast, holm, interval

FEW_HEADS = "few"  # the runs of `data/plans/redirect_few.yml`
HEADS = {"smollm2-135m": 270, "gemma3-270m": 72, "qwen2.5-coder-0.5b": 336,
         "qwen2.5-coder-1.5b": 336}
LEAST_PAIRS = 6  # with fewer, no test can be significant
POINTED, OTHER, BOTH, NEITHER = "pointed at", "the other", "both", "neither"
"""What an answer holds: the value of the sentence that is pointed at, and so on."""


@dataclass(frozen=True)
class Stored:
    """A part of the plan, as far as it is stored: answers by model, and their results."""

    answers: dict[str, pd.DataFrame]
    artifacts: dict[str, Artifact]


@cache
def stored(part: str = CONTRADICTIONS) -> Stored:
    """Look a part up for all models: one of the plan, or `FEW_HEADS`."""
    runs = experiment.FEW.runs() if part == FEW_HEADS else {
        key: run for key, run in experiment.REDIRECT.runs().items() if experiment.part_of(run)
        == part}
    found: dict[str, Artifact] = {}
    for run in runs.values():
        try:
            found[run.model] = experiment.REDIRECT.obtain(run, compute="never")
        except NotStored:
            continue
    return Stored({model: judged(pd.read_parquet(artifact.path("answers.parquet")))
                   for model, artifact in found.items()}, found)


def missing() -> list[str]:
    """Name the parts of the plan that are not stored, as `variants of a-model`."""
    return [f"{experiment.part_of(run)} of {run.model}" for run
            in experiment.REDIRECT.runs().values()
            if run.model not in stored(experiment.part_of(run)).answers]


def judged(answers: pd.DataFrame) -> pd.DataFrame:
    """Return answers with `held`: what each holds."""
    plain = answers[answers["target"] < 0]
    rows = pd.concat([answers[answers["target"] >= 0], plain.assign(target=0),
                      plain[plain["variant"] != "alone"].assign(target=1)])
    target = rows["target"].astype(str)
    held = np.select([rows["follows"] == target, rows["follows"] == BOTH,
                      rows["follows"] == NEITHER], [POINTED, BOTH, NEITHER], OTHER)
    return rows.assign(held=held).reset_index(drop=True)


def rates(answers: pd.DataFrame) -> pd.DataFrame:
    """Return how many answers hold what, under each condition."""
    rows = []
    names = ["variant", *experiment.KEY[:-1]]
    table = answers.assign(variant=answers["variant"].str.replace(r" \d$", "", regex=True))
    for key, part in table.groupby(names, sort=False):
        hits = by_pair(part)
        value, low, high = interval(hits, bounds=SHARE, cases=len(hits))
        rows.append((*key, value, low, high, *(
            (part["held"] == what).mean() for what in (OTHER, BOTH, NEITHER)),
            part["surprise"].median(), len(hits)))
    return pd.DataFrame(rows, columns=[*names, POINTED, "low", "high", OTHER, BOTH, NEITHER,
                                       "surprise", "pairs"])


def by_pair(answers: pd.DataFrame, held: str = POINTED) -> pd.Series:
    """Share of the answers about each pair that hold something: by pair."""
    return (answers["held"] == held).groupby(answers["pair"]).mean()


def condition(answers: pd.DataFrame, policy: str, *, score: str | None = None,
              count: int | None = None, strength: float | None = None,
              variant: str | None = None) -> pd.DataFrame:
    """Return the answers under a condition; by default the main one of its policy."""
    part = answers[answers["policy"] == policy]
    part = part if score is None else part[part["score"] == score]
    part = part if variant is None else part[part["variant"] == variant]
    count = part["count"].max() if count is None else count
    strength = part["strength"].max() if strength is None else strength
    return part[(part["count"] == count) & (part["strength"] == strength)]


def more(first: pd.DataFrame, second: pd.DataFrame) -> Contrast:
    """Compare how many answers follow under two conditions, pair by pair."""
    a, b = by_pair(first), by_pair(second)
    common = a.index.intersection(b.index)
    return contrast((a[common] - b[common]).to_numpy(), bounds=DIFFERENCE)


def primary(answers: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Apply the plan's rule: main heads minus others of the same layers, Holm over the models."""
    rows = []
    for model, table in answers.items():
        parts = [condition(table, policy) for policy in (experiment.TOP, experiment.MATCHED,
                                                         experiment.PLAIN)]
        found = more(parts[0], parts[1])
        rows.append({"model": model, **dict(zip(
            ("top", "control", "plain"), (by_pair(part).mean() for part in parts), strict=True)),
            **found.columns, "pairs": found.clusters, "smallest_effect": found.smallest_effect})
    found_all = pd.DataFrame(rows)
    return found_all.assign(p_holm=holm(found_all["p"])) if len(found_all) else found_all


def failed(model: str) -> pd.DataFrame:
    """Return all answers to texts to which the plain model gives neither value."""
    parts = [answers for part in (CONTRADICTIONS, VARIANTS)
             if (answers := stored(part).answers.get(model)) is not None]
    table = pd.concat(parts).assign(text=lambda t: t["pair"].astype(str) + " " + t["variant"])
    table = table[table["variant"].isin(["two", "alone"])]
    lost = (table["policy"] == experiment.PLAIN) & (table["held"] == NEITHER)
    return table[table["text"].isin(table.loc[lost, "text"])]


def moved_minus_pointed(model: str) -> Contrast:
    """Compare moving a sentence to the end with pointing at it, on the same pairs."""
    variants, answers = stored(VARIANTS).answers[model], stored().answers[model]
    return more(condition(variants, experiment.MOVED), condition(answers, experiment.TOP))


def fewest() -> dict[str, pd.DataFrame]:
    """Return the answers of each model with the fewest heads that have a control of their own."""
    found = {model: answers[answers["policy"].isin([experiment.PLAIN, experiment.MATCHED]) | (
        answers["count"] == condition(answers, experiment.MATCHED)["count"].iloc[0])]
        for model, answers in stored().answers.items()}
    return found | stored(FEW_HEADS).answers


def artifacts() -> list[Artifact]:
    """Return the stored results of all parts of the plan."""
    return [artifact for part in (CONTRADICTIONS, CONDITIONS, VARIANTS)
            for artifact in stored(part).artifacts.values()]


def primary_table() -> pd.DataFrame:
    """Return `primary` of both plans as readers see it."""
    return pd.DataFrame([{
        "model": row.model,
        "heads": condition(stored(part).answers[row.model], experiment.TOP)["count"].iloc[0],
        "none pointed": round(100 * row.plain),
        "same layers": round(100 * row.control), "heads that copy": round(100 * row.top),
        "difference": number(*(100 * end for end in (row.value, row.low, row.high))),
        "p": f"{row.p_holm:.2g}", "pairs": row.pairs}
        for part in (CONTRADICTIONS, FEW_HEADS)
        for row in primary(stored(part).answers).itertuples()])


def recovered_table() -> pd.DataFrame:
    """Return what follows in the texts that each plain model fails, as readers see it."""
    rows = []
    for model in stored().answers:
        table = failed(model)
        top, control = condition(table, experiment.TOP), condition(table, experiment.MATCHED)
        if len(table):
            found = more(top, control) if table["pair"].nunique() >= LEAST_PAIRS else None
            rows.append({"model": model, "texts": table["text"].nunique(),
                         "heads that copy": round(100 * by_pair(top).mean()),
                         "same layers": round(100 * by_pair(control).mean()),
                         "difference": number(*scaled(found.interval)) if found else "too few",
                         "p": f"{found.p:.2g}" if found else ""})
    return pd.DataFrame(rows)


def percent(model: str, part: str, policy: str, held: str = POINTED, **of: Any) -> int:
    """Return the percent of the answers under a condition that hold something."""
    return round(100 * by_pair(condition(stored(part).answers[model], policy, **of), held).mean())


FIGURE = "fig-redirect-heads"
FOLLOWS = (
    "On {model}, pointing {count} of {heads} heads makes {value} percentage points {ci} more "
    "answers follow the sentence than pointing the same number of other heads of the same layers: "
    "{verdict}.")


@declare("redirect-follows", unit="percentage points", place=FIGURE, otherwise=FOLLOWS)
def follows(model: str) -> Measured:
    """Main heads minus the same layers."""
    return _follows(model, CONTRADICTIONS)


@declare("redirect-few", unit="percentage points", place=FIGURE, otherwise=FOLLOWS)
def few(model: str) -> Measured:
    """The same with very few heads."""
    return _follows(model, FEW_HEADS)


@declare("redirect-moved", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, moving the passage to the end makes {value} percentage points {ci} {more|fewer} "
    "answers follow it than pointing at it: {verdict}."))
def moved(model: str) -> Measured:
    """Answers that follow a passage moved to the end, minus those that follow one pointed at."""
    variants = stored(VARIANTS)
    require([] if model in variants.answers else [experiment.REDIRECT.command])
    return Measured.contrast(moved_minus_pointed(model), [variants.artifacts[model]])


@declare("redirect-more-heads", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, pointing 6 % of the heads makes {value} percentage points {more|fewer} answers "
    "follow {ci} than pointing 2 %: {verdict}."))
def more_heads(model: str) -> Measured:
    """Main heads minus very few; p is not corrected."""
    return _less(model, CONTRADICTIONS, FEW_HEADS)


@declare("redirect-by-attention", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, pointing heads chosen by attention makes {value} percentage points {more|fewer} "
    "answers follow {ci} than pointing heads that copy: {verdict}."))
def by_attention(model: str) -> Measured:
    """Heads that attend most minus heads that copy most, on the same pairs; p is not corrected."""
    return _less(model, CONDITIONS, CONTRADICTIONS, score="attention")


def _less(model: str, part: str, base: str, **of: Any) -> Measured:
    parts = stored(part), stored(base)
    require([] if all(model in one.answers for one in parts) else [experiment.REDIRECT.command])
    first = condition(parts[0].answers[model], experiment.TOP, **of)
    if first.empty:
        raise NotStored(f"{model} was not asked with these heads pointed: the plan has no such "
                        "condition.")
    found = more(first, condition(parts[1].answers[model], experiment.TOP))
    return Measured.contrast(found, [one.artifacts[model] for one in parts], p=found.p)


def _follows(model: str, part: str) -> Measured:
    answers = stored(part).answers
    require([] if model in answers else [experiment.REDIRECT.command])
    top = condition(answers[model], experiment.TOP)
    p = primary(answers).set_index("model").loc[model, "p_holm"]
    return Measured.contrast(more(top, condition(answers[model], experiment.MATCHED)),
                             [stored(part).artifacts[model]], p=p, heads=HEADS[model],
                             count=int(top["count"].iloc[0]))


def few_heads(model: str, part: str = FEW_HEADS) -> str:
    """Return the number of heads in the runs with very few, or in another part, in a word."""
    answers = stored(part).answers.get(model)
    return "few" if answers is None else spell(int(condition(answers,
                                                             experiment.TOP)["count"].iloc[0]))
