"""The evaluation, against the same questions answered one by one by transformers' `generate`.

Both run in one thread, as evaluations here do, and score the same way; only who answers differs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import torch
import typer

from benchmarks.measuring import PYTHON, lines_of, stay_within_memory, watched
from benchmarks.records import Results
from rmutils import load_model
from rmutils.attention import variants
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config, digest
from rmutils.evaluation.helmet import evaluation as run
from rmutils.evaluation.helmet.prompts import EvaluateConfig
from rmutils.models import LanguageModel
from rmutils.models.products import left_to_pytorch


class Settings(Config):
    """A small evaluation; each round asks other questions."""

    model: str = "tiny-llama"
    lengths: tuple[int, ...] = (512,)
    samples: int = 2
    rounds: int = 3


QUICK = {"samples": 1, "rounds": 1}


@left_to_pytorch()
@torch.inference_mode()
def one_by_one(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], *, stop_ids: Collection[int],
    done: Callable[[int, list[int]], None], max_new_tokens: int,
) -> None:
    """In place of `rmutils.models.engine.generation.generate`."""
    for index, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        written = lm.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
            max_new_tokens=max_new_tokens, eos_token_id=sorted(stop_ids))[0, len(prompt):].tolist()
        done(index, [token for token in written if token not in stop_ids])


WAYS = {"rmutils": variants.generate, "one by one": one_by_one}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet; True if both gave the same answers."""
    results = Results("evaluation", settings, folder)
    for way in WAYS:
        if not list(results.find(way=way)):
            for row in lines_of(PYTHON, "benchmarks.evaluation", way, settings.model_dump_json()):
                results.add(row)
    return len({str(row["said"]) for row in results.rows}) == 1


def main(way: str, asked: Annotated[str, typer.Argument(help="JSON")]) -> None:
    """Print a row: seconds of each round, and of how many answers."""
    settings = Settings.model_validate_json(asked)
    lm, seconds, said, answers = load_model(settings.model), [], [], 0
    stay_within_memory()
    with watched() as found, patch.object(variants, "generate", WAYS[way]):
        for seed in range(settings.rounds):
            config = EvaluateConfig(lengths=settings.lengths, samples=settings.samples, seed=seed)
            started = time.perf_counter()
            table = run.evaluate(lm, config)
            seconds.append(round(time.perf_counter() - started, 3))
            given = table.drop_duplicates(["dataset", "length", "sample"])["response"]
            said.append(digest(given.tolist())[:16])
            answers = len(given)
    print(json.dumps({"way": way, "answers": answers, "seconds": seconds, **found, "said": said}),
          flush=True)


if __name__ == "__main__":
    typer.run(main)
