"""What detecting heads in bfloat16 saves on a processor, and whether it finds the same ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.llama_cpp import MODELS, THREADS
from benchmarks.measuring import PYTHON, lines_of, watched
from benchmarks.records import Results
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.heads.detection import DetectConfig, detect
from rmutils.models import load_model

DTYPES = "float32", "bfloat16"


class Settings(Config):
    """The cases of a detection."""

    models: tuple[str, ...] = MODELS[-2:]
    needles: int = 4
    length: int = 1024


QUICK = {"models": ("smollm2-135m",), "needles": 1, "length": 256}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet, each detection in a process of its own."""
    results = Results("precision", settings, folder)
    for model in settings.models:
        for dtype in DTYPES:
            if not list(results.find(model=model, dtype=dtype)):
                for row in lines_of(PYTHON, __name__, model, dtype, settings.model_dump_json()):
                    results.add(row)
    return True


def detection(model: str, dtype: str, settings: Settings) -> dict:
    """Return seconds, memory with the loaded model, and the score of each head."""
    torch.set_num_threads(THREADS)
    lm = load_model(model, device="cpu", dtype=dtype)
    with watched() as spent:
        scores = detect(lm, DetectConfig(needles=settings.needles, lengths=(settings.length,),
                                         depths=(0.5,)))
    return {"model": model, "dtype": dtype, **spent, "scores": np.round(scores.mean, 4).tolist()}


if __name__ == "__main__":
    print(json.dumps(detection(*sys.argv[1:3], Settings.model_validate_json(sys.argv[3]))))
