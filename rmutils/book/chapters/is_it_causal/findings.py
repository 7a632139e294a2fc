"""What exchanged heads return and lose beyond others of their layers, by the rule of the plan."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import pandas as pd

from rmutils import DetectConfig
from rmutils.book.chapters.is_it_causal import experiment
from rmutils.book.chapters.is_it_causal.real_exchanges import REAL_EXCHANGES
from rmutils.book.experiments.real_models import real_models
from rmutils.book.findings import Measured, declare, scaled
from rmutils.core.config import run_notebook
from rmutils.core.errors import NotStored, require
from rmutils.core.experiment import load_plan
from rmutils.core.results import Artifact
from rmutils.heads import HeadScores
from rmutils.heads.detection import detect_stored, even_depths
from rmutils.heads.scores import Head
from rmutils.stats import ANY, DIFFERENCE, SHARE, Interval, contrast, holm, interval, smallest_p

LEAST = 0.1
"""Nats: a head that restores less of a token does not lead there. Set after the teaching models'
results were seen: tokens that the text itself predicts have leaders by rounding only."""


def changes(result: experiment.IsItCausal, way: str, column: str = "right") -> pd.DataFrame:
    """Return what each exchange returns (`restore`) or loses: `sets` of one way with `change`."""
    part = result.sets[result.sets["way"] == way]
    value = part[column].astype(float)
    none = value[part["policy"] == experiment.NONE].set_axis(part.loc[part["policy"]
                                                                      == experiment.NONE, "case"])
    sign = 1 if way == experiment.RESTORE else -1
    return part.assign(change=sign * (value - part["case"].map(none)))


def _by_needle(part: pd.DataFrame) -> pd.DataFrame:
    """(needles, draws)."""
    return part.pivot_table(index="needle", columns="draw", values="change", aggfunc="mean")


def effects(result: experiment.IsItCausal, column: str = "right") -> pd.DataFrame:
    """Return what exchanging the top heads does, and how much of it is due to these heads."""
    return _effects(result, column).copy()


@cache
def _effects(result: experiment.IsItCausal, column: str) -> pd.DataFrame:
    rows, bounds = [], ANY if column == "nats" else DIFFERENCE
    for way in (experiment.RESTORE, experiment.REMOVE, experiment.ZERO):
        part = changes(result, way, column)
        part = part[part["policy"].isin([experiment.TOP, experiment.MATCHED])]
        for (kind, count), group in part.groupby(["kind", "count"], sort=False):
            top, others = (_by_needle(group[group["policy"] == policy]).to_numpy()
                           for policy in (experiment.TOP, experiment.MATCHED))
            more = contrast(top - others, bounds=bounds)
            rows.append((way, kind, count, interval(top[:, 0], bounds=bounds),
                         interval(others, seeds=True, bounds=bounds),
                         more.interval, more.p, more.clusters))
    table = pd.DataFrame(rows, columns=["way", "kind", "count", "top", "control", "difference",
                                        "p", "needles"])
    primary = (table["count"] == table["count"].min()) & (table["way"] != experiment.ZERO)
    return table.assign(p_holm=holm(table["p"].where(primary)),
                        least_p=primary.sum() * 2.0 ** (1 - table["needles"]))


def room(result: experiment.IsItCausal) -> Interval:
    """Return the share of the answers' tokens that only the needle makes right."""
    part = result.sets[(result.sets["way"] == experiment.RESTORE)
                       & (result.sets["policy"] == experiment.NONE)]
    return interval(1 - part.groupby("needle")["right"].mean(), bounds=SHARE)


def imbalance(result: experiment.IsItCausal, kind: str, count: int) -> Interval:
    """Return by how much more of the tokens removing the top heads loses than restoring returns."""
    lost, returned = (
        _by_needle(part[(part["policy"] == experiment.TOP) & (part["kind"] == kind)
                        & (part["count"] == count)]
                   )[0] for part in (changes(result, way) for way
                                     in (experiment.REMOVE, experiment.RESTORE)))
    return interval(lost - returned, bounds=DIFFERENCE)


class OwnHeads(NamedTuple):
    """How much depends on restoring each token's own heads."""

    # The share of the tokens that own heads return beyond those of the token before it.
    more: Interval
    p: float  # by sign flips of needles, corrected over the models that are compared
    # The share of the tokens that is right with the heads of the token before it: near 1, own heads
    # cannot return more.
    shifted: float


def own_heads(results: Mapping[str, experiment.IsItCausal]) -> dict[str, OwnHeads]:
    """Compare each token's own heads with those of the token before it, model by model."""
    found = {model: _own_heads(result) for model, result in results.items()}
    corrected = holm([one.p for one in found.values()])
    return {model: one._replace(p=p) for (model, one), p in zip(found.items(), corrected,
                                                                strict=True)}


