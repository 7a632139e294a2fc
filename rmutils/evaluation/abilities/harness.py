"""The paper's own benchmarks, with lm-evaluation-harness as the runner (section 5.1, Table 6).

The paper names neither the tool that ran them nor prompts, shots or metrics: those here are of
version 0.4.13 of https://github.com/EleutherAI/lm-evaluation-harness.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.files import numbered_lines, read_text
from rmutils.core.validation import Count, checked, parse_json
from rmutils.heads.masking import export_masked
from rmutils.models import LanguageModel, load_model
from rmutils.models.loading import ModelRef, checkpoint_of

INSTALL = 'pip install "lm-eval[hf,math]"'


@dataclass(frozen=True)
class Benchmark:
    task: str  # its name there, of a task or a group of tasks
    metric: str  # the number that is read: how answers are marked
    filter: str = "none"  # and how they are found in a response
    questions: int = 0  # how many it has, of the data set
    unsafe: bool = False  # whether the harness executes, without a sandbox, what the model writes


BENCHMARKS: dict[str, Benchmark] = {
    "GPQA": Benchmark("gpqa_diamond_cot_zeroshot", "exact_match", "flexible-extract", 198),
    "MATH-500": Benchmark("minerva_math500", "math_verify", questions=500),
    "HumanEval": Benchmark("humaneval_instruct", "pass@1", "create_test", 164, unsafe=True),
    "MMLU-Pro": Benchmark("mmlu_pro", "exact_match", "custom-extract", 12032),
}
"""Column of Table 6 -> benchmark. Section 5.1 says "GPQA-Diamond", "MATH-500", "HumanEval" and
"MMLU-Pro"; zero-shot reasoning for the first, four examples for the second and five for the last
are the harness's settings. MT-Bench, the fifth, is in `rmutils.evaluation.abilities.mt_bench`."""


class HarnessConfig(Config):
    """How the harness runs."""

    benchmarks: tuple[str, ...] = tuple(BENCHMARKS)
    backend: Literal["hf", "vllm"] = "hf"
    """Appendix A: "we run Llama-3.1 using the default Transformers library and use the vLLM engine
    to speed up inference for Qwen3 and Olmo-3"."""
    max_new_tokens: Count = 2048
    """Longest response; the paper is silent. Two of the tasks leave it to the harness, whose 256
    tokens would cut most chains of reasoning. Models that think need many times as many."""
    thinking: bool | None = None
    """Whether the chat template is told to think; None: nothing is said. Appendix A has Qwen3 and
    Olmo-3 "produce reasoning content"."""
    batch: Count = 8
    """Requests at once; without influence on the result but for its last bits."""
    limit: Count | None = None
    """Only so many questions of each task, for a trial."""


def checkpoint(model: str, folder: Path) -> str:
    """Return what the harness can load: a hub id, or a folder, which is written if need be."""
    if known := checkpoint_of(model):
        return known
    if not (folder / "config.json").exists():
        export_masked(load_model(model), [], folder)
        gc.collect()
        torch.cuda.empty_cache()  # the program that is started wants the memory
    return str(folder)


def chosen(config: HarnessConfig, known: Mapping[str, Benchmark]) -> dict[str, Benchmark]:
    """The benchmarks of a configuration. UserError if it names one that is not known."""
    if unknown := [name for name in config.benchmarks if name not in known]:
        raise UserError(f"there is no benchmark {', '.join(map(repr, unknown))}. Known: "
                        f"{', '.join(known)}.")
    return {name: known[name] for name in config.benchmarks}


def command(model: str, out: Path, config: HarnessConfig = HarnessConfig(), *,
            known: Mapping[str, Benchmark] = BENCHMARKS, include: Path | None = None) -> list[str]:
    """The command line, which can also be given on another machine."""
    benchmarks = chosen(config, known)
    arguments = [f"pretrained={model}"]
    if config.thinking is not None:
        arguments.append(f"enable_thinking={config.thinking}")
    if config.thinking:
        arguments.append("think_end_token=</think>")
    words = ["lm_eval", "--model", config.backend, "--model_args", ",".join(arguments),
             "--tasks", ",".join(b.task for b in benchmarks.values()), "--apply_chat_template",
             "--gen_kwargs", f"max_gen_toks={config.max_new_tokens}",
             "--batch_size", str(config.batch), "--output_path", str(out), "--log_samples"]
    if config.limit:
        words += ["--limit", str(config.limit)]
    if include:
        words += ["--include_path", str(include)]
    if any(b.unsafe for b in benchmarks.values()):
        words.append("--confirm_run_unsafe_code")
    return words


