"""Files of head scores: the project's own, stored results, and what others write and read."""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors.numpy import load_file

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.files import read_text
from rmutils.core.manifests import MANIFEST
from rmutils.core.results import Artifact, find
from rmutils.core.validation import head_of, parse_json

FORMAT, VERSION = "rmutils.HeadScores", 2
Format = Literal["rmutils", "wu", "qrhead", "duo"]
EXPECTED = 'Expected {"layer-head": [score, ...]}'
SHARES, SLACK = ("copy", "anchor"), 1e-4  # kinds of score that go from 0 to 1, but for rounding
LARGEST_PUBLISHED = 10
"""The published code counts each copy, of 50 tokens, and divides by a needle's, more than five."""
Fields = Mapping[str, Any]  # fields of `HeadScores` by name
CASES, RUNS = "cases.parquet", "scores.safetensors"  # files of a detection
STAGES = "detect", "scores"  # stages that hold scores of one kind, or of several that one run gave


def check_parts(model: str, runs: NDArray[np.float64], clusters: NDArray[Any] | None,
                cases: pd.DataFrame) -> None:
    """Refuse runs, their clusters and cases that do not belong together."""
    if runs.ndim != 3:
        raise UserError(f"{model}: runs have the shape {runs.shape}. Expected (successful runs, "
                        f"layers, heads).")
    if clusters is not None and (clusters.shape != runs.shape[:1] or pd.isna(clusters).any()):
        raise UserError(f"{model}: clusters have the shape {clusters.shape}. Expected one for each "
                        f"of {len(runs)} successful runs, and none that is missing.")
    if not len(cases):
        return
    kinds = {name: kind.kind for name, kind in cases.dtypes.items()}
    if kinds.get("success") != "b" or kinds.get("needle", "i") not in "iu":
        raise UserError(f"{model}: cases need the columns success (true or false) and needle (its "
                        f"number).")
    if (found := int(cases["success"].sum())) != len(runs):
        raise UserError(f"{model}: {found} of {len(cases)} cases are successful, but there are "
                        f"scores of {len(runs)} runs.")


def write(path: Path, fields: Fields, intervals: NDArray[np.float64] | None, format: Format,
          key_heads: int | None) -> None:
    """Write the fields of scores; see `HeadScores.save`."""
    runs = fields["runs"]
    if format != "rmutils" and np.isnan(runs).any():
        raise UserError(f"{path}: the format {format} has no place for layers without heads, as "
                        f"this model has. Save in the format rmutils.")
    if format in ("qrhead", "duo") and not len(runs):
        raise UserError(f"{path}: there is no successful run, and {format} keeps means only.")
    if format == "rmutils":
        text = json.dumps(_record(fields, intervals), indent=1, allow_nan=False) + "\n"
    elif format == "wu":
        text = json.dumps(_by_head(runs))
    elif format == "qrhead":
        means = {head: sum(values) / len(values) for head, values in _by_head(runs).items()}
        text = json.dumps(sorted(means.items(), key=lambda item: -item[1]), indent=4)
    else:
        text = _gates(path, runs, key_heads)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    lost = {"wu": "which runs belong to one needle, so intervals from it are too narrow",
            "qrhead": "the scores of single runs, so there are no intervals",
            "duo": "single runs, and which query head of a key head scores: it has the highest"}
    known = {"wu": fields["clusters"] is not None, "qrhead": len(runs) > 1,
             "duo": len(runs) > 1 or key_heads != runs.shape[2]}
    if known.get(format):
        warnings.warn(f"{path} does not say {lost[format]}. HeadScores.save keeps everything in "
                      f"its own format.", stacklevel=4)


