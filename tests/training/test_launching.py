"""What starts a shared training is a command that accelerate itself understands."""

import os
import shlex

import pandas as pd
import pytest
from accelerate.commands.launch import launch_command_parser

from rmutils.core.errors import UserError
from rmutils.preference.vllm import own_gpus
from rmutils.training import RECIPES, compute_backend, running
from rmutils.training.compute_backend import ComputeBackend, Launch, command, launch


def parsed(words: list[str]):
    assert words[1:3] == ["-m", "accelerate.commands.launch"]
    return launch_command_parser().parse_args(words[3:])


def test_one_node(tmp_path):
    args = parsed(command(tmp_path / "a task.json", Launch(settings="zero2", gpus=4)))
    assert (args.num_machines, args.num_processes, args.main_process_port) == (1, 4, 0)
    assert args.config_file.endswith("zero2.yaml") and args.module
    assert args.training_script == "rmutils.training.running"
    assert args.training_script_args == [str(tmp_path / "a task.json")]


@pytest.mark.parametrize(("settings", "launcher"), [("zero1", "standard"), ("fsdp", None)])
def test_several_nodes(tmp_path, settings, launcher):
    words = command(tmp_path / "a task.json", Launch(settings=settings, gpus=8, nodes=2), "node-7")
    assert words[:2] == ["srun", "--overlap"] and {"--nodes=2", "--ntasks-per-node=1"} <= {*words}
    *_, bash, option, shell = words
    assert (bash, option) == ("bash", "-c")
    args = parsed(shlex.split(shell.replace('"$SLURM_NODEID"', "1")))
    assert (args.num_machines, args.num_processes, args.machine_rank) == (2, 16, 1)
    assert (args.main_process_ip, args.main_process_port) == ("node-7", compute_backend.PORT)
    assert args.deepspeed_multinode_launcher == launcher
    assert args.training_script_args == [str(tmp_path / "a task.json")]


def test_several_nodes_need_slurm(tmp_path, pairs, monkeypatch):
    for name in ("SLURM_JOB_NODELIST", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="by SLURM, and this is no job of it"):
        launch("tiny-llama", pairs, RECIPES["smoke"], tmp_path / "out", Launch(nodes=2))


def test_first_host_by_the_number_of_the_job(tmp_path, monkeypatch):
    """Snakemake's executor keeps the number of a job, and not the list of its nodes."""
    for name, reply in (("squeue", "node-[7-8]"), ("scontrol", "node-7\nnode-8")):
        (tmp_path / name).write_text(f"#!/bin/sh\nprintf '%s\\n' '{reply}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert compute_backend._first_host() == "node-7"


def test_failing_process_is_told(tmp_path, pairs, monkeypatch):
    monkeypatch.setattr(compute_backend, "command", lambda *_: ["false"])
    with pytest.raises(UserError, match="failed in one of its 4 processes"):
        launch("tiny-llama", pairs, RECIPES["smoke"], tmp_path / "out", Launch())


def test_task_is_the_training(tmp_path, pairs, tiny, monkeypatch):
    """What a process is told is enough to train: here it is the only one."""
    monkeypatch.setattr(compute_backend.subprocess, "run", lambda words: running.train_task(
        compute_backend.Path(words[-1])) or type("Done", (), {"returncode": 0}))
    recipe = RECIPES["smoke"].changed({"max_steps": 1, "seed": 7})
    launch(str(tiny), pairs, recipe, tmp_path / "out", Launch(gpus=1))
    assert len(pd.read_csv(tmp_path / "out" / "curve.csv")) == 1
    assert '"seed": 7' in (tmp_path / "out" / "training.json").read_text()


def test_each_engine_has_gpus_of_its_own():
    assert [own_gpus(k, 2, None, 6) for k in range(3)] == ["0,1", "2,3", "4,5"]
    assert own_gpus(1, 2, "7,5,3,1", 4) == "3,1"
    with pytest.raises(UserError, match="wants 4 GPUs of its own, but there are only 6"):
        own_gpus(1, 4, None, 6)


def test_one_machine_leaves_results_as_they_were():
    two_nodes = ComputeBackend(launch=Launch(gpus=8, nodes=2))
    assert ComputeBackend().inputs() == {} == two_nodes.inputs()
    assert set(ComputeBackend(judge="http://127.0.0.1:1").inputs()) == {"judge"}
    assert ComputeBackend(pairs_at_once=16).inputs() == {}
    with pytest.raises(UserError, match="pairs_at_once is for a training in this process"):
        ComputeBackend(pairs_at_once=16, launch=Launch())
