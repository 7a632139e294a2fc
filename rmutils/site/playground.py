"""The book's playground: the files that let `tiny-llama` run on the reader's own screen.

The page is plain JavaScript (`book/playground/`). What it works on is one more script, made here
from the shipped model, the shipped detection of its heads and the invented world's texts. A page
that is opened as a file may not fetch other files, but it may load scripts; and only the page of
the playground should, so they do not stand in `book/_static`, whose scripts every page loads.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmutils.core.paths import BOOK, CORPORA, SHIPPED_MODELS
from rmutils.core.results import stored

if TYPE_CHECKING:
    from rmutils.corpora.haystacks import Haystack
    from rmutils.models import LanguageModel

FOLDER = "playground"
"""Folder of the scripts, in `book/` and beside the page."""
MODEL = SHIPPED_MODELS / "tiny-llama"
"""The shipped one: a copy that the reader has trained again has no shipped scores."""
NEEDLES = CORPORA["world"] / "plain" / "needles.jsonl"
OFFERED = 10
"""The page offers the first so many needles, each with its own haystack."""
LONGEST = 1024
"""Tokens of the longest prompt."""


def inputs() -> list[Path]:
    """The files that the data are made from."""
    texts = [NEEDLES, *CORPORA["world"].glob("haystack/*.txt"),
             *CORPORA["world"].glob("needles/*.jsonl")]
    files = [*MODEL.iterdir(), *texts, *(file for one in stored("detect") if one.shipped
                                     for file in one.folder.iterdir())]
    return sorted(p for p in files if p.is_file())


def write(pages: Path) -> None:
    """Put the scripts and their data beside the built page.

    Parameters
    ----------
    pages : Path
        Folder of the HTML.

    Raises
    ------
    NotStored
        The detection of the heads did not come with the project.
    """
    folder = pages / FOLDER
    shutil.copytree(BOOK / FOLDER, folder, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("*.html"))  # that is a part of the page itself
    script = f"(globalThis.Playground ??= {{}}).data = {json.dumps(data())};\n"
    (folder / "data.js").write_text(script, encoding="ascii")


def data() -> dict[str, Any]:
    """All that the scripts need to know."""
    import torch

    from rmutils.corpora.haystacks import load_haystacks, load_needles
    from rmutils.models import load_model

    # As the shipped detection was made, whatever this machine has.
    lm = load_model(str(MODEL), device="cpu", dtype=torch.float32)
    needles = load_needles(NEEDLES)[:OFFERED]
    haystacks = load_haystacks(CORPORA["world"] / "haystack")[:OFFERED]
    return {
        "model": lm.name, **_weights(lm), "tokenizer": _tokenizer(lm), "frame": _frame(lm),
        "stop": sorted(lm.stop_ids), "longest": LONGEST, **_scores(lm),
        "cases": [{"haystack": _beginning(lm, haystack), "needle": needle.needle,
                   "question": needle.question, "answer": needle.real_needle}
                  for haystack, needle in zip(haystacks, needles, strict=True)],
    }


def _weights(lm: LanguageModel) -> dict[str, Any]:
    """The sizes; names and lengths of all weights, and their float32 numbers in base64."""
    config = lm.model.config
    weights = dict(lm.model.named_parameters())  # without the head: its weights are tied
    packed = b"".join(w.detach().numpy().astype("<f4").tobytes() for w in weights.values())
    return {
        "config": {
            "layers": config.num_hidden_layers, "heads": config.num_attention_heads,
            "keyHeads": config.num_key_value_heads, "size": config.head_dim,
            "width": config.hidden_size, "hidden": config.intermediate_size,
            "vocabulary": config.vocab_size, "eps": config.rms_norm_eps,
            "theta": config.rope_parameters["rope_theta"],
        },
        "layout": [[name, w.numel()] for name, w in weights.items()],
        "weights": b64encode(packed).decode("ascii"),
    }


def _tokenizer(lm: LanguageModel) -> dict[str, Any]:
    """Tokens as strings of bytes (characters 0 to 255), and merges as pairs of ids."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    made = json.loads(lm.tokenizer.backend_tokenizer.to_str())
    vocabulary, merges = made["model"]["vocab"], made["model"]["merges"]
    added = made["added_tokens"]
    texts = {token["id"]: token["content"] for token in added}
    byte_of = {shown: chr(byte) for byte, shown in bytes_to_unicode().items()}
    return {
        "tokens": [texts.get(i) or "".join(byte_of[c] for c in token)
                   for token, i in sorted(vocabulary.items(), key=lambda item: item[1])],
        "added": {token["content"]: token["id"] for token in added},
        "special": [token["id"] for token in added if token["special"]],
        "merges": [[vocabulary[left], vocabulary[right]] for left, right in merges],
    }


def _frame(lm: LanguageModel) -> list[str]:
    """The prompt of every case: before the context, up to the question, and after it."""
    from rmutils.corpora.haystacks import Haystack, Needle
    from rmutils.corpora.niah import WU_BUFFER, NiahBuilder

    context, question = "\ue000", "\ue001"
    builder = NiahBuilder(lm, [Haystack("", "")], buffered=True)
    case = builder.build(0, Needle(context, question, context), WU_BUFFER, 0)
    before, rest = case.prompt.split(context)
    return [before, *rest.split(question)]


def _scores(lm: LanguageModel) -> dict[str, Any]:
    """The stored retrieval scores of all heads, layer by layer, and the threshold."""
    from rmutils.experiments.teaching_models import DETECTION
    from rmutils.heads.detection import detect_stored
    from rmutils.models.known_models import tau_of

    scores, artifact = detect_stored(lm, DETECTION, compute="never")
    kept = zip(scores.mean.ravel(), *scores.interval().reshape(-1, 2).T, strict=True)
    return {
        "scores": [{"mean": round(mean, 9), "low": low, "high": high} for mean, low, high in kept],
        "tau": tau_of(lm.name), "limit": DETECTION.max_new_tokens,
        "detection": {"result": artifact.name, "command": artifact.manifest["command"],
                      "found": len(scores.runs), "cases": len(scores.cases)},
    }


def _beginning(lm: LanguageModel, haystack: Haystack) -> str:
    """As much of a haystack as the longest prompt can take, and a bit more: its last word must be
    cut into tokens as in the whole text."""
    offsets = lm.tokenizer(haystack.text, return_offsets_mapping=True)["offset_mapping"]
    return haystack.text[: offsets[LONGEST][1] + 20]
