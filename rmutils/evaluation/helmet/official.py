"""The real HELMET: data sets, lengths, configurations and commands for the official repository."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rmutils.core.errors import UserError
from rmutils.evaluation.helmet.suite import CATEGORIES

LENGTHS = (8192, 16384, 32768, 65536, 131072)
"""Tokens of prompt and answer. Section 4.1: "five context lengths ranging from 8K to 128K"."""


@dataclass(frozen=True)
class Settings:
    """Settings that the data sets of a category share; the file is named as in HELMET."""

    file: str
    chat: bool
    samples: int
    shots: int
    newline_ends: bool


SETTINGS = {
    "Recall": Settings("recall", False, 100, 2, False),
    "RAG": Settings("rag", False, 100, 2, True),
    "Re-rank": Settings("rerank", False, 100, 2, True),
    "ICL": Settings("icl", False, 500, 0, True),
    "Cite": Settings("cite", True, 100, 2, False),
    "LongQA": Settings("longqa", True, 100, 2, False),
    "Summ": Settings("summ", True, 100, 2, False),
}


@dataclass(frozen=True)
class Official:
    """A data set of HELMET; `{size}` in `name`, `test` and `demo` (files) is one of `sizes`."""

    category: str
    metrics: tuple[str, ...]  # what counts, as HELMET's result files name it
    answer: int  # longest answer in tokens
    sizes: tuple[int | str, ...]  # for each of `LENGTHS`
    name: str
    test: str = ""
    demo: str = ""


def _ruler(name: str, folder: str, answer: int) -> Official:
    return Official("Recall", ("ruler_recall",), answer, LENGTHS, name,
                    f"data/ruler/{folder}/validation_{{size}}.jsonl")


def _kilt(name: str, test: str, demo: str, depths: int) -> Official:
    return Official("RAG", ("substring_exact_match",), 20, (50, 105, 220, 440, 1000), name,
                    f"data/kilt/{test}_1000_k{{size}}_dep{depths}.jsonl",
                    f"data/kilt/{demo}_1000_k3_dep{depths}.jsonl")


def _icl(name: str, *shots: int) -> Official:
    return Official("ICL", ("exact_match",), 20, shots, f"icl_{name}_{{size}}shot_balance")


def _alce(name: str, first: str) -> Official:
    return Official("Cite", (first, "citation_rec", "citation_prec"), 300,
                    (30, 75, 165, 345, 700), f"alce_{name}_{{size}}",
                    f"data/alce/{name}_eval_gtr_top2000.json", f"prompts/{name}_revised.json")


def _book(category: str, name: str, metric: str, answer: int, instruction: int = 200) -> Official:
    return Official(category, (metric,), answer,
                    tuple(length - instruction - answer for length in LENGTHS), f"{name}_{{size}}")


OFFICIAL: dict[str, Official] = {
    "ruler_niah_mk_2": _ruler("ruler_niah_mk_2", "niah_multikey_2", 50),
    "ruler_niah_mk_3": _ruler("ruler_niah_mk_3", "niah_multikey_3", 100),
    "ruler_niah_mv": _ruler("ruler_niah_mv", "niah_multivalue", 50),
    "json_kv": Official("Recall", ("substring_exact_match",), 100, (105, 220, 440, 900, 1800),
                        "json_kv", "data/json_kv/test_k{size}_dep6.jsonl"),
    "nq": _kilt("kilt_nq", "nq-dev-multikilt", "nq-train-multikilt", 6),
    "triviaqa": _kilt("kilt_triviaqa", "triviaqa-dev-multikilt", "triviaqa-train-multikilt", 6),
    "hotpotqa": _kilt("kilt_hotpotqa", "hotpotqa-dev-multikilt", "hotpotqa-train-multikilt", 3),
    "popqa": _kilt("kilt_popqa_3", "popqa_test", "popqa_test", 6),
    "msmarco_rerank_psg": Official(
        "Re-rank", ("NDCG@10",), 200, (50, 130, 285, 600, 1000), "msmarco_rerank_psg",
        "data/msmarco/test_reranking_data_k{size}_dep3.jsonl",
        "data/msmarco/test_reranking_data_k10_dep3.jsonl"),
    "trec_coarse": _icl("trec_coarse", 400, 800, 1600, 3300, 6600),
    "trec_fine": _icl("trec_fine", 400, 800, 1600, 3200, 6400),
    "banking77": _icl("banking77", 360, 720, 1450, 2900, 5900),
    "clinic150": _icl("clinic150", 440, 880, 1750, 3525, 7050),
    "nlu": _icl("nlu", 510, 1020, 2040, 4080, 8296),
    "alce_asqa": _alce("asqa", "str_em"),
    "alce_qampari": _alce("qampari", "qampari_rec_top5"),
    "narrativeqa": _book("LongQA", "narrativeqa", "gpt-4-score", 100),
    "infbench_qa": _book("LongQA", "infbench_qa_eng", "rougeL_f1", 10),
    "infbench_choice": _book("LongQA", "infbench_choice_eng", "exact_match", 10),
    "infbench_sum": _book("Summ", "infbench_sum_eng", "gpt-4-f1", 1200),
    "multi_lexsum": _book("Summ", "multi_lexsum", "gpt-4-f1", 400, instruction=300),
}
"""Data sets by what their names hold, which is how HELMET tells them apart."""
HELMET = {category: tuple(name for name, d in OFFICIAL.items() if d.category == category)
          for category in CATEGORIES}
"""Category -> data sets, for `rmutils.evaluation.helmet.averages.averages`."""


def configuration(category: str, lengths: Sequence[int]) -> dict:
    """The content of a category's YAML file: one run for each data set and length."""
    runs = [(data, length, str(data.sizes[LENGTHS.index(length)]))
            for data in OFFICIAL.values() if data.category == category for length in lengths]
    columns = {
        "input_max_length": [length for _, length, _ in runs],
        "datasets": [data.name.format(size=size) for data, _, size in runs],
        "generation_max_length": [data.answer for data, _, _ in runs],
        "test_files": [data.test.format(size=size) for data, _, size in runs],
        "demo_files": [data.demo for data, _, _ in runs],
    }
    settings = SETTINGS[category]
    return {**{name: ",".join(map(str, values)) for name, values in columns.items()},
            "use_chat_template": settings.chat, "max_test_samples": settings.samples,
            "shots": settings.shots, "stop_new_line": settings.newline_ends}


