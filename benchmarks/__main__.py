"""`python -m benchmarks NAME` measures one thing against other ways to the same end."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from rmutils.book.chapters.speed import FOLDER

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="""Measure what things cost, each against its alternatives.

Example: `python -m benchmarks detection`. Results go to data/benchmarks/, from where the book's
chapter on speed draws them; what is there already is not measured again. The machine should have
nothing else to do. With --quick, small sizes only show that everything works.

What notebooks take is measured by `python benchmarks/notebooks.py`, for `rmutils estimate`.""")
NAMES = {
    "detection": "Detection by length: time and memory, against five other ways (15 minutes).",
    "grid": "The paper's grid of 600 cases, in three shares of 15 to 25 minutes each.",
    "sample": "A sample of the grid in processor seconds, on a machine that is busy (3 minutes).",
    "drafts": "Answers with drafts against answers step by step (2 minutes).",
    "growth": "Cost of a detection by number of cases and of heads (4 minutes).",
    "generation": "Tokens per second of transformers and, after `make vllm`, of vLLM (2 minutes).",
    "training": "Preference training, against a plain script of TRL (3 minutes).",
    "evaluation": "Evaluation, against prompts that are answered one by one (2 minutes).",
    "playground": "The real model in a browser: loading, first token, speed, memory (2 minutes).",
    "imports": "What importing the package and asking the command for help take.",
    "book": "The book built cold, warm, and with one notebook or one module changed (20 minutes).",
    "mutation": "Small changes of the modules that decide numbers, and the tests (an hour; needs "
                "mutmut).",
    "llama_cpp": "Logits, answers and speed against llama.cpp, which reads the same files (15 "
                 "minutes).",
    "precision": "Detection in bfloat16 against float32: memory, time, heads (8 minutes).",
    "gpu": "The grid by a Llama of eight billion random weights, on a GPU.",
}
Quick = Annotated[bool, typer.Option(help="Small sizes; results are thrown away.")]


def run(name: str, quick: bool) -> None:
    """Exit status 1: ways that must agree do not."""
    module = importlib.import_module(f"benchmarks.{name}")
    settings = module.Settings(**module.QUICK if quick else {})
    with tempfile.TemporaryDirectory() as scratch:
        if not module.measure(settings, Path(scratch) if quick else FOLDER):
            raise typer.Exit(1)


def _command(name: str):
    def command(quick: Quick = False) -> None:
        run(name, quick)

    return command


for _name, _help in NAMES.items():
    app.command(_name, help=_help)(_command(_name))


if __name__ == "__main__":
    app()
