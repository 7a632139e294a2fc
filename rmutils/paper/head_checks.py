"""Checks of retrieval scores: the text, the score-bin figure, and the authors' per-run scores."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from rmutils.core.errors import UserError
from rmutils.heads.scores import HeadScores
from rmutils.heads.sparsity import ranking_stability, summarize
from rmutils.paper.comparisons import Comparison, Value, above, by, equal, place_of
from rmutils.paper.tables import (
    DISTINCT_SCORES,
    DISTINCT_STABILITY,
    DISTINCT_SUMMARY,
    PUBLISHED_MAPS,
    PUBLISHED_SCORES,
    PUBLISHED_STABILITY,
    PUBLISHED_SUMMARY,
    SCORE_BINS,
    SCORING_SUMMARY,
    TEXT_NUMBERS,
    Printed,
    Schema,
    read_records,
)


def map_numbers(scores: HeadScores) -> np.ndarray:
    """Number the distinct maps of a detection, (runs,), in the order in which they appear."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(run.tobytes(), len(known)) for run in scores.runs])


def each_map_once(scores: HeadScores) -> HeadScores:
    """Return the same detection with the first run of each distinct map alone."""
    _, first = np.unique(map_numbers(scores), return_index=True)
    return HeadScores(scores.runs[np.sort(first)], scores.model)


def map_table(scores: HeadScores) -> pd.DataFrame:
    """Return a row per run: `model`, `run`, `map` (its number), `heads` (that score above 0)."""
    numbers = map_numbers(scores)
    return pd.DataFrame({"model": scores.model, "run": np.arange(len(numbers)), "map": numbers,
                         "heads": (scores.runs > 0).sum((1, 2))})


def stretches(maps: pd.DataFrame) -> pd.DataFrame:
    """Join consecutive runs with one map: `model`, `start` (first run), `length` (runs), `map`."""
    rows = []
    for model, own in maps.groupby("model", sort=False):
        start = 0
        for number, same in groupby(own.sort_values("run")["map"]):
            length = len([*same])
            rows.append((model, start, length, number))
            start += length
    return pd.DataFrame(rows, columns=["model", "start", "length", "map"])


