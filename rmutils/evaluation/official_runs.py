"""The paper's own benchmarks as stored results: HELMET and lm-evaluation-harness are run for them.

Both are programs of others, with data of their own, which this project only starts and reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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
from rmutils.models import identify

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


def official_stored(
    model: str, config: HelmetConfig | harness.HarnessConfig, *, compute: Compute = "auto"
) -> tuple[pd.DataFrame, Artifact]:
    """Scores of a model by HELMET or the harness; what is stored is read instead.

    Both keep what they have finished, so that a stopped run goes on.

    Parameters
    ----------
    model : str
        As for `rmutils.models.load_model`.
    config : HelmetConfig or HarnessConfig
    compute : {"auto", "always", "never"}

    Returns
    -------
    DataFrame, Artifact
        As from `rmutils.evaluation.helmet.official_results.collect` or
        `rmutils.evaluation.abilities.harness.read_results`; and where it is kept.

    Raises
    ------
    UserError
        HELMET or the harness is not there, or fails, also at a part of what was asked.
    """
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
