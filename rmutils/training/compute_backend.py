"""How a run is computed: who answers, on how many GPUs, and how a training is shared."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import model_validator

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.validation import Count
from rmutils.models import LanguageModel
from rmutils.preference.judges import Judge, Proxy, ServerJudge
from rmutils.preference.responses import BACKENDS, Backend
from rmutils.training.recipes import TrainRecipe


class Launch(Config):
    """A training that several processes share, one for each GPU, by `accelerate launch`."""

    settings: Literal["zero1", "zero2", "fsdp"] = "zero1"
    """Shared besides the pairs: the optimizer's state; the gradients, too; or all. The
    paper is silent; the authors' scripts have ZeRO-1, and ZeRO-2 for Qwen3."""
    gpus: Count = 4
    """GPUs of each node. Appendix A: "4 x NVIDIA H100 GPUs or 8 x NVIDIA H200 GPUs"."""
    nodes: Count = 1
    """More than one: within a job of SLURM."""


class ComputeBackend(Config):
    """The defaults are those of one machine."""

    engine: Annotated[str, BACKENDS] = "transformers"
    """Who answers. Appendix A: "we deploy models using the vLLM engine"."""
    tensor_parallel: Count = 1
    """GPUs that share each layer of a model that answers; for engines with GPUs of their own, as
    `engines`."""
    engines: Count = 1
    """So many answer side by side, each to its share of the instructions: data parallelism."""
    launch: Launch | None = None
    """None: the training takes this process."""
    pairs_at_once: Count | None = None
    """Pairs in memory at once while this process trains, in place of the recipe's
    `per_device_batch`, which decides memory and time, but not the result."""
    judge: str | None = None
    """Address of the server whose model judges for Win-Lose-Pair (section 4.1: "Gemma-3-27B-IT");
    None: the proxy, which needs none."""

    @model_validator(mode="after")
    def _fits(self) -> ComputeBackend:
        if self.launch and self.pairs_at_once:
            raise ValueError("pairs_at_once is for a training in this process; processes of launch "
                             "take the recipe's per_device_batch")
        return self

    def backend(self, lm: LanguageModel, named: str, workers: int) -> Backend:
        """Who answers for a model, which was asked for by that name."""
        return BACKENDS[self.engine].start(lm, named, workers=workers,
                                           tensor_parallel=self.tensor_parallel)

    def workers(self, others: int) -> int:
        """How many answer side by side, where `others` would do so without GPUs of their own."""
        return self.engines if BACKENDS[self.engine].own_gpus else others

    def judging(self, lm: LanguageModel, thinking: bool) -> Judge:
        """The judge of two responses of a model."""
        return ServerJudge(self.judge) if self.judge else Proxy(lm, thinking)

    def inputs(self) -> dict[str, str]:
        """Return the inputs of a result that differ from the defaults."""
        found = BACKENDS.origins([self.engine])
        if version := BACKENDS[self.engine].version():
            found["engine"] = version
        if self.judge:
            found["judge"] = ServerJudge(self.judge).identity
        return found


SETTINGS = Path(__file__).parent / "accelerate"
PORT = 29500  # port of the first node, where the others find it
TASK = ".task.json"


def launch(model: str, pairs: pd.DataFrame, recipe: TrainRecipe, folder: Path, how: Launch) -> None:
    """As `rmutils.training.running.train`, in a process for each GPU; a stopped one goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    table, task = folder / ".pairs.parquet", folder / TASK
    pairs.to_parquet(table, index=False)
    task.write_text(json.dumps({"model": model, "pairs": str(table), "folder": str(folder),
                                "recipe": recipe.model_dump(mode="json")}), encoding="utf-8")
    words = command(task, how, _first_host() if how.nodes > 1 else None)
    if subprocess.run(words).returncode:
        raise UserError(f"the training failed in one of its {how.nodes * how.gpus} processes, "
                        f"whose message is above. What it has done is kept: the same command goes "
                        f"on. It was started by `{shlex.join(words)}`.")


def command(task: Path, how: Launch, first: str | None = None) -> list[str]:
    words = [sys.executable, "-m", "accelerate.commands.launch",
             "--config_file", str(SETTINGS / f"{how.settings}.yaml"),
             "--num_machines", str(how.nodes),
             "--num_processes", str(how.nodes * how.gpus)]
    run = ["-m", "rmutils.training.running", str(task)]
    if first is None:
        return [*words, "--main_process_port", "0", *run]
    words += ["--main_process_ip", first, "--main_process_port", str(PORT)]
    if how.settings != "fsdp":  # else DeepSpeed would start the other nodes itself, by pdsh
        words += ["--deepspeed_multinode_launcher", "standard"]
    shell = f'{shlex.join(words)} --machine_rank "$SLURM_NODEID" {shlex.join(run)}'
    return ["srun", "--overlap", f"--nodes={how.nodes}", f"--ntasks={how.nodes}",
            "--ntasks-per-node=1", "bash", "-c", shell]


def _first_host() -> str:
    nodes, job = (os.environ.get(f"SLURM_JOB_{name}") for name in ("NODELIST", "ID"))
    if job and not nodes:  # Snakemake's executor keeps the number only
        nodes = subprocess.run(["squeue", "--noheader", f"--jobs={job}", "--format=%N"],
                               capture_output=True, text=True, check=True).stdout.strip()
    if not nodes:
        raise UserError("a training over several nodes starts them by SLURM, and this is no job of "
                        "it. Run the study with --on slurm, or train with nodes=1.")
    told = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True,
                          check=True)
    return told.stdout.split()[0]