def _record(fields: Fields, intervals: NDArray[np.float64] | None) -> dict[str, Any]:
    runs, cases, clusters = fields["runs"], fields["cases"], fields["clusters"]
    scores = _by_head(runs)
    heads = [tuple(map(int, head.split("-"))) for head in scores]
    bare = sorted({*range(runs.shape[1])} - {layer for layer, _ in heads})
    ids = cases.loc[cases["success"], "case"].tolist() if "case" in cases else range(len(runs))
    record: dict[str, Any] = {
        "format": FORMAT, "version": VERSION,
        "meta": {"model": fields["model"], "method": fields["score"], **fields["about"],
                 "num_trials_passed": len(runs),
                 "num_trials_total": len(cases) if len(cases) else None},
        "shape": list(runs.shape[1:]),
        **({"layers_without_heads": bare} if bare else {}),
        "scores": scores, "trial_ids": list(map(str, ids)),
        "clusters": None if clusters is None else clusters.tolist(),
        "cases": cases.astype(object).where(cases.notna(), None).to_dict("list"),
    }
    if intervals is not None and all(np.isfinite(intervals[head]).all() for head in heads):
        means = runs.mean(0)
        record["means"] = {name: float(means[head]) for name, head in zip(
            scores, heads, strict=True)}
        record["confidence_intervals"] = {name: intervals[head].tolist() for name, head in zip(
            scores, heads, strict=True)}
    return record


def _by_head(runs: NDArray[np.float64]) -> dict[str, list[float]]:
    return {f"{i}-{j}": runs[:, i, j].tolist() for i, j in np.ndindex(*runs.shape[1:])
            if not np.isnan(runs[:, i, j]).any()}


def _gates(path: Path, runs: NDArray[np.float64], key_heads: int | None) -> str:
    layers, heads = runs.shape[1:]
    if not key_heads or heads % key_heads:
        raise UserError(f"{path}: the format duo has a column for each key head, and {heads} query "
                        f"heads cannot share {key_heads or 'an unknown number of'} key heads.")
    gates = runs.mean(0).reshape(layers, key_heads, -1).max(-1)
    if gates.min() < 0 or gates.max() > 1:
        warnings.warn(f"{path} has gates outside of 0 to 1, which its readers cut off.",
                      stacklevel=5)
    text = io.StringIO()
    np.savetxt(text, gates, delimiter="\t")
    return text.getvalue()


def read(where: Path | str, *, shape: tuple[int, int] | None = None, weights: str = "",
         query_heads: int | None = None, kind: str | None = None) -> dict[str, Any]:
    """Read scores of any of the formats, which the content tells; see `HeadScores.load`."""
    path = Path(where)
    if artifact := stored_detection(where):
        found = read_stored(artifact, kind)
        check_model(path, found["model"], found["about"]["weights"], weights)
        _check_shape(path, found["runs"].shape[1:], shape)
        return found
    text = read_text(path)
    if kind is not None:
        raise UserError(f"{path} is no stored detection, so it has one kind of score. Leave "
                        "score out.")
    try:
        if text.strip() and text.lstrip()[0] not in '{["':
            return {"runs": _read_gates(text, path, shape, query_heads), "model": path.stem}
        record = parse_json(text)
        if not isinstance(record, dict | list):
            raise TypeError("neither an object nor a list")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: not head scores. {EXPECTED} ({error}).") from error
    if isinstance(record, dict) and "scores" in record:
        return _read_record(record, path, shape, weights)
    if isinstance(record, dict) and "format" in record:
        raise UserError(f"{path}: not head scores, but {record['format']}.")
    found = {"runs": _read_heads(record, path, shape), "model": path.stem}
    if isinstance(record, list):
        return found
    about = {"grid": {"definition": "wu"}}  # so that they are known once they are saved
    return _checked({**found, "about": about}, path)


