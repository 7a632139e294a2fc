"""Costs as measured by `python -m benchmarks`, beside other ways to do the same."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from rmutils.book.findings import Measured, declare, scaled
from rmutils.core import paths
from rmutils.core.errors import NotStored
from rmutils.stats import draws, interval_of

__all__ = ["FOLDER", "REFERENCE", "Benchmark", "load", "middle", "ratio", "seconds_of"]
FOLDER = paths.DATA / "benchmarks"
REFERENCE = "two-phase"
"""The way whose tokens and counts the others must have: the published algorithm."""


@dataclass(frozen=True)
class Benchmark:
    """The results of one benchmark."""

    rows: list[dict]  # a measurement each
    # `settings`, `environment`: What was asked for, and on which machine with which versions.
    settings: dict
    environment: dict
    command: str  # what makes it

    def find(self, **key: object) -> list[dict]:
        """Rows that have these values and did not fail."""
        return [row for row in self.rows if key.items() <= row.items() and "failed" not in row]

    @property
    def made(self) -> dict[str, str]:
        """For `rmutils.book.figures.report.how_made`."""
        env = self.environment
        others = {row["way"]: row["version"] for row in self.rows if "version" in row}
        return {
            "command": self.command,
            "settings": ", ".join(f"{k} = {v}" for k, v in self.settings.items()),
            "machine": env["hardware"],
            "versions": ", ".join(f"{k} {v}" for k, v in (env["packages"] | others).items()),
            "commit": env["commit"] or "unknown", "made": env["created"],
        }


def load(name: str, folder: Path = FOLDER) -> Benchmark:
    """Read the results of a benchmark."""
    path = folder / f"{name}.json"
    if not path.exists():
        raise NotStored(f"{name} is not measured yet. Measure it: `python -m benchmarks {name}`.")
    record = json.loads(path.read_text(encoding="utf-8"))
    return Benchmark(record["rows"], record["settings"], record["environment"], record["command"])


def seconds_of(row: dict) -> list[float]:
    """Seconds per case of each sample of a row: prefill and decoding together."""
    return [a + b for a, b in zip(row["prefill"], row["decode"], strict=True)]


def middle(samples: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean with a 95 % interval, which is NaN for a single sample."""
    return interval_of(np.exp(draws(np.log(samples))))


def ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """How many times as much `a` is as `b`, by geometric means, with a 95 % interval."""
    return interval_of(np.exp(draws(np.log(a), seed=1) - draws(np.log(b), seed=2)))


OURS, ALL_SCORES, PLAIN = "rmutils", "rmutils, five scores", "plain generation"
READING = "reading the prompt, nothing else"
SAME_PRODUCTS = "two-phase, products by oneDNN"
"""The reference with the library for products that ours has (`rmutils.models.products`)."""
VALUE = ["value", "low", "high"]
_LINE = ["line", "x", *VALUE]


def by_length(found: Benchmark, what: str = "seconds") -> pd.DataFrame:
    """Seconds per case (`seconds`, or `prefill` or `decode` alone) of each way at each length."""
    rows = []
    for row in found.rows:
        if "failed" not in row and "prefill" in row:
            value, low, high = middle(seconds_of(row) if what == "seconds" else row[what])
            rows.append({"line": row["way"], "x": row["length"], "value": value, "low": low,
                         "high": high})
    return pd.DataFrame(rows, columns=_LINE)


def differences(found: Benchmark) -> pd.DataFrame:
    """Check that each way says and counts what the reference does."""
    known = {row["length"]: row for row in found.find(way=REFERENCE)}
    rows = []
    for row in (r for r in found.rows if r["way"] != REFERENCE and r["length"] in known):
        if "failed" in row:
            rows.append({"way": row["way"], "length": row["length"], "failed": row["failed"]})
        else:
            same = known[row["length"]]
            rows.append({
                "way": row["way"], "length": row["length"], "failed": None,
                "answers": sum(a != b for a, b in zip(row["said"], same["said"], strict=True)),
                "heads": np.nan if row["copied"] is None else sum(
                    row["copied"].get(head, 0) != same["copied"].get(head, 0)
                    for head in {*row["copied"], *same["copied"]})})
    return pd.DataFrame(rows, columns=["way", "length", "failed", "answers", "heads"])


def costs_at(found: Benchmark, length: int) -> pd.DataFrame:
    """Seconds per case at one length, and how many times as long as here."""
    ours = found.find(way=OURS, length=length)
    rows = []
    for row in found.find(length=length):
        both = seconds_of(row)
        parts = {"prefill (s)": middle(row["prefill"]), "decoding (s)": middle(row["decode"]),
                 "both (s)": middle(both)}
        if ours and row["way"] != OURS:
            parts["both, times rmutils"] = ratio(both, seconds_of(ours[0]))
        rows += [{"way": row["way"], "quantity": name, **dict(zip(VALUE, triple, strict=True))}
                 for name, triple in parts.items()]
    return pd.DataFrame(rows, columns=["way", "quantity", *VALUE])


