"""Time and peak memory of a detection against plain generation of the same cases.

    python benchmarks/detection.py --length 4096 --cases 8

Each way runs in a process of its own, so that peaks do not mix. Plain generation is
`model.generate` on the same prompts with the same stop tokens, one by one and eight at a time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from functools import partial
from typing import Annotated

import typer

from rmutils import DetectConfig, load_model
from rmutils.heads.detection import build_cases, detect


def generate(lm, config: DetectConfig, batch: int) -> None:
    """Plain greedy generation, `batch` prompts at a time."""
    prompts = [list(case.input_ids) for case in build_cases(lm, config)]
    lm.tokenizer.padding_side = "left"
    for i in range(0, len(prompts), batch):
        inputs = lm.tokenizer.pad({"input_ids": prompts[i : i + batch]}, return_tensors="pt")
        lm.model.generate(**inputs.to(lm.model.device), do_sample=False,
                          max_new_tokens=config.max_new_tokens)


WAYS = {
    "detect": detect,
    "generate, 1": partial(generate, batch=1),
    "generate, 8": partial(generate, batch=8),
}


def main(
    model: str = "smollm2-135m",
    length: Annotated[int, typer.Option(help="Prompt length in tokens.")] = 2048,
    cases: Annotated[int, typer.Option(help="Cases: one needle at so many depths.")] = 8,
    way: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure all ways and print seconds, peak memory and their ratios to detection."""
    depths = tuple((i + 0.5) / cases for i in range(cases))
    config = DetectConfig(lengths=(length,), depths=depths, needles=1)
    if way:
        lm = load_model(model)
        started = time.perf_counter()
        WAYS[way](lm, config)
        print(json.dumps({"seconds": time.perf_counter() - started,
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
        return
    results = {}
    for name in WAYS:
        command = [sys.executable, __file__, "--model", model, "--length", str(length),
                   "--cases", str(cases), "--way", name]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results[name] = json.loads(output.splitlines()[-1])
        ratios = [f"{results['detect'][k] / results[name][k]:5.2f}" for k in results[name]]
        print(f"{name:12}{results[name]['seconds']:8.1f} s {results[name]['peak_mib']:8.0f} MiB"
              f"   detect / this: time {ratios[0]}, memory {ratios[1]}")


if __name__ == "__main__":
    typer.run(main)
