"""Tokens per second of the transformers backend, beside vLLM on the same instructions.

    make vllm && .venv/bin/python -m benchmarks generation

Each way runs in a process of its own. Loading, the start of the engine and a first batch are not
counted. Answers are sampled and end where they end, as those of RetMask do. vLLM as this project
starts it on a CPU does not compile the model; compiled, it needs a C++ compiler.
"""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measuring import PYTHON, lines_of
from benchmarks.records import Results
from rmutils import load_model
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.core.paths import ROOT
from rmutils.models import LanguageModel
from rmutils.preference.instructions import draw
from rmutils.preference.responses import Backend, Response, ResponseConfig, Transformers
from rmutils.preference.vllm import VLLM

VLLM_PYTHON = ROOT / ".venv-vllm/bin/python"
WAYS = {"transformers": PYTHON, "vllm": VLLM_PYTHON, "vllm, compiled": VLLM_PYTHON}


class Settings(Config):
    """Instructions of the world, so many at once."""

    models: tuple[str, ...] = ("tiny-llama", "smollm2-135m")
    batch: int = 32
    responses: int = 32
    new_tokens: int = 64
    rounds: int = 3


QUICK = {"models": ("tiny-llama",), "batch": 4, "responses": 4, "new_tokens": 8, "rounds": 1}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet, by the ways that are installed."""
    results = Results("generation", settings, folder)
    for model, (way, python) in product(settings.models, WAYS.items()):
        if list(results.find(model=model, way=way)):
            continue
        if not python.exists():
            print(f"{way} is not installed: `make vllm` makes .venv-vllm.")
            continue
        for row in lines_of(python, "benchmarks.generation", way, model,
                            settings.model_dump_json()):
            results.add(row)
    return True


def start(way: str, lm: LanguageModel, batch: int, longest: int) -> Backend:
    """A backend that answers `batch` instructions at once, each within `longest` tokens."""
    if way == "transformers":
        return Transformers(lm, batch_tokens=batch * longest)
    return VLLM(lm, max_num_seqs=batch, enforce_eager=way == "vllm")


def main(way: str, model: str, asked: Annotated[str, typer.Argument(help="JSON")]) -> None:
    """Print a row: tokens per second of each round."""
    settings = Settings.model_validate_json(asked)
    lm, instructions = load_model(model), draw("world", settings.responses).instructions
    config = ResponseConfig(max_new_tokens=settings.new_tokens)
    longest = settings.new_tokens + max(
        len(lm.render(i.text, thinking=True)) for i in instructions)
    backend = start(way, lm, settings.batch, longest)
    backend.respond(instructions[: settings.batch], config, lambda response: None)
    rates = []
    for seed in range(settings.rounds):
        said: list[Response] = []
        started = time.perf_counter()
        backend.respond(instructions, config.model_copy(update={"seed": seed}), said.append)
        rates.append(round(sum(r.tokens for r in said) / (time.perf_counter() - started), 1))
    print(json.dumps({"way": way, "model": model, "rates": rates}), flush=True)


if __name__ == "__main__":
    typer.run(main)