def run_harness(words: Sequence[str]) -> None:
    """Run the command of `command`, on the screen of this program."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    program = shutil.which(words[0], path=places)
    if program is None:
        raise UserError(f"lm-evaluation-harness is not installed here. Install it (`{INSTALL}`), "
                        f"or run this where it is and name its results: "
                        f"`HF_ALLOW_CODE_EVAL=1 {shlex.join(words)}`.")
    # The variable is what the metric of HumanEval asks for besides the option.
    environment = os.environ | {"HF_ALLOW_CODE_EVAL": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([program, *words[1:]], env=environment, stdout=sys.stderr)
    if done.returncode:
        raise UserError(
            f"lm-evaluation-harness failed with status {done.returncode}; its own message is "
            f"above. If data are missing: they come from the hub, and GPQA's terms have to be "
            f"accepted there first (`hf auth login`). If a package is missing: `{INSTALL}`.")


@checked
def lm_eval_model(lm: LanguageModel | str | Path, *, batch: int = 8,
                  thinking: bool | None = None) -> Any:
    """Return a model as lm-evaluation-harness takes it, without writing it to a folder.

    It stays the model that it is: with heads masked (`mask_heads`) or another attention it answers
    accordingly. `lm_eval.simple_evaluate(lm_eval_model(lm), tasks=[...])` runs any task.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, or the name or folder of one.
    batch : int
        Requests at once.
    thinking : bool, optional
        Whether the chat template is told to think. Default: nothing is said.

    Returns
    -------
    lm_eval.models.huggingface.HFLM

    Raises
    ------
    UserError
        The harness is not installed.

    Examples
    --------
    >>> from rmutils import lm_eval_model, load_model, mask_heads
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> with mask_heads(lm, [(3, 7), (3, 11)]):  # doctest: +SKIP
    ...     found = lm_eval.simple_evaluate(lm_eval_model(lm), tasks=["arc_easy"], limit=100)
    """
    try:
        from lm_eval.models.huggingface import HFLM
    except ImportError as error:
        raise UserError(f"lm-evaluation-harness is not installed here. Install it: "
                        f"`{INSTALL}`.") from error
    lm = ModelRef(lm).load()
    output = lm.model.get_output_embeddings()
    weight = output.weight
    model = HFLM(  # it adds a token for padding, so it gets a tokenizer of its own
        pretrained=lm.model, tokenizer=copy.deepcopy(lm.tokenizer), batch_size=batch,
        max_length=lm.window, enable_thinking=thinking,
        think_end_token="</think>" if thinking else None)
    output.weight = weight  # it ties what the configuration says, whatever the model has
    return model


TOLERANCE = 1e-6
"""By how much a mean of the samples may differ from the mean that the harness wrote."""


def find_results(folder: Path) -> Path | None:
    """The newest results below a folder; None if there are none."""
    return max(Path(folder).rglob("results_*.json"), key=lambda path: path.name, default=None)


def read_results(
    folder: Path, known: Mapping[str, Benchmark] = BENCHMARKS
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Scores of single questions, checked against the harness's means; and what it ran."""
    path = find_results(folder)
    if path is None:
        raise UserError(f"{folder} holds no results of lm-evaluation-harness (results_*.json). "
                        f"Make them: `rmutils abilities MODEL --harness {folder}`.")
    try:
        return _read(path, known)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__}): it was cut short, or is "
                        f"not of lm-evaluation-harness. Run the harness again.") from error


def _read(path: Path, known: Mapping[str, Benchmark]) -> tuple[pd.DataFrame, dict[str, str]]:
    results = parse_json(read_text(path))
    done, groups = results["results"], results.get("group_subtasks", {})
    tables, versions = [], {}
    for name, benchmark in known.items():
        for task in groups.get(benchmark.task) or [benchmark.task]:
            if task in done:
                tables.append(_samples(path, results, task, name, benchmark))
                versions[task] = str(results.get("versions", {}).get(task))
    if not tables:
        raise UserError(f"{path} holds none of {', '.join(b.task for b in known.values())}, but "
                        f"{', '.join(done)}.")
    table = pd.concat(tables, ignore_index=True)
    table["sample"] = table.groupby("task").cumcount()
    return table, {
        "model": str(results.get("model_name")), "version": str(results.get("lm_eval_version")),
        "date": path.stem.removeprefix("results_"),
        "versions": ", ".join(f"{task} {version}" for task, version in versions.items())}


def _samples(path: Path, results: dict, task: str, name: str, benchmark: Benchmark) -> pd.DataFrame:
    """The samples of a task, which must be as many, and as good, as the results say."""
    key = f"{benchmark.metric},{benchmark.filter}"
    reported = results["results"][task].get(key)
    if not isinstance(reported, (int, float)):
        raise UserError(f"{path}: {task} has no {key!r}, but {', '.join(results['results'][task])} "
                        f"(lm-evaluation-harness {results.get('lm_eval_version')}). This book "
                        f"reads the metrics of version 0.4.13.")
    file = path.with_name(f"samples_{task}_{path.stem.removeprefix('results_')}.jsonl")
    if not file.exists():
        raise UserError(f"{file} is missing: give the harness --log_samples.")
    try:
        rows = [parse_json(line) for _, line in numbered_lines(file)]
        rows = sorted((row for row in rows if row.get("filter", "none") == benchmark.filter),
                      key=lambda row: row["doc_id"])
        scores = [100 * float(row[benchmark.metric]) for row in rows]
        responses = [_text(row["resps"]) for row in rows]
    except (ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file} cannot be read ({type(error).__name__}: {error}): it was cut "
                        f"short. Run the harness again.") from error
    wanted = results.get("n-samples", {}).get(task, {}).get("effective", len(rows))
    if len(rows) != wanted or not rows:
        raise UserError(f"{file} has {len(rows)} of {wanted} samples: it was cut short. Run the "
                        f"harness again.")
    found = sum(scores) / len(scores) / 100
    if not math.isclose(found, reported, abs_tol=TOLERANCE):
        raise UserError(f"{file}: its samples have a mean of {found:.6f}, but {path.name} says "
                        f"{reported:.6f}. They are not of one run; run the harness again.")
    return pd.DataFrame({"task": name, "kind": task, "sample": range(len(rows)), "score": scores,
                         "response": responses})


def _text(responses: list) -> str:
    """The first response of a question; of a choice, the numbers of its options."""
    first = responses[0]
    if isinstance(first, list) and len(responses) == 1 and isinstance(first[0], str):
        return first[0]
    return first if isinstance(first, str) else json.dumps(responses)
