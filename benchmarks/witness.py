"""llama.cpp's part of `python -m benchmarks llama_cpp`, in a process that has no PyTorch: two
libraries with threads of their own do not go together."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from llama_cpp import GGML_TYPE_F32, Llama  # only `.venv-bench` has it

from benchmarks.measuring import watched


def engine(asked: dict, window: int, every: bool = False) -> Llama:
    """The file as llama.cpp reads it; `every`: logits of all positions."""
    kept = {"type_k": GGML_TYPE_F32, "type_v": GGML_TYPE_F32} if asked["exact"] else {}
    return Llama(asked["file"], n_ctx=window, n_batch=512, n_threads=asked["threads"],
                 n_threads_batch=asked["threads"], logits_all=every, verbose=False, **kept)


def answer(llm: Llama, ids: Sequence[int], asked: dict) -> list[int]:
    """Return the greedy answer to a prompt."""
    found: list[int] = []
    for token in llm.generate(list(ids), temp=0.0, repeat_penalty=1.0):
        if token in asked["stops"] or len(found) == asked["new_tokens"]:
            break
        found.append(int(token))
    return found


def main(folder: Path) -> None:
    """Logits into a file; of the file as it is also answers, seconds and memory, as rows."""
    asked = json.loads((folder / "asked.json").read_text())
    text = asked["text"]
    llm = engine(asked, len(text) + 1, every=True)
    llm.eval(text)
    np.save(folder / "llama.cpp.npy", llm.scores[:len(text)])
    del llm
    if asked["exact"]:
        return
    llm = engine(asked, max(map(len, asked["prompts"] + asked["timed"])) + asked["new_tokens"] + 1)
    print(json.dumps({"what": "answers",
                      "tokens": [answer(llm, ids, asked) for ids in asked["prompts"]]}), flush=True)
    with watched() as spent:
        for ids in asked["timed"]:
            llm.reset()
            llm.eval(ids)
    print(json.dumps({"what": "reading", **spent}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
