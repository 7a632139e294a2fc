"""Effects of attention variants on retrieval heads, by rules fixed before measuring."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from rmutils import stats
from rmutils.attention.variants import PLAIN
from rmutils.book.chapters.retrieval_heads_under_change import experiment
from rmutils.book.findings import AGAINST, NONE, SHOWN, UNDECIDED, Measured, Verdict, declare
from rmutils.core.results import Artifact, Tables
from rmutils.heads import head_change
from rmutils.heads.scores import DECIMALS, Head, HeadScores
from rmutils.heads.sparsity import rank_correlations

COLUMNS = ["variant", "quantity", "value", "low", "high"]
NO_ENDS = (np.nan, np.nan)


def retrieval_of(tables: Tables) -> list[Head]:
    """The retrieval heads, highest first."""
    return [*tables["retrieval"].itertuples(index=False, name=None)]


def traits_set_apart(tables: Mapping[str, Tables]) -> pd.DataFrame:
    """Return what `set_apart` says of each `model`, with `p_holm` over all of it."""
    found = pd.concat([experiment.set_apart(one["traits"], retrieval_of(one)).assign(model=model)
                       for model, one in tables.items()], ignore_index=True)
    return found.assign(p_holm=stats.holm(found["p"]))


def scores_under(tables: Tables, variant: str) -> HeadScores:
    """Scores of all heads under a variant."""
    cases = tables["cases"].query("variant == @variant").drop(columns="variant")
    wide = tables["scores"].query("variant == @variant").pivot(
        index="case", columns=["layer", "head"], values="score").loc[cases["case"]]
    layers, heads = (int(wide.columns.get_level_values(i).max()) + 1 for i in (0, 1))
    success = cases["success"].to_numpy(bool)
    runs = wide.to_numpy().reshape(len(cases), layers, heads)[success]
    return HeadScores(runs, variant, cases["needle"].to_numpy()[success],
                      cases.reset_index(drop=True))


def pairs_of(tables: Tables) -> dict[str, head_change.PairedDetection]:
    """Each variant against plain; left out are those without a needle found both times."""
    before = tables["cases"].query("variant == @PLAIN").set_index("case")["success"]
    if not before.any():
        return {}
    plain, retrieval, found = scores_under(tables, PLAIN), retrieval_of(tables), {}
    for name, part in tables["cases"].groupby("variant", sort=False):
        if name != PLAIN and (part.set_index("case")["success"] & before).any():
            found[name] = head_change.PairedDetection(plain, scores_under(tables, name), retrieval)
    return found


def agreement(pair: head_change.PairedDetection, *, resamples: int = stats.RESAMPLES,
              seed: int = 0) -> pd.DataFrame:
    """How far two rankings of heads agree, on the cases that were successful both times."""
    sums, count = pair.sums("both"), len(pair.retrieval)
    weights = head_change.needle_weights(sums.shape[1], resamples, seed)
    means = head_change.weighted_means(sums, weights).round(DECIMALS)
    known = np.isfinite(means).all((0, 2))
    values = np.full((2, len(weights)), np.nan)
    before, after = means[:, known]
    values[0, known] = rank_correlations(before, after)
    tops = [np.argsort(-each, axis=1, kind="stable")[:, :count] for each in (before, after)]
    values[1, known] = [len(np.intersect1d(*two)) / count for two in zip(*tops, strict=True)]
    return pd.DataFrame(
        [(name, drawn[0],
          *(stats.interval_of(stats.spread(drawn, sums.shape[1]), bounds=bounds, centred=True)[1:]
            if _several(sums) else NO_ENDS)) for name, drawn, bounds in
         zip(("rank correlation", "overlap"), values, (stats.DIFFERENCE, stats.SHARE),
             strict=True)],
        columns=COLUMNS[1:])


def _several(sums: np.ndarray) -> bool:
    """Return whether cases of two needles or more count."""
    return (sums[0, :, -1] > 0).sum() > 1


def agreements(tables: Tables) -> pd.DataFrame:
    """`agreement` of each variant with plain attention."""
    return pd.concat([agreement(pair).assign(variant=name)
                      for name, pair in pairs_of(tables).items()] or [_none()])[COLUMNS]


def moves(tables: Tables) -> pd.DataFrame:
    """By how much mean scores change from plain attention to each variant."""
    rows = [head_change.training_effect([pair], cases="both").query("quantity == 'change'").assign(
        variant=name, **({} if _several(pair.sums("both")) else {"low": np.nan, "high": np.nan}))
        for name, pair in pairs_of(tables).items()]
    found = pd.concat(rows or [_none()])
    return found.drop(columns="quantity").rename(columns={"group": "quantity"})[COLUMNS] \
        if rows else found


def _none() -> pd.DataFrame:
    return pd.DataFrame(columns=COLUMNS)


MASKED, OTHERS = "retrieval", "non-retrieval"
KEYS = ["length", "question", "place"]


def masking(needles: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Needles that masking loses, as shares of all cases."""
    cases = {name: _cases(part) for name, part in needles.groupby("variant", sort=False)}
    lost = {name: {"found": own[experiment.WHOLE], "retrieval masked": own[experiment.WHOLE]
                   - own[MASKED],
                   "others masked": own[experiment.WHOLE] - own[OTHERS],
                   "excess": own[OTHERS] - own[MASKED]}
            for name, own in cases.items()}
    for quantities in lost.values():
        quantities["excess, change"] = quantities["excess"] - lost[base]["excess"]
    return _summary(lost, _clusters(needles))


