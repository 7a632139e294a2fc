"""A training that many processes share: `accelerate launch`, on one node or on the nodes of a job.

Each of these processes runs `python -m rmutils.training TASK`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd

from rmutils.core.errors import UserError
from rmutils.training.compute_backend import Launch
from rmutils.training.recipes import TrainRecipe

SETTINGS = Path(__file__).parent / "accelerate"
PORT = 29500
"""Of the first node, where the others find it."""
TASK = ".task.json"


def launch(
    model: str, pairs: pd.DataFrame, recipe: TrainRecipe, folder: Path, how: Launch
) -> None:
    """As `rmutils.training.running.train`, in a process for each GPU; a stopped one goes on.

    Parameters
    ----------
    model : str
        What `load_model` takes: each process loads it.
    how : Launch

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
    words = command(task, how, _first_host() if how.nodes > 1 else None)
    if subprocess.run(words).returncode:
        raise UserError(f"the training failed in one of its {how.nodes * how.gpus} processes, "
                        f"whose message is above. What it has done is kept: the same command goes "
                        f"on. It was started by `{shlex.join(words)}`.")


def command(task: Path, how: Launch, first: str | None = None) -> list[str]:
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
             "--config_file", str(SETTINGS / f"{how.settings}.yaml"),
             "--num_machines", str(how.nodes),
             "--num_processes", str(how.nodes * how.gpus)]
    run = ["-m", "rmutils.training", str(task)]
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