def against_witness(found: Benchmark) -> pd.DataFrame:
    """Return a row for each model of the benchmark `llama_cpp`, with the columns of its table."""
    rows = []
    for read in found.find(what="reading"):
        agree, answers = (found.find(what=what, model=read["model"])[0]
                          for what in ("agreement", "answers"))
        exact = next(iter(found.find(what="exact", model=read["model"])), None)
        ours, theirs = read["rmutils"], read["llama.cpp"]
        rows.append({
            "model": read["model"],
            "same highest token": f"{agree['top']:.1%}",
            "KL (nats)": f"{agree['kl']:.4f}",
            "KL, nothing rounded": f"{exact['kl']:.0e}" if exact else "not measured",
            "same answers": f"{answers['same']} of {answers['prompts']}",
            "needles found (here, there)": "{}, {}".format(*answers["found"]),
            "seconds, times llama.cpp": f"{ours['wall_seconds'] / theirs['wall_seconds']:.2f}",
            "peak (GB; here, there)": "{:.1f}, {:.1f}".format(
                *(side["peak_mib"] * 2**20 / 1e9 for side in (ours, theirs)))})
    return pd.DataFrame(rows)


def in_half_the_memory(found: Benchmark) -> pd.DataFrame:
    """Return a row for each model of the benchmark `precision`."""
    rows = []
    for whole, half in zip(found.find(dtype="float32"), found.find(dtype="bfloat16"), strict=True):
        scores = [np.asarray(row["scores"]) for row in (whole, half)]
        chosen = [one >= 0.1 for one in scores]
        rows.append({
            "model": whole["model"],
            "peak in GB: float32, bfloat16": "{:.1f}, {:.1f}".format(*(
                row["peak_mib"] * 2**20 / 1e9 for row in (whole, half))),
            "time, times float32": f"{half['cpu_seconds'] / whole['cpu_seconds']:.2f}",
            "in float32": chosen[0].sum(), "in bfloat16": chosen[1].sum(),
            "in both": (chosen[0] & chosen[1]).sum(),
            "scores most apart": f"{abs(scores[0] - scores[1]).max():.3f}"})
    return pd.DataFrame(rows)


def floor(found: Benchmark) -> pd.DataFrame:
    """Return a case's seconds if reading its prompt were matrix products at the machine's rate."""
    rate = middle(found.find(way="matrix products")[0]["rates"])[0]
    rows = []
    for plain in found.find(way=REFERENCE):
        operations = float(np.mean(plain["arithmetic"]))
        of_ways = {"plain reading": plain["prefill"], **{
            row["way"]: seconds_of(row) for row in found.find(way=OURS, length=plain["length"])}}
        for way, seconds in of_ways.items():
            value, low, high = middle(seconds)
            least = operations / rate
            rows.append({"way": way, "length": plain["length"], "operations": operations,
                         "floor": least, "share": (least / value, least / high, least / low),
                         "times": ratio(seconds, plain["prefill"]) if way == OURS else None})
    return pd.DataFrame(rows, columns=["way", "length", "operations", "floor", "share", "times"])


def growth(found: Benchmark, by: str) -> pd.DataFrame:
    """Seconds per case by `cases` that share a text, or of the decoding by `heads` of a layer."""
    rows = [{"line": row["way"], "x": row["count"], **dict(zip(VALUE, middle(
        seconds_of(row) if by == "cases" else row["decode"]), strict=True))}
        for row in found.find(by=by)]
    return pd.DataFrame(rows, columns=_LINE)


def grid_shares(found: Benchmark) -> pd.DataFrame:
    """The measured shares of the grid."""
    return pd.DataFrame(_shares(found), columns=[
        "needle", "cases", "sampled", "ours", "reference", "ratio"])


def _shares(found: Benchmark) -> Iterator[dict]:
    for row in found.find(way=OURS):
        share = {"needle": row["needle"]}
        for other in found.find(way=REFERENCE, **share):
            by_length = defaultdict(list)
            for case, seconds in zip(other["cases"], seconds_of(other), strict=True):
                by_length[_length(case)].append(seconds)
            ours = float(np.mean(seconds_of(row))) * len(row["cases"])
            reference = sum(float(np.mean(by_length[_length(case)])) for case in row["cases"])
            yield {**share, "cases": len(row["cases"]), "sampled": len(other["cases"]),
                   "ours": ours, "reference": reference, "ratio": reference / ours}


def sample_times(found: Benchmark) -> pd.DataFrame:
    """Return how many times as much processor time per case as ours each way takes."""
    wide = pd.DataFrame(found.rows)
    wide["each"] = wide["cpu_seconds"] / wide["cases"]
    each = wide.pivot(index=["length", "needle"], columns="way", values="each")
    each[READING] = wide[wide["way"] == REFERENCE].set_index(["length", "needle"])["prefill"]
    return pd.DataFrame([
        {"way": way, **dict(zip(VALUE, middle((each[way] / each[OURS]).to_numpy()), strict=True))}
        for way in (REFERENCE, SAME_PRODUCTS, READING, ALL_SCORES)])


GRID, LONGEST, SAMPLE, STEPS = ("the paper's 600 prompts", "one of the longest prompts",
                                "short prompts, processor time", "other steps of RetMask")