def _checked(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Refuse shares that are none; the published code, which counts each copy, exceeds 1."""
    kind, runs, grid = found.get("score", "copy"), found["runs"], found["about"].get("grid")
    highest = 1
    if isinstance(grid, dict) and grid.get("definition") == "wu":
        longest = grid.get("max_new_tokens")
        highest = longest if isinstance(longest, int) else LARGEST_PUBLISHED
    if kind in SHARES and runs.size and not (
            -SLACK <= np.nanmin(runs) <= np.nanmax(runs) <= highest + SLACK):
        raise UserError(f"{path}: scores of the kind {kind} go from 0 to {highest}, and these "
                        f"from {np.nanmin(runs):.4g} to {np.nanmax(runs):.4g}.")
    return found


def _read_gates(text: str, path: Path, shape: tuple[int, int] | None,
                query_heads: int | None) -> NDArray[np.float64]:
    """Gates of key heads, which all their query heads get."""
    gates = np.loadtxt(io.StringIO(text), delimiter="\t", ndmin=2, comments=None)
    if not np.isfinite(gates).all():
        raise ValueError("a gate is not finite (NaN or infinity)")
    gates = np.clip(gates, 0, 1)
    wanted = shape[1] if shape else query_heads
    if not wanted:
        raise UserError(f"{path} has gates of {gates.shape[1]} key heads, which are no query heads."
                        f" Say of how many: load(path, lm), load(path, query_heads=32) or "
                        f"--query-heads 32.")
    if not gates.shape[1] or wanted % gates.shape[1]:
        raise UserError(f"{path}: {wanted} query heads cannot share the gates of {gates.shape[1]} "
                        f"key heads.")
    gates = gates.repeat(wanted // gates.shape[1], axis=1)
    table = {head: gates[None, *head] for head in np.ndindex(*gates.shape)}
    return _as_array(table, path, shape)


def _read_heads(record: Any, path: Path, shape: tuple[int, int] | None,
                bare: Iterable[int] = ()) -> NDArray[np.float64]:
    try:
        items = record.items() if isinstance(record, dict) else [
            (key, [value]) for key, value in record]
        table = {head_of(key): np.asarray([_number(one) for one in values], dtype=float)
                 for key, values in items}
        if len(table) < len(items):
            raise ValueError("a head occurs twice")
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: not head scores. {EXPECTED} ({error}).") from error
    return _as_array(table, path, shape, bare)


def _number(value: object) -> object:
    if type(value) not in (int, float):
        raise TypeError(f"{json.dumps(value)[:80]} is no number")
    return value


def _read_record(record: dict[str, Any], path: Path, shape: tuple[int, int] | None,
                 weights: str) -> dict[str, Any]:
    """The project's own file, or one of LOCOS, which has no version."""
    meta = record.get("meta")
    if "format" in record and record["format"] != FORMAT or not isinstance(meta, dict):
        raise UserError(f"{path}: not head scores that HeadScores.save or LOCOS wrote.")
    if record.get("version", VERSION) != VERSION:
        raise UserError(f"{path} is of version {record['version']}; this rmutils reads version "
                        f"{VERSION}. Read it with the rmutils that wrote it, or update rmutils.")
    if not all(isinstance(meta.get(name, ""), str) for name in ("model", "method", "weights")):
        raise UserError(f"{path}: damaged head scores (model, method and weights are texts).")
    check_model(path, meta.get("model"), meta.get("weights", ""), weights)
    about = {name: value for name, value in meta.items() if name not in (
        "model", "method", "num_trials_passed", "num_trials_total")}
    try:
        clusters = record.get("clusters")
        found = {"runs": _read_heads(record["scores"], path, shape, tuple(
            record.get("layers_without_heads") or ())),
                 "model": meta.get("model") or path.stem,
                 "clusters": None if clusters is None else np.array(clusters),
                 "cases": pd.DataFrame(record.get("cases") or {}),
                 "score": meta.get("method", "copy"), "about": about}
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: damaged head scores ({error}).") from error
    ids = record.get("trial_ids")
    for name, said, have in (
            ("shape", record.get("shape"), [*found["runs"].shape[1:]]),
            ("num_trials_passed", meta.get("num_trials_passed"), len(found["runs"])),
            ("trial_ids", len(ids) if isinstance(ids, list) else ids, len(found["runs"]))):
        if said not in (None, have):
            raise UserError(f"{path}: damaged head scores ({name}: {said}, but the scores have "
                            f"{have}).")
    if "format" not in record:  # by LOCOS, which has no name for the kind of score
        return found
    return _checked(found, path)


def check_model(path: Path, name: object, known: str, weights: str) -> None:
    """Refuse scores of another model, in whatever precision, masked or changed, both are."""
    known, weights = (re.sub(r"^changed \w+ of | (float32|bfloat16|float16)$", "", one)
                      for one in (known, weights))
    if weights and known and known != weights:
        raise UserError(f"{path}: scores of another model, {name} ({known}). If you mean it, "
                        f"`rmutils heads convert {path} scores.json --to wu` writes them without "
                        "the model.")


def _check_shape(path: Path, found: tuple[int, ...], shape: tuple[int, int] | None) -> None:
    if shape and found != tuple(shape):
        raise UserError(f"{path}: scores of {found[0]} layers x {found[1]} heads, but the model "
                        f"has {shape[0]} x {shape[1]}. Are they of another model?")


def _as_array(table: dict[tuple[int, int], NDArray[np.float64]], path: Path,
              shape: tuple[int, int] | None, bare: Iterable[int] = ()) -> NDArray[np.float64]:
    """(runs, layers, heads) from a complete table of equally long rows; NaN in bare layers."""
    if not table:
        raise UserError(f"{path}: not head scores. {EXPECTED}.")
    width, length = max(head for _, head in table) + 1, len(next(iter(table.values())))
    nothing = {(layer, head): np.full(length, np.nan) for layer in bare for head in range(width)}
    if nothing.keys() & table.keys():
        raise UserError(f"{path}: layers without heads have scores.")
    found = max(layer for layer, _ in table | nothing) + 1, width
    _check_shape(path, found, shape)
    # Any number is missing where a key has a digit too many.
    if missing := math.prod(found) - len(table) - len(nothing):
        names = (f"{i}-{j}" for i in range(found[0]) for j in range(found[1])
                 if not {(i, j)} & (table.keys() | nothing.keys()))
        raise UserError(f"{path}: {_some(names, missing)} missing.")
    lengths = {len(values) for values in table.values()}
    if len(lengths) > 1:
        raise UserError(f"{path}: heads have different numbers of runs ({min(lengths)} to "
                        f"{max(lengths)}).")
    wrong = [f"{i}-{j}" for (i, j), values in table.items() if not np.isfinite(values).all()]
    if wrong:
        raise UserError(f"{path}: {_some(wrong, len(wrong))} not finite (NaN or infinity).")
    table |= nothing
    rows = [table[head] for head in np.ndindex(*found)]
    return np.stack(rows, axis=1).reshape(-1, *found)


def _some(names: Iterable[str], count: int) -> str:
    verb = "is" if count == 1 else "are"
    more = f" and {count - 5} more" if count > 5 else ""
    return f"head {', '.join(islice(names, 5))}{more} {verb}"


def stored_detection(where: Path | str) -> Artifact | None:
    """Return the stored result of a name, folder or file; None for a file of another kind."""
    path = Path(where)
    folder = path.parent if path.name in (MANIFEST, CASES, RUNS) else path
    if (folder / MANIFEST).is_file():
        artifact = Artifact(folder.resolve()).checked()
    elif path.exists():
        if path.is_dir():
            raise UserError(f"{path} is a folder without {MANIFEST}, so it is no stored detection. "
                            "Give the folder of one, or a file of head scores.")
        return None
    elif (found := find(str(where))) is None:
        return None
    else:
        artifact = found
    if artifact.stage not in STAGES:
        raise UserError(f"{artifact.name} is a result of the stage {artifact.stage}, which holds "
                        "no head scores. Those of the stages detect and scores do.")
    return artifact


def read_stored(artifact: Artifact, kind: str | None) -> dict[str, Any]:
    """Return the fields of `HeadScores` of a stored detection, by name."""
    grid: dict[str, Any] = artifact.manifest["config"]
    own = grid.get("score", "copy")
    runs, cases = load_file(artifact.path(RUNS)), pd.read_parquet(artifact.path(CASES))
    if artifact.stage == "detect":
        runs = {own: runs["runs"]}
    kind = kind or own
    if kind not in runs:
        raise UserError(f"{artifact.name} has no scores of the kind {kind!r}."
                        f"{did_you_mean(kind, runs)} It has {', '.join(sorted(runs))}.")
    cases["success"] |= len(runs[kind]) == len(cases)  # of this kind, every case may count
    return {
        "runs": runs[kind], "model": artifact.model, "score": kind, "cases": cases,
        "clusters": cases["needle"].to_numpy()[cases["success"]],
        "about": {"weights": artifact.manifest["inputs"]["model"], "grid": grid}}