def _own_heads(result: experiment.IsItCausal) -> OwnHeads:
    """Compare on one model, without answers of a single token."""
    steps = result.singles.groupby("case")["step"].nunique()
    part = result.sets[result.sets["case"].map(steps) > 1]
    wide = part[part["policy"].isin([experiment.OWN, experiment.SHIFTED])].pivot_table(
        index="needle", columns="policy", values="right", aggfunc="mean")
    more = contrast(wide[experiment.OWN] - wide[experiment.SHIFTED], bounds=DIFFERENCE)
    return OwnHeads(more.interval, more.p, float(wide[experiment.SHIFTED].mean()))


def token_leaders(result: experiment.IsItCausal) -> pd.DataFrame:
    """Return the head that restores most of each token: `case`, `needle`, `step`, `leader`."""
    top = result.singles.loc[result.singles.groupby(["case", "step"])["restored"].idxmax()]
    top = top[top["restored"] >= LEAST]
    return top[["case", "needle", "step"]].assign(
        leader=list(zip(top["layer"], top["head"], strict=True))).reset_index(drop=True)


def leading_heads(result: experiment.IsItCausal) -> dict[str, object]:
    """Count the heads that lead at some token, and the tokens of the most frequent one."""
    often = token_leaders(result)["leader"].value_counts()
    return {"tokens": int(often.sum()), "heads that lead": len(often),
            "most frequent": "-".join(map(str, often.index[0])),
            "leads at tokens": int(often.iloc[0])}


def copy_by_length(scores: HeadScores, heads: Sequence[Head]) -> pd.DataFrame:
    """Compare two heads length by length, on the same needles."""
    rows = []
    for length, _ in scores.cases.groupby("length"):
        part = scores.where((scores.cases["length"] == length).to_numpy())
        own = pd.DataFrame({i: part.runs[:, *head] for i, head in enumerate(heads)}).groupby(
            part.clusters).mean()
        less = contrast(own[0] - own[1], bounds=DIFFERENCE)
        rows.append((length, own[0].mean(), own[1].mean(), less.interval, less.p))
    table = pd.DataFrame(rows, columns=["length", "first", "second", "difference", "p"])
    return table.assign(p_holm=holm(table["p"]))


def compare_leaders(leaders: experiment.Leaders, heads: Sequence[Head]) -> pd.DataFrame:
    """Compare what two heads restore alone, length by length."""
    rows = []
    for length, part in leaders.table.groupby("length"):
        wide = part.pivot(index="needle", columns=["layer", "head"], values="restored")
        more = contrast(wide[heads[0]] - wide[heads[1]])
        rows.append((length, more.clusters, more.interval, more.p))
    table = pd.DataFrame(rows, columns=["length", "answers", "difference", "p"])
    return table.assign(p_holm=holm(table["p"]),
                        least_p=[len(table) * smallest_p(n) for n in table["answers"]])


SETS, TOKENS, LENGTHS = "fig-causal-sets", "fig-causal-tokens", "fig-causal-lengths"
REAL = "fig-causal-real"
LARGE = "smollm2-135m"


@cache
def stored() -> dict[str, tuple[experiment.IsItCausal, Artifact]]:
    """Look the exchanges of the plan up, model by model."""
    found = {}
    for model, config in experiment.planned(load_plan("is_it_causal")).items():
        try:
            found[model] = experiment.is_it_causal_stored(model, config, compute="never")
        except NotStored:
            continue
    return found


Found = tuple[experiment.IsItCausal, Artifact]
WAYS = {experiment.RESTORE: "restoring", experiment.REMOVE: "removing"}


def _of(model: str) -> Found:
    require([] if model in stored() else [run_notebook("is_it_causal", {"compute": "auto"})])
    return stored()[model]


def _of_real(model: str) -> Found:
    require([] if model in real() else [REAL_EXCHANGES.command])
    return real()[model]


def _moved(found: Found, way: str, column: str, p: str = "") -> Measured:
    """What the fewest copying heads move, or do so beyond others of their layers."""
    result, artifact = found
    row = _fewest(result, way)
    return Measured(scaled(row[column]), [artifact], int(row["needles"]), row[p] if p else math.nan,
                    words={"way": WAYS[way], "count": int(row["count"])})


def _imbalance(found: Found) -> Measured:
    result, artifact = found
    return Measured(scaled(imbalance(result, experiment.COPY,
                                     int(_fewest(result, experiment.RESTORE)["count"]))),
                    [artifact])


@declare("exchange-beyond-others", unit="points", place=SETS, otherwise=(
    "In {model}, {way} the heads that copy most moves {value} points {more|less} of the answer's "
    "tokens {ci} than others of their layers: {verdict}."))