def training(needles: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Needles that trained models find; no rows where none were asked."""
    cases = {name: _cases(part) for name, part in needles.groupby("variant", sort=False)}
    gained = {name: {"trained": own[experiment.TRAINED],
                     "gain": own[experiment.TRAINED] - own[experiment.WHOLE]}
              for name, own in cases.items() if experiment.TRAINED in own}
    for quantities in gained.values():
        quantities["gain, change"] = quantities["gain"] - gained[base]["gain"]
    return _summary(gained, _clusters(needles))


def _cases(part: pd.DataFrame) -> dict[str, np.ndarray]:
    """(cases, draws) by subject, cases in one order."""
    return {subject: own.pivot(index=KEYS, columns="draw", values="correct").to_numpy(float)
            for subject, own in part.groupby("subject")}


def _clusters(needles: pd.DataFrame) -> np.ndarray:
    return needles[KEYS].drop_duplicates().sort_values(KEYS)["question"].to_numpy()


def _summary(found: dict[str, dict[str, np.ndarray]], clusters: np.ndarray) -> pd.DataFrame:
    rows = []
    for variant, quantities in found.items():
        for name, values in quantities.items():
            bounds = (stats.SHARE if name in ("found", "trained") else
                      stats.ANY if name.endswith(", change") else stats.DIFFERENCE)
            rows.append((variant, name, *stats.interval(values, clusters, seeds=True,
                                                        bounds=bounds)))
    return pd.DataFrame(rows, columns=COLUMNS)


HALF = 0.5  # share of the retrieval heads, of the needles, and of pairs of heads
ALPHA = 0.05
DRAWS = 3  # random choices of other heads, at least
MEANING = {experiment.KEYS_TRAIT: ("position-aware", "not position-aware"),
           experiment.DISTANCE: ("unlike other heads", "redundant")}
"""Words for retrieval heads with more of a trait, or less."""
RANKING, MASKING, TRAINING = "ranking is kept", "masking hurts", "RetMask gains"
"""Questions to each model under each variant."""
YES, NO, OPEN, NO_ROOM = "yes", "no", "open", "no room"


def verdicts(tables: Mapping[str, Tables]) -> pd.DataFrame:
    """Answer the three questions, and say what could have been shown."""
    rows = []
    for model, one in tables.items():
        lost, gains = masking(one["needles"]), training(one["needles"])
        found = lost[lost["quantity"] == "found"].set_index("variant")["value"]
        draws = one["needles"].query("subject == @OTHERS").groupby("variant")["draw"].nunique()
        overlap = agreements(one).query("quantity == 'overlap'").set_index("variant")
        for name in found.index.drop(PLAIN, errors="ignore"):
            kept = overlap.loc[name] if name in overlap.index else pd.Series(
                dict.fromkeys(COLUMNS[2:], np.nan))
            rows.append((RANKING, model, name, kept, name in overlap.index, True))
        rows += [(MASKING, model, row["variant"], row, found[row["variant"]] >= HALF,
                  draws[row["variant"]] >= DRAWS)
                 for _, row in lost[lost["quantity"] == "excess"].iterrows()]
        rows += [(TRAINING, model, row["variant"], row, row["low"] < row["high"]
                  and 1 - found[row["variant"]] >= stats.smallest_effect(row["low"], row["high"]),
                  True)
                 for _, row in gains[gains["quantity"] == "gain"].iterrows()]
    return pd.DataFrame([{
        "question": question, "model": model, "variant": variant, **row[COLUMNS[2:]],
        "smallest": stats.smallest_effect(row["low"], row["high"]),
        "verdict": _verdict(row, HALF if question == RANKING else 0, room) if enough else OPEN}
        for question, model, variant, row, room, enough in rows])


def _verdict(row: pd.Series, level: float, room: bool) -> str:
    """Compare an interval with a level; a loss of a training counts even without room to gain."""
    if row["high"] < level:
        return NO
    if not room:
        return NO_ROOM
    return YES if row["low"] > level or row["low"] == level == HALF else OPEN


def sets_apart(row: pd.Series) -> str:
    """Say whether a trait sets retrieval heads apart, and which way."""
    if row["p"] >= ALPHA or row["low"] <= HALF <= row["high"]:
        return "not shown"
    more, less = MEANING[row["trait"]]
    return more if row["value"] > HALF else less


MATRIX, MOVES = "fig-change-matrix", "fig-change-moves"
AFTER, SPECIAL = "change-training", "other-special-heads"
Found = tuple[Tables, Artifact]  # what is stored of a model, as from `heads_stored`


def _measured(found: Found, table: pd.DataFrame, quantity: str, variant: str,
              verdict: Verdict | None = None) -> Measured:
    tables, artifact = found
    row = table[(table["quantity"] == quantity) & (table["variant"] == variant)].iloc[0]
    return Measured.row(row, [artifact], 100, verdict=verdict, model=artifact.model,
                        variant=variant, clusters=tables["needles"]["question"].nunique())


@declare("rank-overlap", unit="percent", place=MATRIX, otherwise=(
    "Under {variant}, {value} % of the highest heads of {model} stay among the highest {ci}."))
def rank_overlap(found: Found, variant: str) -> Measured:
    """Share of the highest heads that stay among the highest; by the first rule, half is kept."""
    one = _measured(found, agreements(found[0]), "overlap", variant)
    verdict = (SHOWN if one.found.low >= 100 * HALF else
               AGAINST if one.found.high < 100 * HALF else UNDECIDED)
    return replace(one, verdict=verdict)


@declare("score-fall", unit="points of the score", place=MOVES, otherwise=(
    "Under {variant}, the mean score of the retrieval heads of {model} {falls|rises} by {value} "
    "points of 100 {ci}: {verdict}."))
def score_fall(found: Found, variant: str) -> Measured:
    """Fall of the retrieval heads' mean score, on needles found both times."""
    one = _measured(found, moves(found[0]), "retrieval heads", variant)
    return replace(one, found=stats.Interval(-one.found.value, -one.found.high, -one.found.low))


@declare("found-under", unit="percent", place=MATRIX, otherwise=(
    "Under {variant}, {model} finds {value} % of the needles {ci}."))
def found_under(found: Found, variant: str) -> Measured:
    """Needles found by a whole model."""
    return _measured(found, masking(found[0]["needles"]), "found", variant, NONE)


@declare("excess-under", unit="points", place=MATRIX, otherwise=(
    "Under {variant}, masking the retrieval heads costs {model} {value} points {more|fewer} "
    "needles {ci} than masking others: {verdict}."))
def excess_under(found: Found, variant: str) -> Measured:
    """Needles lost with the retrieval heads masked, minus with the same number of others."""
    return _measured(found, masking(found[0]["needles"]), "excess", variant)


@declare("retmask-gain-under", unit="points", place=AFTER, otherwise=(
    "Under {variant}, models that RetMask trained from {model} find {value} points {more|fewer} "
    "needles {ci}: {verdict}."))
def retmask_gain_under(found: Found, variant: str) -> Measured:
    """Needles found by trained models, minus the untrained one."""
    return _measured(found, training(found[0]["needles"]), "gain", variant)


@declare("keys-order", unit="percent", place=SPECIAL, otherwise=(
    "In {value} % of the pairs {ci}, a retrieval head of {model} picks out more keys than another "
    "head of its layer: {verdict}."))
def keys_order(every: Mapping[str, Found], model: str) -> Measured:
    """How often a retrieval head picks out more keys than another; shown: Ms-PoE spares it."""
    table = traits_set_apart({name: one for name, (one, _) in every.items()})
    row = table[(table["trait"] == experiment.KEYS_TRAIT) & (table["model"] == model)].iloc[0]
    clear = row["p_holm"] < 1 - stats.LEVEL
    verdict = (SHOWN if clear and row["low"] > HALF else
               AGAINST if clear and row["high"] < HALF else UNDECIDED)
    tables, artifact = every[model]
    return Measured.row(row, [artifact], 100, p="p_holm", verdict=verdict,
                        clusters=tables["traits"]["question"].nunique())
