"""Result files as HELMET's `eval.py`, `eval_alce.py` and `eval_gpt4_*.py` write them."""

import json
from pathlib import Path

import numpy as np

from rmutils.evaluation.helmet.official import LENGTHS, OFFICIAL

MODEL = "org/Some-Model"
SAMPLES = 6


def written(folder: Path, *, length: int = 8192, thinking: bool = False) -> Path:
    """A folder with results of all data sets, with GPT-4o's grades."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for official in OFFICIAL.values():
        run = official.name.format(size=official.sizes[LENGTHS.index(length)])
        path = folder / f"{run}_v1_test_in{length}_size100_chatTrue_42.json"
        items = [{"question": f"q {i // 2}", "output": f"said {i}", "input_len": 8000 + i,
                  "depth": i % 2 / 2} for i in range(SAMPLES)]
        metrics = {"input_len": [8000 + i for i in range(SAMPLES)]}
        metric = official.metrics[0]
        if official.category != "Cite" and not metric.startswith("gpt"):
            metrics[metric] = [bool(v) if metric == "exact_match" else v / 2
                               for v in rng.integers(0, 2, SAMPLES).tolist()]
            for item, v in zip(items, metrics[metric], strict=True):
                item[metric] = v
        # eval.py makes room for thoughts once the file has its name, and writes that down.
        result = {"args": {"datasets": run, "input_max_length": length + 32768 * thinking,
                           "thinking": thinking, "seed": 42, "model_name_or_path": MODEL},
                  "data": items, "metrics": metrics,
                  "averaged_metrics": {k: float(np.mean(v)) for k, v in metrics.items()},
                  "throughput": 1.0}
        path.write_text(json.dumps(result, indent=4))
        if official.category == "Cite":
            path.with_name(f"{path.name}.score").write_text(json.dumps(
                {m: 10.0 * (i + 1) for i, m in enumerate(official.metrics)} | {"length": 50}))
        if metric.startswith("gpt"):
            for item in items[1:]:  # the first one has none: the judge failed
                item["gpt-4-scores"] = {"fluency": 1, "correctness": 2} \
                    if metric == "gpt-4-score" else {"f1": 0.25, "fluency": 1}
            items[0]["gpt-4-scores"] = None
            path.with_name(path.name.replace(".json", "-gpt4eval_o.json")).write_text(
                json.dumps(result))
    return folder