RESAMPLES = 2000
SEED = 0
RUNS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Numbers of runs of the stability table; a model takes those below its own number of runs."""
DRAWS = 50
TOP_K = 40  # heads compared in the stability table: as many as the paper masks in Llama-3.1


def derive(folder: Path) -> dict[Schema, pd.DataFrame]:
    """All derived tables from a folder of per-run scores."""
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise UserError(f"{folder}: no *.json with head scores. They are in the repository "
                        f"YoumiMa/RetMask on GitHub.")
    scores = [HeadScores.from_wu_json(path) for path in files]
    once = [each_map_once(s) for s in scores]
    scoring = [HeadScores(s.runs[s.runs.any((1, 2))], s.model) for s in once]
    makers = [(PUBLISHED_SCORES, head_table, scores), (PUBLISHED_SUMMARY, summarize, scores),
              (PUBLISHED_STABILITY, stability_table, scores), (PUBLISHED_MAPS, map_table, scores),
              (DISTINCT_SCORES, head_table, once), (DISTINCT_SUMMARY, summarize, once),
              (DISTINCT_STABILITY, stability_table, once), (SCORING_SUMMARY, summarize, scoring)]
    return {schema: pd.concat([make(s) for s in of], ignore_index=True)
            for schema, make, of in makers}


def write(tables: dict[Schema, pd.DataFrame], out: Path) -> list[Path]:
    """Write the derived tables as CSV with six decimals."""
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / schema.file for schema in tables]
    for path, table in zip(paths, tables.values(), strict=True):
        table.to_csv(path, index=False, float_format="%.6f", lineterminator="\n")
    return paths


def head_table(scores: HeadScores) -> pd.DataFrame:
    """One row per head: mean and standard deviation over runs, interval of the mean."""
    layer, head = np.indices(scores.shape).reshape(2, -1)
    low, high = scores.interval(0.95, resamples=RESAMPLES, seed=SEED).reshape(-1, 2).T
    return pd.DataFrame({
        "model": scores.model, "layer": layer, "head": head, "runs": len(scores.runs),
        "mean": scores.mean.ravel(), "sd": scores.runs.std(0, ddof=1).ravel(),
        "low": low, "high": high})


def stability_table(scores: HeadScores) -> pd.DataFrame:
    """Ranking from m runs, drawn without replacement, against the ranking from all runs."""
    counts = [m for m in RUNS if m < len(scores.runs)]
    table = ranking_stability(scores, counts, top_k=TOP_K, draws=DRAWS, seed=SEED)
    constants = {"model": scores.model, "draws": DRAWS, "top_k": TOP_K, "seed": SEED}
    table = table.rename(columns={"count": "runs"}).assign(**constants)
    return table[list(PUBLISHED_STABILITY.columns)]


MEAN_SCORE = "mean retrieval score"
MASKED = "masked heads"
ABOVE_ZERO = "heads with a score above zero"


class HeadNumbers:
    """Everything that the paper prints, and its authors publish, about heads and their scores."""

    def __init__(self, folder: Path) -> None:
        self._text = [r for r in read_records(TEXT_NUMBERS, folder)
                      if r["quantity"] in ("value", "at least")]
        self.bins = by(lambda r: r["group"], read_records(SCORE_BINS, folder))
        self.published = by(lambda r: r["model"], read_records(PUBLISHED_SUMMARY, folder))
        self.heads = {model: Printed.exact(int(rows[0]["heads"]))
                      for model, rows in self.bins.items()}

    def stated(self, column: str, model: str = "", row: str = "") -> list[Value]:
        """Numbers of the text, the first of each paper."""
        found = {r["source"]: r for r in reversed(self._text)
                 if (r["column"], r["group"], r["row"]) == (column, model, row)}
        return [(Printed.read(found[s]["value"]), place_of(found[s])) for s in sorted(found)]

    def required(self, column: str, model: str = "", row: str = "") -> Value:
        """Return the first of `stated`; a UserError says that the transcription lacks it."""
        found = self.stated(column, model, row)
        if not found:
            about = " / ".join(part for part in (model, row) if part) or "no model in particular"
            raise UserError(f"{TEXT_NUMBERS.file} has no {column!r} for {about}.")
        return found[0]

    def at_least(self, model: str) -> bool:
        """Return whether the text gives the share of heads above zero as a lower bound."""
        return any(r["quantity"] == "at least" and r["group"] == model for r in self._text)

    def tau(self, model: str) -> Fraction:
        """Threshold of the model, as the text states it."""
        return self.required("threshold tau", model)[0].value

    def above_tau(self, model: str) -> Value:
        """Percent of heads at or above tau: what the bins below tau leave of 100."""
        below = [r for r in self.bins[model] if Printed.read(r["high"]).value <= self.tau(model)]
        rest = Printed.exact(100) - sum((Printed.read(r["value"]) for r in below), Printed.exact(0))
        return rest, f"{_place(below[0])}: 100 % minus the bins below tau"

    def statistic(self, model: str, name: str) -> Value:
        """A statistic of the published scores. It is exact: nobody rounded it for print."""
        row = next(r for r in self.published[model] if r["statistic"] == name)
        return Printed.exact(Fraction(row["value"])), f"published scores, {model}: {name}"


def score_bins(numbers: HeadNumbers) -> Iterator[Comparison]:
    """Shares of the figure: they fill 100 %, and agree with the text's heads."""
    for model, rows in numbers.bins.items():
        shares = [Printed.read(r["value"]) for r in rows if r["value"]]
        place = f"{_place(rows[0])}: sum of the {len(shares)} shares printed"
        total = sum(shares, Printed.exact(0)), place
        if len(shares) == len(rows):
            yield equal("score bins", f"{model}: sum of all bins", *total, *_hundred())
        else:
            yield above("score bins", f"{model}: 100 % hold the bins printed", *_hundred(), *total)
        share, place = numbers.above_tau(model)
        for masked in numbers.stated(MASKED, model):
            yield equal("score bins", f"{model}: heads at or above tau",
                        share * numbers.heads[model] / 100, place, *masked)
        zero = next(r for r in rows if r["low"] == r["high"])
        nonzero = (Printed.exact(100) - Printed.read(zero["value"])) / 10
        rule = above if numbers.at_least(model) else equal
        for stated in numbers.stated(ABOVE_ZERO, model):
            yield rule("score bins", f"{model}: tenths of heads above zero", nonzero,
                       f"{_place(zero)}: 100 % minus the share at zero", *stated)


