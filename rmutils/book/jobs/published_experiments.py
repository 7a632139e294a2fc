"""The paper's training runs and evaluations by table, and the checkpoints it published."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from rmutils.core.config import Config, command_line
from rmutils.core.errors import UserError
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, Stage, write_tables
from rmutils.evaluation.abilities import harness
from rmutils.evaluation.abilities.harness import find_results, read_results
from rmutils.evaluation.helmet import official
from rmutils.evaluation.helmet.official import LENGTHS
from rmutils.evaluation.helmet.official import OFFICIAL as DATASETS
from rmutils.evaluation.helmet.official_results import collect
from rmutils.evaluation.helmet.suite import CATEGORIES
from rmutils.models import REGISTRY, identify
from rmutils.paper.tables import load_tables

LLAMA, QWEN, INSTRUCT, THINK = (
    "llama-3.1-8b-instruct", "qwen3-8b", "olmo-3-7b-instruct", "olmo-3-7b-think")
PRINTED = {LLAMA: "Llama-3.1-8B-Instruct", QWEN: "Qwen3-8B", INSTRUCT: "Olmo-3-7B-Instruct",
           THINK: "Olmo-3-7B-Think"}
"""The paper's models (section 4.1): name here -> as printed."""
REASONING = (QWEN, THINK)  # appendix A: "reasoning models (Qwen3-8B and Olmo-3-7B-Think)"
_LLAMA_3B, _QWEN_06B = "meta-llama/Llama-3.2-3B-Instruct", "Qwen/Qwen3-0.6B"
SMALLER = {LLAMA: _LLAMA_3B, INSTRUCT: _LLAMA_3B, QWEN: _QWEN_06B, THINK: _QWEN_06B}
"""Section 4.1 has "Llama-3.2-3B-Instruct" for Llama and Olmo-3-7B-Instruct, and "Qwen3-0.7B for
experiments on Qwen3-8B and Olmo-3-7B-Think". There is no Qwen3 of that size; the nearest has 0.6
billion weights. Both names are as on the hub."""
CHECKPOINTS = {
    LLAMA: "maym15/Llama-3.1-8B-Instruct-RetMask", QWEN: "maym15/Qwen3-8B-RetMask",
    INSTRUCT: "maym15/Olmo-3-7B-Instruct-RetMask", THINK: "maym15/Olmo-3-7B-Think-RetMask"}
"""Trained by the authors with RetMask; the addresses stand in the README of their repository
(`YoumiMa/RetMask` on GitHub, which the paper's first footnote names)."""
TAU = {model: REGISTRY[model].tau for model in PRINTED}
"""Section 4.1; the places are in `rmutils.models.known_models`."""
DATA = {"lmsys": "LMSYS-Chat-1M", "wildchat": "WildChat", "guru": "Guru-RL-92K"}
"""Source of instructions -> data set in Table 12."""
ALL = (8192, 16384, 32768, 65536, 131072)
LONGEST = {LLAMA: 131072, QWEN: 131072, INSTRUCT: 65536, THINK: 65536}
"""Section 4.4: "As Olmo-3's maximum content length is 64K, we evaluate on input lengths up to 64K".
"""
BASELINES = ("smaller-model", "win-lose-pair", "non-retrieval-mask", "random-mask")


@dataclass(frozen=True)
class Experiment:
    """Training runs of one model, and at which lengths they are evaluated."""

    place: str  # where the paper has the results
    model: str
    strategies: tuple[str, ...]
    source: str = "lmsys"  # as for `rmutils.preference.draw`
    lengths: tuple[int, ...] = ALL  # of HELMET; none beyond the model's longest
    changes: dict = field(default_factory=dict)  # of the run, besides what all runs have


EXPERIMENTS = (
    Experiment("Table 1", LLAMA, (*BASELINES, "retmask")),
    Experiment("Table 1", QWEN, (*BASELINES, "retmask")),
    Experiment("Table 3", LLAMA, ("longreward", "retmask"), changes={"instructions": 10_000}),
    Experiment("Table 4", INSTRUCT, ("smaller-model", "non-retrieval-mask", "retmask")),
    Experiment("Table 4", THINK, ("smaller-model", "non-retrieval-mask", "retmask")),
    Experiment("Figure 3", QWEN, ("rc-removed", "rc-un-generated"), lengths=ALL[-1:]),
    Experiment("Table 5", LLAMA, (*BASELINES, "retmask"), "wildchat", ALL[-1:]),
    Experiment("Table 7", LLAMA, ("retmask",), lengths=ALL[-1:], changes={"tau": 0.05}),
    Experiment("Table 7", QWEN, ("retmask",), lengths=ALL[-1:], changes={"tau": 0.1}),
    Experiment("Table 7", INSTRUCT, ("retmask",), lengths=ALL[3:4], changes={"tau": 0.1}),
    Experiment("Table 7", THINK, ("retmask",), lengths=ALL[3:4], changes={"tau": 0.1}),
    Experiment("Table 9", LLAMA, ("sft",)),
    Experiment("Table 10", QWEN, ("retmask",), changes={"synthesizer": LLAMA}),
    Experiment("Table 11", QWEN, ("non-retrieval-mask", "random-mask", "retmask"), "guru",
               ALL[-1:], {"responses.thinking": False, "recipe.thinking": False}),
)
"""Table 3's 10,000 are those of "LongReward: 10K samples", to which RetMask* is "matched" (section
4.3). Table 7 tries the threshold that section 4.1 does not choose. Table 11: "we conduct
experiments with the reasoning mode turned off" (appendix F)."""


