"""HELMET's own result files, read into the table of `evaluate`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from rmutils.core.config import NoConfig, digest
from rmutils.core.errors import UserError
from rmutils.core.files import read_text, sha256
from rmutils.core.results import Artifact, Stage, write_tables
from rmutils.core.validation import parse_json
from rmutils.evaluation.helmet.official import OFFICIAL

COLLECTED = Stage("helmet", version=1)
JUDGED = "-gpt4eval_o.json"
PARTS = {"args": dict, "data": list, "metrics": dict, "averaged_metrics": dict}
"""Parts of a result file of HELMET."""
SETTINGS = ("datasets", "input_max_length", "model_name_or_path")
THOUGHTS = 32768
"""Tokens by which HELMET's `--thinking` has lengthened what its result files call
`input_max_length`."""
GRADES = {"gpt-4-score": lambda g: g["fluency"] * g["correctness"] * 100 / 3,
          "gpt-4-f1": lambda g: g["f1"] * 100}
"""Metrics that GPT-4o grades -> score from its grades, 0 to 100."""


def collect(folder: Path) -> tuple[pd.DataFrame, str]:
    """Read the results of one model: as from `rmutils.evaluation.helmet.evaluate`, and its name."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder. Give HELMET's output folder of a model.")
    paths = [path for path in sorted(folder.glob("*.json")) if not path.name.endswith(JUDGED)]
    if not paths:
        raise UserError(f"{folder} holds no result files (*.json) of HELMET.")
    rows: list[dict] = []
    seen: dict[tuple[str, int], Path] = {}
    models = set()
    for path in paths:
        try:
            result = _read(path)
            models.add(str(result["args"]["model_name_or_path"]))
            name, length = _dataset(path, result), _length(result["args"])
            if other := seen.get((name, length)):
                raise UserError(f"{other.name} and {path.name} are both about {name} at {length} "
                                f"tokens. Take one of them away.")
            seen[name, length] = path
            rows += _rows(path, name, length, result)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise UserError(f"{path}, or what belongs to it, is damaged or of another version of "
                            f"HELMET ({type(error).__name__}: {error}).") from error
    if len(models) > 1:
        raise UserError(f"{folder} has results of several models: {', '.join(sorted(models))}.")
    if not rows:
        raise UserError(f"Nothing in {folder} has been scored yet: run HELMET's scripts for GPT-4o "
                        f"(`scripts/eval_gpt4_*.py`) and for citations (`eval_alce.py`).")
    return pd.DataFrame(rows), models.pop()


def _read(path: Path) -> dict:
    """A result file, checked for its form."""
    try:
        result = parse_json(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is cut short, or no JSON at all ({error}). Run HELMET again for "
                        f"it.") from error
    if not isinstance(result, dict) or not all(
            isinstance(result.get(part), kind) for part, kind in PARTS.items()):
        raise UserError(f"{path} is no result file of HELMET: it should have "
                        f"{', '.join(PARTS)}.")
    if lacking := [name for name in SETTINGS if name not in result["args"]]:
        raise UserError(f"{path} is of another version of HELMET: its args have no "
                        f"{', '.join(lacking)}.")
    for name, values in result["metrics"].items():
        if len(values) != len(result["data"]):
            raise UserError(f"{path} is damaged: {len(result['data'])} samples, but "
                            f"{len(values)} values of {name}.")
    return result


def _dataset(path: Path, result: dict) -> str:
    told = str(result["args"]["datasets"])
    if name := next((name for name in OFFICIAL if name in told), None):
        return name
    raise UserError(f"{path}: there is no data set {told!r} among HELMET's categories: "
                    f"{', '.join(OFFICIAL)}.")


def _length(args: dict) -> int:
    return int(args["input_max_length"]) - (THOUGHTS if args.get("thinking") else 0)


def _rows(path: Path, name: str, length: int, result: dict) -> Iterator[dict]:
    official = OFFICIAL[name]
    base = {"category": official.category, "dataset": name, "length": length}
    if official.category == "Cite":
        yield from _means(path, base, official.metrics)
        return
    metric, = official.metrics
    data, shown = result["data"], path
    if metric in GRADES:
        shown = path.with_name(path.name.replace(".json", JUDGED))
        if not shown.exists():
            return
        data = _read(shown)["data"]
    questions: dict[str, int] = {}
    for i, item in enumerate(data):
        question = str(item.get("qid") or item.get("question") or item.get("id") or i)
        score = _score(shown, metric, item)
        yield {**base, "sample": i, "cluster": questions.setdefault(question, len(questions)),
               "metric": metric, "score": score, "unscored": math.isnan(score),
               "response": str(item.get("output", "")),
               "prompt_tokens": int(item.get("input_len", -1)),
               "position": float(item.get("depth", np.nan))}


def _score(path: Path, metric: str, item: dict) -> float:
    """0 to 100; NaN where GPT-4o gave no grade."""
    if metric in GRADES:
        grades = item.get("gpt-4-scores", item.get("gpt4-scores"))
        # HELMET's recall, and with it its F1, can pass 1: a judge may find more key points than
        # there are. HELMET averages what it has, and so does this.
        most = math.inf if metric == "gpt-4-f1" else 100
        return _checked(GRADES[metric](grades), most) if grades else float("nan")
    if metric not in item:
        raise UserError(f"{path} is of another version of HELMET: its samples have no {metric}.")
    return _checked(100 * float(item[metric]))


def _checked(score: float, most: float = 100) -> float:
    if not 0 <= score <= most or math.isinf(score):
        raise ValueError(f"a score of {score}, expected 0 to {most:g}")
    return score


def _means(path: Path, base: dict, metrics: tuple[str, ...]) -> Iterator[dict]:
    """The means of a data set of Cite, which stand in a file of their own."""
    file = path.with_name(f"{path.name}.score")
    if not file.exists():
        return  # not scored yet
    try:
        means = parse_json(read_text(file))
    except ValueError as error:
        raise UserError(f"{file} is cut short ({error}). Run HELMET again for it.") from error
    if lacking := [metric for metric in metrics if metric not in means]:
        raise UserError(f"{file} has no {', '.join(lacking)}: it is of another version of HELMET.")
    for metric in metrics:
        yield {**base, "sample": -1, "cluster": -1, "metric": metric,
               "score": _checked(float(means[metric])), "unscored": False, "response": "",
               "prompt_tokens": -1, "position": np.nan}


def collect_stored(folder: Path) -> tuple[pd.DataFrame, Artifact]:
    """`collect`, kept among the stored results with the model's name in its facts."""
    table, model = collect(folder)
    files = {path.name: sha256(path) for path in sorted(folder.glob("*.json*"))}

    def make(target: Path) -> dict:
        write_tables({"scores": table}, target)
        return {"model": model, "files": len(files)}

    artifact = COLLECTED.obtain_folder(NoConfig(), {"files": digest(files)}, make,
                                       command="rmutils collect FOLDER", model=model)
    return COLLECTED.read(artifact.folder)["scores"], artifact
