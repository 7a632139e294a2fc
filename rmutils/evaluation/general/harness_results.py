"""What lm-evaluation-harness wrote, as the table that this book's own tasks give."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rmutils.errors import UserError
from rmutils.evaluation.general.harness import BENCHMARKS, Benchmark
from rmutils.files import parse_json

TOLERANCE = 1e-6
"""By how much a mean of the samples may differ from the mean that the harness wrote."""


def find_results(folder: Path) -> Path | None:
    """The newest results below a folder; None if there are none."""
    return max(Path(folder).rglob("results_*.json"), key=lambda path: path.name, default=None)


def read_results(
    folder: Path, known: Mapping[str, Benchmark] = BENCHMARKS
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Scores of single questions, checked against the means that the harness wrote.

    Parameters
    ----------
    folder : Path
        Where `--output_path` pointed to, or a folder within. Of several results the newest count.
    known : mapping
        The benchmarks to be read, by name; those that were not run are left out.

    Returns
    -------
    DataFrame, dict
        `task` (the benchmark's name), `kind` (the harness's task, of a group), `sample`, `score`
        (0 to 100), `response`; and `model`, `version` (of the harness), `date`, `versions` (of the
        tasks).

    Raises
    ------
    UserError
        There are no results, they are not of a form that is known here, or samples are missing.
    """
    path = find_results(folder)
    if path is None:
        raise UserError(f"{folder} holds no results of lm-evaluation-harness (results_*.json). "
                        f"Make them: `rmutils abilities MODEL --harness {folder}`.")
    try:
        return _read(path, known)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}): it was cut short, or is "
                        f"not of lm-evaluation-harness. Run the harness again.") from error


def _read(
    path: Path, known: Mapping[str, Benchmark]
) -> tuple[pd.DataFrame, dict[str, str]]:
    results = parse_json(path.read_text(encoding="utf-8"))
    done, groups = results["results"], results.get("group_subtasks", {})
    tables, versions = [], {}
    for name, benchmark in known.items():
        for task in groups.get(benchmark.task) or [benchmark.task]:
            if task in done:
                tables.append(_samples(path, results, task, name, benchmark))
                versions[task] = str(results.get("versions", {}).get(task))
    if not tables:
        raise UserError(f"{path} holds none of {', '.join(b.task for b in known.values())}, but "
                        f"{', '.join(done)}.")
    table = pd.concat(tables, ignore_index=True)
    table["sample"] = table.groupby("task").cumcount()
    return table, {
        "model": str(results.get("model_name")), "version": str(results.get("lm_eval_version")),
        "date": path.stem.removeprefix("results_"),
        "versions": ", ".join(f"{task} {version}" for task, version in versions.items())}


def _samples(
    path: Path, results: dict, task: str, name: str, benchmark: Benchmark
) -> pd.DataFrame:
    """The samples of a task, which must be as many, and as good, as the results say."""
    key = f"{benchmark.metric},{benchmark.filter}"
    reported = results["results"][task].get(key)
    if not isinstance(reported, (int, float)):
        raise UserError(f"{path}: {task} has no {key!r}, but {', '.join(results['results'][task])} "
                        f"(lm-evaluation-harness {results.get('lm_eval_version')}). This book "
                        f"reads the metrics of version 0.4.13.")
    file = path.with_name(f"samples_{task}_{path.stem.removeprefix('results_')}.jsonl")
    try:
        rows = [parse_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
        rows = sorted((row for row in rows if row.get("filter", "none") == benchmark.filter),
                      key=lambda row: row["doc_id"])
        scores = [100 * float(row[benchmark.metric]) for row in rows]
        responses = [_text(row["resps"]) for row in rows]
    except FileNotFoundError:
        raise UserError(f"{file} is missing: give the harness --log_samples.") from None
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file} cannot be read ({type(error).__name__}: {error}): it was cut "
                        f"short. Run the harness again.") from error
    wanted = results.get("n-samples", {}).get(task, {}).get("effective", len(rows))
    if len(rows) != wanted or not rows:
        raise UserError(f"{file} has {len(rows)} of {wanted} samples: it was cut short. Run the "
                        f"harness again.")
    found = sum(scores) / len(scores) / 100
    if not math.isclose(found, reported, abs_tol=TOLERANCE):
        raise UserError(f"{file}: its samples have a mean of {found:.6f}, but {path.name} says "
                        f"{reported:.6f}. They are not of one run; run the harness again.")
    return pd.DataFrame({"task": name, "kind": task, "sample": range(len(rows)), "score": scores,
                         "response": responses})


def _text(responses: list) -> str:
    """The first response of a question; of a choice, the numbers of its options."""
    first = responses[0]
    if isinstance(first, list) and len(responses) == 1 and isinstance(first[0], str):
        return first[0]
    return first if isinstance(first, str) else json.dumps(responses)
