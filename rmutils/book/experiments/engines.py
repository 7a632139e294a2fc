"""RetMask with answers by vLLM, beside the same by transformers (`data/plans/vllm_pairs.yml`)."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from rmutils.core.results import Artifact, stored
from rmutils.heads.detection import load
from rmutils.pipeline.retmask import RETMASK

MODEL, STRATEGY, PAIRS = "tiny-llama", "retmask", 512
OURS = "transformers"


def engines() -> pd.DataFrame:
    """Return what each stored run of the plan's setting gave."""
    runs = {(found.manifest["inputs"].get("engine", OURS), found.manifest["config"]["seed"]): found
            for found in stored(RETMASK.name) if found.shipped and _of_plan(found)}
    pairs = {key: pd.read_parquet(found.path("pairs.parquet")).set_index("id")
             for key, found in runs.items()}
    rows = []
    for (engine, seed), found in sorted(runs.items()):
        own, other = pairs[engine, seed], pairs.get((OURS, seed))
        after = load(found.folder, MODEL, "copy")
        heads = json.loads(found.path("run.json").read_text())["heads"]
        rows.append({
            "engine": engine, "seed": seed, "pairs": len(own),
            **{side: own[f"{side}_tokens"].mean() for side in ("chosen", "rejected")},
            "found": after.cases["success"].mean(),
            "score": np.mean([after.mean[layer, head] for layer, head in heads]),
            **{f"same_{side}": np.nan if engine == OURS or other is None else
               (own[side] == other[side].reindex(own.index))[own.index.isin(other.index)].mean()
               for side in ("chosen", "rejected")}})
    return pd.DataFrame(rows)


def _of_plan(found: Artifact) -> bool:
    config = found.manifest["config"]
    return (found.name.split("/")[1] == MODEL and not config["synthesizer"]
            and (config["strategy"], config["instructions"], config["source"]) == (
                STRATEGY, PAIRS, "world"))