def beyond_others(model: str, way: str) -> Measured:
    """Tokens that the fewest copying heads restore or remove, minus others of their layers."""
    return _moved(_of(model), way, "difference", "p_holm")


def _fewest(result: experiment.IsItCausal, way: str) -> pd.Series:
    table = effects(result)
    return table[(table["way"] == way) & (table["kind"]
                                          == experiment.COPY)].sort_values("count").iloc[0]


@cache
def real() -> dict[str, tuple[experiment.IsItCausal, Artifact]]:
    """Look the exchanges in the real models up: their sets of heads."""
    return {model: (experiment.IsItCausal(pd.DataFrame(), tables["sets"], pd.DataFrame()), artifact)
            for model, (tables, artifact) in REAL_EXCHANGES.collect().by_model().items()}


def real_results() -> dict[str, experiment.IsItCausal]:
    """The same without the names of the stored results, smallest model first."""
    return {model: real()[model][0] for model in real_models().content["models"] if model in real()}


@declare("real-exchange", unit="points", place=REAL, otherwise=(
    "In {model}, {way} the {count} heads that copy most moves {value} points {more|less} of the "
    "answer's tokens {ci} than others of their layers: {verdict}."))
def real_beyond_others(model: str, way: str) -> Measured:
    """Tokens that the top 5 % of heads restore or remove, minus others of their layers."""
    return _moved(_of_real(model), way, "difference", "p_holm")


@declare("real-exchange-total", unit="points", place=REAL, otherwise=(
    "In {model}, {way} the {count} heads that copy most moves {value} points of the answer's "
    "tokens {ci}: {verdict}."))
def real_moved(model: str, way: str) -> Measured:
    """Tokens that restoring returns, or removing loses, by the 5 % of heads that copy most."""
    return _moved(_of_real(model), way, "top")


@declare("needle-is-worth", unit="points", place=REAL, otherwise=(
    "In {model}, {value} points of the answer's tokens {ci} are right only with the needle."))
def needle_is_worth(model: str) -> Measured:
    """Tokens of the answer that are right with the needle and wrong without it."""
    result, artifact = _of_real(model)
    return Measured(scaled(room(result)), [artifact], result.sets["needle"].nunique())


@declare("real-removing-minus-restoring", unit="points", place=REAL, otherwise=(
    "In {model}, removing the heads that copy most loses {value} points {more|less} of the "
    "tokens {ci} than restoring them returns: {verdict}."))
def real_removing_minus_restoring(model: str) -> Measured:
    """Tokens that removing 5 % of the heads loses, minus what restoring them returns."""
    return _imbalance(_of_real(model))


@declare("removing-minus-restoring", unit="points", place=SETS, otherwise=(
    "In {model}, removing the heads that copy most loses {value} points {more|less} of the "
    "tokens {ci} than restoring them returns: {verdict}."))
def removing_minus_restoring(model: str) -> Measured:
    """Tokens that removing the fewest heads loses, minus what restoring them returns."""
    return _imbalance(_of(model))


@declare("own-heads-beyond-shifted", unit="points", place=TOKENS, otherwise=(
    "In {model}, the heads of each token return {value} points {more|less} of the tokens {ci} "
    "than those of the token before it: {verdict}."))
def own_heads_beyond_shifted(model: str) -> Measured:
    """Tokens that each token's own heads return, minus those of the token before it."""
    _, artifact = _of(model)
    found = _own_heads_by_model()[model]
    return Measured(scaled(found.more), [artifact], p=found.p)


@cache
def _own_heads_by_model() -> dict[str, OwnHeads]:
    return own_heads({model: result for model, (result, _) in stored().items()})


@cache
def by_length() -> tuple[pd.DataFrame, tuple[Head, ...], Artifact]:
    """Compare the copy scores of the two leading heads of SmolLM2, length by length."""
    scores, artifact = detect_stored(LARGE, DetectConfig(
        lengths=(256, 512, 768, 1024, 1536, 2048, 3072, 4096), depths=even_depths(10)),
        compute="never")
    heads = experiment.planned_leaders(load_plan("is_it_causal"), scores).heads
    return copy_by_length(scores, heads), tuple(heads), artifact


@declare("leaders-apart", unit="points", place=LENGTHS, otherwise=(
    "At {length} tokens, the copy score of one leading head of SmolLM2 is {value} points "
    "{higher|lower} {ci} than that of the other: {verdict}."))
def leaders_apart(length: int) -> Measured:
    """Copy score of the leader at short prompts, minus that of the leader at long ones."""
    table, _, artifact = by_length()
    row = table.set_index("length").loc[length]
    return Measured(scaled(row["difference"]), [artifact], p=row["p_holm"])
