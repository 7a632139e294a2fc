"""The book's playground: the files that let two models run on the reader's own screen."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zlib
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmutils.core.errors import NotStored
from rmutils.core.files import read_yaml
from rmutils.core.paths import BOOK, CORPORA, SHIPPED_MODELS
from rmutils.core.results import stored

if TYPE_CHECKING:
    from rmutils.heads.score_kinds import DetectConfig
    from rmutils.models import LanguageModel

FOLDER = "playground"  # folder of the scripts, in `book/` and beside the page
REAL = "smollm2-135m"
TEACHING = SHIPPED_MODELS / "tiny-llama"
"""The shipped one: a copy that the reader has trained again has no shipped scores."""
NEEDLES = CORPORA["world"] / "plain" / "needles.jsonl"
OFFERED = 3  # the teaching model's scenes: the first so many needles, each in its own haystack
TOLD = "Corsa Ureld lives in {}."  # two such sentences contradict each other in its last scene
SCENE_TOKENS = 200  # tokens of the teaching model's haystacks, about
LONGEST = 1024  # tokens of the longest prompt
LIMIT = 50  # tokens of the longest answer
MASKED = 10  # heads that are masked when the page opens
TOPS = 3  # places of each attention row that the page knows
NEXT = 5  # likeliest tokens of each step that it knows
PART = 6 << 20  # bytes of a model's file in one script


def inputs() -> list[Path]:
    """The files that the data are made from, but for the real model, whose hash is known."""
    texts = [NEEDLES, *CORPORA["world"].glob("haystack/*.txt"),
             *CORPORA["world"].glob("needles/*.jsonl")]
    files = [*TEACHING.iterdir(), *texts, *(
        file for stage in ("detect", "heads-at-work", "head-cards") for one in stored(stage)
        if one.shipped for file in one.folder.iterdir())]
    return sorted(p for p in files if p.is_file())


def write(pages: Path) -> None:
    """Put the scripts and their data beside the built page."""
    import torch

    from rmutils.models import load_model

    folder = pages / FOLDER
    shutil.copytree(BOOK / FOLDER, folder, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("*.html", "*.wat", "*.yml"))
    models = []
    for name in [*([REAL] if _cached().exists() else []), str(TEACHING)]:
        # As the shipped detection was made, whatever this machine has.
        lm = load_model(name, device="cpu", dtype=torch.float32)
        packed = _cached().read_bytes() if name == REAL else as_gguf(lm)
        models.append({**about(lm), "bytes": len(packed),
                       "parts": _write_parts(folder, lm.name, packed)})
    script = f"(globalThis.Playground ??= {{}}).models = {json.dumps(models)};\n"
    (folder / "models.js").write_text(script, encoding="ascii")


def _cached() -> Path:
    """The file of `smollm2-135m`, if it has been fetched."""
    from rmutils.models.fetch import cached_path
    from rmutils.models.known_models import REGISTRY

    wheel = REGISTRY[REAL].wheel
    assert wheel is not None
    return cached_path(REAL, wheel)


def _write_parts(folder: Path, name: str, packed: bytes) -> list[dict[str, Any]]:
    """Write a file as scripts that each hand over some of its bytes in base64: see `loader.js`."""
    parts = []
    for at in range(0, len(packed), PART):
        piece = packed[at: at + PART]
        file = f"{name}-{at // PART:02d}.js"
        (folder / file).write_text(
            f'Playground.part("{file}", () => {{/*{b64encode(piece).decode("ascii")}*/}});\n',
            encoding="ascii")
        parts.append({"file": file, "at": at, "checksum": zlib.crc32(piece)})
    return parts


def about(lm: LanguageModel) -> dict[str, Any]:
    """All that the page knows about a model before it is loaded."""
    config = lm.model.config
    pre_tokenizer = json.loads(lm.tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]
    return {
        "name": lm.name, "parameters": lm.model.num_parameters(),
        "precision": "4 and 8 bits a weight (Q4_1, Q8_0)" if lm.name == REAL else "float32",
        "layers": config.num_hidden_layers, "heads": config.num_attention_heads,
        "keyHeads": config.num_key_value_heads,
        "digits": "Digits" in json.dumps(pre_tokenizer), "frame": _frame(lm),
        "stop": sorted(lm.stop_ids), "longest": LONGEST, "limit": LIMIT, **_scores(lm),
        "scenes": scenes(lm), "first": first_answers(lm), "words": _words(lm),
        "cards": cards(lm.name),
    }


def cards(name: str) -> dict[str, Any] | None:
    """What heads do on ordinary text, as their cards show it; None if that is not stored."""
    from rmutils.book.chapters.heads_at_work.plots import card_view

    with suppress(NotStored):
        return card_view(name)
    return None


def scenes(lm: LanguageModel) -> list[dict[str, Any]]:
    """What can be asked with one click: haystack, needle, question, answer and depth."""
    from rmutils.corpora.niah import SENTENCE_END, load_haystacks, load_needles

    if lm.name == REAL:
        return read_yaml(BOOK / FOLDER / "scenes.yml")
    made = []
    for haystack, needle in zip(load_haystacks(CORPORA["world"] / "haystack")[:OFFERED],
                                load_needles(NEEDLES)[:OFFERED], strict=True):
        offsets = lm.tokenizer(haystack.text, return_offsets_mapping=True)["offset_mapping"]
        ends = [m.end() for m in SENTENCE_END.finditer(haystack.text, 0, offsets[SCENE_TOKENS][1])]
        made.append({"title": needle.question, "haystack": haystack.text[: ends[-1]],
                     "needle": needle.needle, "question": needle.question,
                     "answer": needle.real_needle, "depth": 0.5})
    contradicted = f"{TOLD.format('Elmhaven')} {made[0]['haystack']}"
    return [*made, {"title": "Two answers", "haystack": contradicted, "depth": 0.5,
                    "needle": TOLD.format("Marshbridge"), "answer": "Marshbridge",
                    "question": "Where does Corsa Ureld live?"}]


def first_answers(lm: LanguageModel) -> dict[str, Any]:
    """The answers to the first scene, computed here, as the browser's engine tells them."""
    import torch

    from rmutils.book.chapters.preliminaries.experiment import answer_case, attention_rows
    from rmutils.corpora.niah import WU_BUFFER, Haystack, Needle, NiahBuilder
    from rmutils.heads import mask_heads
    from rmutils.heads.detection import detect_stored

    scene = scenes(lm)[0]
    needle = Needle(scene["needle"], scene["question"], scene["answer"])
    length = WU_BUFFER + sum(len(lm.tokenizer(text)["input_ids"])
                             for text in (scene["haystack"], f" {needle.needle}"))
    builder = NiahBuilder(lm, [Haystack("", scene["haystack"])], buffered=True)
    case = builder.build(0, needle, length, scene["depth"])
    scores, _ = detect_stored(lm, _grid(lm.name), compute="never")
    layers, heads = lm.shape
    everywhere = [(layer, head) for layer in range(layers) for head in range(heads)]
    prompt = {"ids": case.input_ids, "needle": case.needle_span, "inserted": case.inserted_span,
              "texts": [lm.tokenizer.decode([token]) for token in case.input_ids]}
    answers = {}
    for name, masked in {"whole": [], "changed": scores.select(top_k=MASKED)}.items():
        with mask_heads(lm, masked):
            answer = answer_case(lm, case, max_new_tokens=LIMIT)
            rows = attention_rows(lm, case, answer, everywhere)
            with torch.inference_mode():
                logits = lm.model(torch.tensor([[*case.input_ids, *answer.tokens]])).logits[0]
            likely = logits[len(case.input_ids) - 1 : -1].softmax(-1).topk(NEXT)
        places = rows.argsort(-1)[..., ::-1][..., :TOPS].swapaxes(0, 1)
        weights = np.take_along_axis(rows.swapaxes(0, 1), places, -1)
        shares = rows[..., slice(*case.needle_span)].sum(-1).T
        answers[name] = {"prompt": prompt, "tokens": [
            {"id": int(token), "text": lm.tokenizer.decode([token]),
             "next": [[other, lm.tokenizer.decode([other]), round(share, 4)]
                      for other, share in zip(likely.indices[step].tolist(),
                                              likely.values[step].tolist(), strict=True)],
             "places": places[step].ravel().tolist(),
             "weights": weights[step].ravel().round(2).tolist(),
             "shares": shares[step].round(2).tolist()}
            for step, token in enumerate(answer.tokens)]}
    return answers