"""What is timed."""


def times_of_ours() -> pd.DataFrame:
    """Return how many times as long as ours other ways take, of all that is stored."""
    detection, training = load("detection"), load("training")
    costs = costs_at(detection, max(detection.settings["lengths"]))
    rows = [(GRID, REFERENCE, middle(grid_shares(load("grid"))["ratio"]))]
    for group, table in ((LONGEST, costs[costs["quantity"] == f"both, times {OURS}"]),
                         (SAMPLE, sample_times(load("sample")))):
        rows += [(group, way, tuple(ends)) for way, *ends in table[["way", *VALUE]].to_numpy()]
    ours, *others = training.find()
    rows += [(STEPS, f"training: {row['way']}", ratio(row["seconds"], ours["seconds"]))
             for row in others]
    ours, *others = load("evaluation").find()
    rows += [(STEPS, f"questions: {row['way']}", ratio(row["seconds"], ours["seconds"]))
             for row in others]
    answers = load("generation")
    ours, *others = answers.find(model=answers.settings["models"][-1])
    rows += [(STEPS, f"responses: {row['way']}", ratio(ours["rates"], row["rates"]))
             for row in others]
    return pd.DataFrame([{"group": group, "way": way, **dict(zip(VALUE, ends, strict=True))}
                         for group, way, ends in rows])


def reading_growth(found: Benchmark) -> tuple[float, float, float]:
    """Return how much faster a case's time grows with length than that of plain reading."""
    parts = []
    for length in (max(found.settings["lengths"]), min(found.settings["lengths"])):
        parts += [seconds_of(found.find(way=OURS, length=length)[0]),
                  found.find(way=REFERENCE, length=length)[0]["prefill"]]
    ours, plain, ours_short, plain_short = (
        draws(np.log(part), seed=seed) for seed, part in enumerate(parts, 1))
    return interval_of(np.exp(ours - plain - (ours_short - plain_short)))


def more_memory(found: Benchmark) -> pd.DataFrame:
    """Return the peak memory of the whole process beside plain generation."""
    rows = []
    for length in found.settings["lengths"]:
        ours, plain = (found.find(way=way, length=length)[0]["peak_mib"] for way in (OURS, PLAIN))
        rows.append({"length": length, "ours": ours, "plain": plain, "more": ours / plain - 1})
    return pd.DataFrame(rows)


def goals() -> pd.DataFrame:
    """Return the goals that were set before measuring, and what came out."""
    found, detection = times_of_ours().set_index(["group", "way"]), load("detection")
    start = next(iter(load("imports").find(way="rmutils --help")))["seconds"]
    nan = np.nan
    rows: list[tuple[str, float, float, Iterable[float]]] = [
        ("two-phase algorithm on the paper's grid, times ours", 3.2, nan,
         found.loc[GRID, REFERENCE]),
        ("nnsight on the longest texts, times ours", 1.35, nan, found.loc[LONGEST, "nnsight"]),
        ("five scores, times one", nan, 1.25, found.loc[SAMPLE, ALL_SCORES]),
        ("memory at the peak, times plain generation", nan, 1.1,
         (1 + more_memory(detection)["more"].max(), nan, nan)),
        ("growth of our time, times that of plain reading", nan, 1.0, reading_growth(detection)),
        ("seconds of rmutils --help", nan, 0.5, middle(start))]
    table = []
    for goal, least, most, out in rows:
        value, low, high = out
        table.append({"goal": goal, "least": least, "most": most, "value": value, "low": low,
                      "high": high, "reached": not (value < least or value > most)})
    return pd.DataFrame(table)


def _length(case: str) -> int:
    """From `needle-length-depth`."""
    return int(case.split("-")[1])


def against_first(rows: list[dict], what: str = "seconds") -> pd.DataFrame:
    """Samples of each way, and how many times as much they are as those of the first row's way."""
    first = rows[0]
    times = f"{what}, times those of {first['way']}"
    found = [(row["way"], what, middle(row[what])) for row in rows]
    found += [(row["way"], times, ratio(row[what], first[what])) for row in rows[1:]]
    return pd.DataFrame([{"way": way, "quantity": name, **dict(zip(VALUE, triple, strict=True))}
                         for way, name, triple in found], columns=["way", "quantity", *VALUE])


_times = cache(times_of_ours)


@declare("times-of-ours", unit="times", place="fig-speed-ways", otherwise=(
    "{way} takes {value} times as long {ci} as rmutils."))
def time_of_ours(group: str, way: str) -> Measured:
    """Seconds of another way over those of ours."""
    table = _times()
    return Measured.row(table[(table["group"] == group) & (table["way"] == way)].iloc[0], [])


@declare("growth-beside-reading", unit="percent", place="fig-speed-length", otherwise=(
    "From the shortest text to the longest, our time grows by {value} % {more|less} {ci} than "
    "that of plain reading: {verdict}."))
def growth_beside_reading() -> Measured:
    """How much more a case's time grows with its length than that of plain reading."""
    return Measured(scaled(end - 1 for end in reading_growth(load("detection"))), [])