def training_data(model: str, source: str) -> dict[str, float]:
    """Table 12: samples and average lengths (tokens) of what a model is trained on."""
    tables = _printed()
    row = PRINTED[model] + (" (non-reason)" if source == "guru" else "")
    found = tables[(tables["source"] == "en") & (tables["table"] == 12)
                   & (tables["group"] == DATA[source]) & (tables["row"] == row)]
    return dict(zip(found["column"], found["value"], strict=True))


@cache
def _printed() -> pd.DataFrame:
    """The paper's tables, which are asked for once for each of many jobs."""
    return load_tables()


OFFICIAL = Stage("official", version=1)
CLONE = "RMUTILS_HELMET"
"""Environment variable: a clone of HELMET that has its data. Where it has a `.venv`, that one's
Python is taken."""


class HelmetConfig(Config):
    """How the official HELMET is run (section 4.1)."""

    lengths: Annotated[tuple[int, ...], Field(min_length=1)] = LENGTHS
    """Section 4.1: "five context lengths ranging from 8K to 128K tokens"."""
    categories: Annotated[tuple[str, ...], Field(min_length=1)] = tuple(CATEGORIES)
    thinking: bool = False
    """Section 4.1: "For Qwen3-8B, we enable reasoning during evaluation"."""
    vllm: bool = False
    """Appendix A: "we run Llama-3.1 using the default Transformers library and use the vLLM engine
    to speed up inference for Qwen3 and Olmo-3"."""


def official_stored(model: str, config: HelmetConfig | harness.HarnessConfig, *,
                    compute: Compute = "auto") -> tuple[pd.DataFrame, Artifact]:
    """Scores of a model by HELMET or the harness; what is stored is read instead."""
    inputs = {"model": identify(model)}
    work = cache_dir() / "official" / OFFICIAL.key(config, inputs)
    run = _helmet if isinstance(config, HelmetConfig) else _harness

    def make(folder: Path) -> dict:
        table = run(model, config, work)
        write_tables({"scores": table}, folder)
        return {"model": model, "scores": len(table)}

    how = ("evaluate", model, "--suite", "helmet") if run is _helmet else (
        "abilities", model, "--harness", "FOLDER")
    artifact = OFFICIAL.obtain_folder(config, inputs, make, compute=compute, model=model,
                                      command=command_line(*how))
    shutil.rmtree(work, ignore_errors=True)  # also weights that were written for it
    return OFFICIAL.read(artifact.folder)["scores"], artifact


def _helmet(model: str, config: HelmetConfig, work: Path) -> pd.DataFrame:
    clone = clone_of_helmet()
    name = f"{Path(model).name}-{work.name}"  # of this model and configuration only
    if not work.exists():  # no run of it was stopped: it begins anew
        shutil.rmtree(clone / "output" / name, ignore_errors=True)
    weights = harness.checkpoint(model, work / Path(model).name)
    script = official.write(weights, work, lengths=config.lengths, categories=config.categories,
                          thinking=config.thinking, vllm=config.vllm, name=name)
    own = clone / ".venv" / "bin"
    path = os.pathsep.join([str(own)] * own.is_dir() + [os.environ.get("PATH", "")])
    if subprocess.run(["bash", str(script)], cwd=clone, stdout=sys.stderr,
                      env=os.environ | {"PATH": path}).returncode:
        raise UserError(f"HELMET failed; its own message is above. It was started in {clone} by "
                        f"`bash {script}`.")
    table = collect(clone / "output" / name)[0]
    found = {*zip(table["dataset"], table["length"], strict=True)}
    if missing := [f"{name} at {length}" for name, data in DATASETS.items() for length in
                   config.lengths if data.category in config.categories
                   and (name, length) not in found]:  # eval.py goes on after an error, and says 0
        raise UserError(f"HELMET has no scores of {', '.join(missing)}; its own message is above. "
                        f"The same command runs what is missing.")
    return table


def clone_of_helmet() -> Path:
    """The folder that `RMUTILS_HELMET` names. UserError if it names none."""
    clone = Path(os.environ.get(CLONE, ""))
    if CLONE not in os.environ or not (clone / "eval.py").is_file():
        raise UserError(f"{CLONE} names no clone of HELMET (a folder with eval.py). Make one: `git "
                        f"clone {official.REPOSITORY}`, `bash scripts/download_data.sh` in it, "
                        f"then `export {CLONE}=FOLDER`.")
    return clone


def _harness(model: str, config: harness.HarnessConfig, work: Path) -> pd.DataFrame:
    if find_results(work) is None:
        weights = harness.checkpoint(model, work / Path(model).name)
        harness.run_harness(harness.command(weights, work, config))
    return read_results(work, harness.chosen(config, harness.BENCHMARKS))[0]
