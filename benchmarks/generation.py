"""Tokens per second of the transformers backend, beside vLLM on the same instructions.

    make vllm && .venv/bin/python benchmarks/generation.py --model smollm2-135m

Each way runs in a process of its own. Loading, the start of the engine and a first batch are not
counted. Answers are sampled and end where they end, as those of RetMask do. vLLM as this project
starts it on a CPU does not compile the model; compiled, it needs a C++ compiler.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rmutils import load_model
from rmutils.contrast.backends import Transformers
from rmutils.contrast.instructions import draw
from rmutils.contrast.responses import Backend, Response, ResponseConfig
from rmutils.contrast.vllm import VLLM
from rmutils.models import LanguageModel
from rmutils.paths import ROOT
from rmutils.stats import cluster_bootstrap, percentiles

WAYS = {"transformers": sys.executable, "vllm": ROOT / ".venv-vllm/bin/python",
        "vllm, compiled": ROOT / ".venv-vllm/bin/python"}


def start(way: str, lm: LanguageModel, batch: int, longest: int) -> Backend:
    """A backend that answers `batch` instructions at once, each within `longest` tokens."""
    if way == "transformers":
        return Transformers(lm, batch_tokens=batch * longest)
    return VLLM(lm, max_num_seqs=batch, enforce_eager=way == "vllm")


def measure(way: str, model: str, batch: int, responses: int, config: ResponseConfig,
            repeats: int) -> list[float]:
    """Tokens per second of each repetition."""
    lm, asked = load_model(model), draw("world", responses).instructions
    longest = max(len(lm.render(i.text, thinking=True)) for i in asked) + config.max_new_tokens
    backend = start(way, lm, batch, longest)
    backend.respond(asked[:batch], config, lambda response: None)
    rates = []
    for seed in range(repeats):
        said: list[Response] = []
        started = time.perf_counter()
        backend.respond(asked, config.model_copy(update={"seed": seed}), said.append)
        rates.append(sum(r.tokens for r in said) / (time.perf_counter() - started))
    return rates


def shown(samples: np.ndarray, value: float, digits: int) -> str:
    low, high = percentiles(samples)
    return f"{value:.{digits}f} (95 % interval {low:.{digits}f} to {high:.{digits}f})"


def main(
    model: str = "tiny-llama",
    batch: Annotated[int, typer.Option(help="Responses at once.")] = 32,
    responses: Annotated[int, typer.Option(help="Instructions of the world.")] = 128,
    new_tokens: Annotated[int, typer.Option(help="Longest response.")] = 256,
    repeats: int = 5,
    way: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure all ways, and print their speed and that of transformers in shares of it."""
    if way:
        config = ResponseConfig(max_new_tokens=new_tokens)
        print(json.dumps(measure(way, model, batch, responses, config, repeats)))
        return
    found: dict[str, np.ndarray] = {}
    for name, python in WAYS.items():
        done = subprocess.run(
            [python, Path(__file__), "--model", model, "--batch", str(batch), "--responses",
             str(responses), "--new-tokens", str(new_tokens), "--repeats", str(repeats),
             "--way", name], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"{name:16}did not run")
            continue
        rates = np.array(json.loads(done.stdout.splitlines()[-1]))
        found[name] = cluster_bootstrap(rates, None, seed=len(found))
        line = f"{name:16}{shown(found[name], rates.mean(), 0)} tokens/s"
        if name != "transformers":
            ratio = found["transformers"] / found[name]
            line += f"; transformers / this: {shown(ratio, float(np.median(ratio)), 2)}"
        print(line, flush=True)


if __name__ == "__main__":
    typer.run(main)
