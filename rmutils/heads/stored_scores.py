"""Head scores in stored results, which are meant by their name or their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.numpy import load_file

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.manifests import MANIFEST
from rmutils.core.results import Artifact, find

CASES, RUNS = "cases.parquet", "scores.safetensors"  # files of a detection
STAGES = "detect", "scores"  # stages that hold scores of one kind, or of several that one run gave


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