def _words(lm: LanguageModel) -> list[str] | None:
    """All words of the invented world, for a model that knows no others."""
    if lm.name == REAL:
        return None
    texts = [file.read_text(encoding="utf-8") for file in inputs()
             if file.is_relative_to(CORPORA["world"])]
    return sorted({word for text in texts for word in re.findall(r"[a-z0-9]+", text.lower())})


def as_gguf(lm: LanguageModel) -> bytes:
    """A Llama with tied embeddings as a GGUF file in float32."""
    import gguf

    config = lm.model.config
    made = json.loads(lm.tokenizer.backend_tokenizer.to_str())
    vocabulary, added = made["model"]["vocab"], {t["id"]: t for t in made["added_tokens"]}
    tokens = {i: text for text, i in vocabulary.items()}
    tokens.update({i: token["content"] for i, token in added.items()})
    kinds = {i: gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
             for i, token in added.items()}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_block_count(config.num_hidden_layers)
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_attention_heads)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_vocab_size(config.vocab_size)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([tokens[i] for i in range(len(tokens))])
        writer.add_token_types([kinds.get(i, gguf.TokenType.NORMAL) for i in range(len(tokens))])
        writer.add_token_merges([" ".join(pair) for pair in made["model"]["merges"]])
        for name, weight in lm.model.named_parameters():
            numbers = weight.detach().numpy()
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
            if count := heads.get(name.split(".")[-2]):
                halves = numbers.reshape(count, 2, config.head_dim // 2, -1)
                numbers = halves.swapaxes(1, 2).reshape(numbers.shape).copy()
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), numbers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def _frame(lm: LanguageModel) -> list[str]:
    """The prompt of every case: before the context, up to the question, and after it."""
    from rmutils.corpora.niah import WU_BUFFER, Haystack, Needle, NiahBuilder

    context, question = "\ue000", "\ue001"
    builder = NiahBuilder(lm, [Haystack("", "")], buffered=True)
    case = builder.build(0, Needle(context, question, context), WU_BUFFER, 0)
    before, rest = case.prompt.split(context)
    return [before, *rest.split(question)]


def _grid(name: str) -> DetectConfig:
    """The grid of a model's shipped scores: chapter 1's longest, and that of all tiny models."""
    from rmutils.evaluation.teaching_card import DETECTION
    from rmutils.heads.detection import DetectConfig, even_depths

    real = DetectConfig(lengths=(256, 512, 768, 1024, 1536, 2048, 3072, 4096),
                        depths=even_depths(10))
    return real if name == REAL else DETECTION


def _scores(lm: LanguageModel) -> dict[str, Any]:
    """The stored retrieval scores of all heads, layer by layer."""
    from rmutils.heads.detection import detect_stored

    scores, artifact = detect_stored(lm, _grid(lm.name), compute="never")
    kept = zip(scores.mean.ravel(), *scores.interval().reshape(-1, 2).T, strict=True)
    return {
        "scores": [{"mean": round(mean, 9), "low": low, "high": high} for mean, low, high in kept],
        "detection": {"result": artifact.name, "command": artifact.manifest["command"],
                      "found": len(scores.runs), "cases": len(scores.cases)},
    }