def masked_shares(numbers: HeadNumbers) -> Iterator[Comparison]:
    """Share of heads masked, by every count there is, against the range that the text gives."""
    lowest, highest = (numbers.required(f"share of heads masked, {end}")
                       for end in ("lowest", "highest"))
    for model, heads in numbers.heads.items():
        shares = [numbers.above_tau(model)]
        counts = numbers.stated(MASKED, model)
        if model in numbers.published:
            counts.append(_published_count(numbers, model))
        shares += [(count * 100 / heads, place) for count, place in counts]
        for share, place in shares:
            what = f"{model}: percent of heads masked"
            yield above("share masked", f"{what}, at least", share, place, *lowest)
            yield above("share masked", f"{what}, at most", *highest, share, place)


def mean_gains(numbers: HeadNumbers) -> Iterator[Comparison]:
    """Gain of the mean score: masked and other heads, weighted by their numbers, make the whole."""
    for model, heads in numbers.heads.items():
        masked = numbers.stated(MASKED, model)
        parts = [numbers.stated("mean gain in retrieval score", model, f"{which} heads")
                 for which in ("masked", "other")]
        if not (masked and all(parts)):
            continue
        (count, _), (gain, place), (other, _) = masked[0], parts[0][0], parts[1][0]
        whole = (count * gain + (heads - count) * other) / heads
        (before, _), (after, place_after) = (numbers.required(MEAN_SCORE, model, row)
                                             for row in ("Before", "After"))
        yield equal("mean gain", f"{model}: gain of the mean score over all heads", whole,
                    f"{place}, weighted with the other heads", after - before, place_after)


def published_scores(numbers: HeadNumbers) -> Iterator[Comparison]:
    """The scores that the authors publish against what their papers print about them."""
    for model in numbers.published:
        for masked in numbers.stated(MASKED, model):
            yield equal("published scores", f"{model}: heads at or above tau",
                        *_published_count(numbers, model), *masked)
        for stated in numbers.stated(MEAN_SCORE, model, "Before"):
            yield equal("published scores", f"{model}: {MEAN_SCORE} over all heads",
                        *numbers.statistic(model, "mean_score"), *stated)
        for r in numbers.bins.get(model, ()):
            if r["value"]:
                share, place = numbers.statistic(model, _bin_statistic(r))
                yield equal("published scores", f"{model}: percent of heads in bin {r['label']}",
                            share * 100, place, Printed.read(r["value"]),
                            f"{_place(r)}: {r['label']}")


def _published_count(numbers: HeadNumbers, model: str) -> Value:
    return numbers.statistic(model, f"heads_at_least_{float(numbers.tau(model)):g}")


def _bin_statistic(r: dict) -> str:
    low, high = float(r["low"]), float(r["high"])
    return "share_zero" if high == 0 else f"share_{low:g}_{high:g}"


def _place(r: dict) -> str:
    return f"{r['source']} {r['place']}, {r['group']}"


def _hundred() -> Value:
    return Printed.exact(100), "all heads"
