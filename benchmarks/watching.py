"""Detections by one way, in a process of their own: `python -m benchmarks.watching WAY ...`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.metadata import version
from typing import Annotated

import torch
import typer

from benchmarks import ways
from benchmarks.measuring import OTHERS, PYTHON, lines_of, stay_within_memory, watched
from rmutils import DetectConfig, load_model
from rmutils.core.config import Config, digest
from rmutils.corpora.niah import NiahCase
from rmutils.heads.detection import build_cases
from rmutils.models import LanguageModel
from rmutils.models.products import left_to_pytorch

WAYS = {"rmutils": ways.ours, "plain generation": ways.generate, "two-phase": ways.two_phase,
        "output_attentions": ways.all_attentions}
LIBRARIES = {"TransformerLens": "transformer_lens", "nnsight": "nnsight"}
"""Ways of `benchmarks.libraries`."""


class Asked(Config):
    """Cases of one needle, and how they are answered."""

    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    needle: int = 0
    diagonal: bool = False
    """Only one case of each length, at another depth each."""
    new_tokens: int = 50
    stops: bool = True
    """Return whether stop tokens end an answer."""
    joint: bool = False
    """Cases of all lengths as one measurement, not those of each length."""
    rounds: int = 1
    """So often all cases again, for ways that take them together."""


def rows(way: str, folder: str, asked: Asked) -> Iterator[dict]:
    """Measure in a new process: a row for each length, or one for all."""
    yield from lines_of(OTHERS if way in LIBRARIES else PYTHON, __name__, way, folder,
                        asked.model_dump_json())


def main(way: str, folder: str, asked: Annotated[str, typer.Argument(help="JSON")]) -> None:
    """Print a row per measurement."""
    asked, lm = Asked.model_validate_json(asked), load_model(folder)
    known = {"version": version(LIBRARIES[way])} if way in LIBRARIES else {}
    warm_up(lm)
    stay_within_memory()
    for group in groups(lm, asked):
        print(json.dumps({"way": way, **known, **measure(lm, way, group, asked)}), flush=True)


def groups(lm: LanguageModel, asked: Asked) -> list[list[NiahCase]]:
    """The cases, in groups that are measured together."""
    grid = DetectConfig(lengths=asked.lengths, depths=asked.depths, needles=asked.needle + 1,
                        max_new_tokens=asked.new_tokens)
    cases = [case for case in build_cases(lm, grid) if case.needle_index == asked.needle]
    if asked.diagonal:
        cases = [case for case in cases if asked.depths.index(case.depth) ==
                 asked.lengths.index(case.length) % len(asked.depths)]
    return [cases] if asked.joint else [
        [case for case in cases if case.length == length] for length in asked.lengths]


def measure(lm: LanguageModel, way: str, cases: list[NiahCase], asked: Asked) -> dict:
    """A row. Samples are cases, or rounds where cases are answered together."""
    answer = WAYS.get(way) or library(way)
    stop_ids = lm.stop_ids if asked.stops else set()
    together = way == "rmutils"
    samples: list[list[ways.Run]] = []
    try:
        with watched() as found, nullcontext() if together else left_to_pytorch():
            for _ in range(asked.rounds if together else 1):
                samples.append(list(answer(lm, cases, asked.new_tokens, stop_ids)))
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return {**names_of(cases), "failed": "out of memory"}
    first = samples[0]
    means = samples if together else [[run] for run in first]
    times = {name: [round(sum(getattr(run, name) for run in runs) / len(runs), 4)
                    for runs in means] for name in ("prefill", "decode")}
    copied = None if first[0].copied is None else dict(sum(
        (Counter(run.copied) for run in first), Counter()))
    return {**names_of(cases), **times, "steps": [run.steps for run in first], **found,
            "arithmetic": [arithmetic(lm, len(case.input_ids)) for case in cases],
            "said": [digest(run.said)[:16] for run in first], "copied": copied,
            **({"passes": [round(sum(parts)) for parts in zip(*(run.passes for run in first),
                                                              strict=True)]} if together else {})}


def names_of(cases: list[NiahCase]) -> dict:
    return {"length": cases[-1].length, "cases": [case.id for case in cases]}


def library(way: str):
    """A way of `benchmarks.libraries`; only `.venv-bench` has what they import."""
    from benchmarks import libraries

    return getattr(libraries, LIBRARIES[way])


@torch.inference_mode()
def warm_up(lm: LanguageModel) -> None:
    """The first pass of a process does things that no other one does."""
    lm.model(torch.tensor([[0] * 8]))


def arithmetic(lm: LanguageModel, tokens: int) -> int:
    """Floating-point operations of a prefill: matrix products, and attention to earlier tokens."""
    layers, heads = lm.shape
    head = lm.model.lm_head
    size = getattr(lm.model.config, "head_dim", None) or lm.model.config.hidden_size // heads
    weights = sum(module.weight.numel() for module in lm.model.modules()
                  if isinstance(module, torch.nn.Linear) and module is not head)
    return 2 * weights * tokens + 2 * layers * heads * size * tokens**2 + 2 * head.weight.numel()


if __name__ == "__main__":
    typer.run(main)
