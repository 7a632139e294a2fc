"""By what means a run is done: who answers, over how many GPUs, and how the training is shared.

They are no part of a run's configuration. Where one has influence on the result, as another engine
has, it is among the inputs of what is stored.

A training that many processes share: `accelerate launch`, on one node or on the nodes of a job.

The same module is what each of these processes runs: `-m rmutils.training.launching TASK`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from pydantic import Field

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.preference.backends import Transformers
from rmutils.preference.judges import Judge, Proxy, ServerJudge
from rmutils.preference.responses import Backend
from rmutils.training.recipes import TrainRecipe

Count = Annotated[int, Field(ge=1)]


class Launch(Config):
    """A training that several processes share, one for each GPU, by `accelerate launch`."""

    settings: Literal["zero1", "zero2", "fsdp"] = "zero1"
    """What is shared besides the pairs: the optimizer's state; the gradients, too; or all. The
    paper is silent; the authors' scripts have ZeRO-1, and ZeRO-2 for Qwen3."""
    gpus: Count = 4
    """Of each node. Appendix A: "4 x NVIDIA H100 GPUs or 8 x NVIDIA H200 GPUs"."""
    nodes: Count = 1
    """More than one: within a job of SLURM."""


class Means(Config):
    """The defaults are those of one machine."""

    engine: Literal["transformers", "vllm"] = "transformers"
    """Appendix A: "we deploy models using the vLLM engine"."""
    tensor_parallel: Count = 1
    """GPUs that share each layer of a model that answers; vLLM only, as `engines`."""
    engines: Count = 1
    """So many answer side by side, each to its share of the instructions: data parallelism."""
    launch: Launch | None = None
    """None: the training takes this process."""
    judge: str | None = None
    """Address of the server whose model judges for Win-Lose-Pair (section 4.1: "Gemma-3-27B-IT");
    None: the proxy, which needs none."""

    def backend(self, lm: LanguageModel, named: str, workers: int) -> Backend:
        """Who answers for a model, which was asked for by that name."""
        if self.engine == "transformers":
            return Transformers(lm, named=named, workers=workers)
        from rmutils.preference.vllm import VLLM

        lm.model.to("cpu")  # it is only exported, and the engine wants the memory
        torch.cuda.empty_cache()
        return VLLM(lm, named=named, workers=workers, tensor_parallel_size=self.tensor_parallel)

    def workers(self, others: int) -> int:
        """How many answer side by side, where `others` would do so without vLLM."""
        return self.engines if self.engine == "vllm" else others

    def judging(self, lm: LanguageModel, thinking: bool) -> Judge:
        """The judge of two responses of a model."""
        return ServerJudge(self.judge) if self.judge else Proxy(lm, thinking)

    def inputs(self) -> dict[str, str]:
        """What a result depends on besides all that it does with the means of one machine."""
        found = {}
        if self.engine != "transformers":
            from rmutils.preference.vllm import version_of_vllm

            found["engine"] = f"vllm {version_of_vllm()}"
        if self.judge:
            found["judge"] = ServerJudge(self.judge).identity
        return found


SETTINGS = Path(__file__).parent / "accelerate"
PORT = 29500
"""Of the first node, where the others find it."""
TASK = ".task.json"


def launch(
    model: str, pairs: pd.DataFrame, recipe: TrainRecipe, folder: Path, means: Launch
) -> None:
    """As `rmutils.training.running.train`, in a process for each GPU; a stopped one goes on.

    Parameters
    ----------
    model : str
        What `load_model` takes: each process loads it.
    means : Launch

    Raises
    ------
    UserError
        A process failed, whose message is above; or several nodes are wanted outside of SLURM.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, task = folder / ".pairs.parquet", folder / TASK
    pairs.to_parquet(table, index=False)
    task.write_text(json.dumps({"model": model, "pairs": str(table), "folder": str(folder),
                                "recipe": recipe.model_dump(mode="json")}), encoding="utf-8")
    words = command(task, means, _first_host() if means.nodes > 1 else None)
    if subprocess.run(words).returncode:
        raise UserError(f"the training failed in one of its {means.nodes * means.gpus} processes, "
                        f"whose message is above. What it has done is kept: the same command goes "
                        f"on. It was started by `{shlex.join(words)}`.")


def command(task: Path, means: Launch, first: str | None = None) -> list[str]:
    """The command line of a training.

    Parameters
    ----------
    task : Path
        What is to be trained.
    first : str, optional
        The first node, if there are several. They are started by SLURM's `srun`, which tells each
        its number.
    """
    words = [sys.executable, "-m", "accelerate.commands.launch",
             "--config_file", str(SETTINGS / f"{means.settings}.yaml"),
             "--num_machines", str(means.nodes),
             "--num_processes", str(means.nodes * means.gpus)]
    run = ["-m", "rmutils.training.launching", str(task)]
    if first is None:
        return [*words, "--main_process_port", "0", *run]
    words += ["--main_process_ip", first, "--main_process_port", str(PORT)]
    if means.settings != "fsdp":  # else DeepSpeed would start the other nodes itself, by pdsh
        words += ["--deepspeed_multinode_launcher", "standard"]
    shell = f'{shlex.join(words)} --machine_rank "$SLURM_NODEID" {shlex.join(run)}'
    return ["srun", "--overlap", f"--nodes={means.nodes}", f"--ntasks={means.nodes}",
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


def main(task: Path) -> None:
    """What each process does."""
    from rmutils.training.running import train

    told = json.loads(task.read_text(encoding="utf-8"))
    train(told["model"], pd.read_parquet(told["pairs"]), TrainRecipe(**told["recipe"]),
          Path(told["folder"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