REPOSITORY = "https://github.com/princeton-nlp/HELMET"
TAG, SEED = "v1", 42  # as in HELMET's `scripts/run_eval_slurm.sh`
JUDGED = {"LongQA": "longqa", "Summ": "summ"}
"""Categories that GPT-4o grades, and how its script is called."""
SCRIPT = """\
#!/bin/bash
# Run this in a clone of {repository}, after `bash scripts/download_data.sh`.
# GPT-4o grades LongQA and Summ: OPENAI_API_KEY has to be set. In some versions of HELMET these two
# scripts call their option --model_name_or_path.
# Afterwards: rmutils collect {output}
set -e
{commands}
"""


def write(model: str, folder: Path, *, lengths: Sequence[int] = LENGTHS,
          categories: Sequence[str] = CATEGORIES, chat: bool | None = None, thinking: bool = False,
          vllm: bool = False, name: str | None = None) -> Path:
    """Write a configuration for each category, and a script that runs them all."""
    if wrong := [length for length in lengths if length not in LENGTHS]:
        raise UserError(f"HELMET has no data of {', '.join(map(str, wrong))} tokens. It has "
                        f"{', '.join(map(str, LENGTHS))}.")
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    name = name or Path(model).name
    output = f"output/{name}"  # where HELMET's scripts for GPT-4o look
    weights = str(Path(model).absolute()) if Path(model).exists() else model
    options = ["--model_name_or_path", weights, "--output_dir", output, "--tag", TAG, "--seed",
               str(SEED), *(["--use_chat_template", str(chat)] if chat is not None else []),
               *(["--thinking"] if thinking else []), *(["--use_vllm"] if vllm else [])]
    lines = []
    for category in categories:
        path = folder / f"{SETTINGS[category].file}.yaml"
        path.write_text(yaml.safe_dump(configuration(category, lengths), sort_keys=False,
                                       width=10_000))
        lines.append(shlex.join(["python", "eval.py", "--config", str(path), *options]))
    lines += [shlex.join(["python", f"scripts/eval_gpt4_{judged}.py", "--model_to_check", name,
                          "--tag", TAG])
              for category, judged in JUDGED.items() if category in categories]
    script = folder / "run.sh"
    script.write_text(SCRIPT.format(repository=REPOSITORY, commands="\n".join(lines),
                                    output=output))
    os.chmod(script, 0o755)
    return script
