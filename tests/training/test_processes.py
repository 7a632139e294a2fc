"""Several processes: the settings for accelerate, and FSDP in two CPU processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from accelerate import DistributedType
from accelerate.commands.config.config_args import load_config_from_file
from safetensors.torch import load_file

from rmutils.training import RECIPES, running, train

SETTINGS = Path(running.__file__).parent / "accelerate"


@pytest.mark.parametrize(("file", "kind", "stage"), [
    ("zero1.yaml", DistributedType.DEEPSPEED, 1), ("zero2.yaml", DistributedType.DEEPSPEED, 2),
    ("fsdp.yaml", DistributedType.FSDP, None),
])
def test_settings_are_read_by_accelerate(file, kind, stage):
    settings = load_config_from_file(str(SETTINGS / file))
    assert settings.distributed_type == kind and settings.mixed_precision == "no"
    assert settings.deepspeed_config.get("zero_stage") == stage


def test_two_processes_with_fsdp_train_as_one_does(tiny, pairs, tmp_path):
    """The order of sums differs, nothing else."""
    pairs.to_parquet(tmp_path / "pairs.parquet")
    one, two, rounded = (tmp_path / name for name in ("one", "out/smoke", "out/as paper"))
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2",
              "--main_process_port", "0", "--config_file", SETTINGS / "fsdp.yaml"]
    done = subprocess.run(
        [*launch, Path(__file__).with_name("two_cpus.py"), tiny, tmp_path / "pairs.parquet",
         tmp_path / "out"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(two), str(rounded)]  # each told once
    train(str(tiny), pairs, RECIPES["smoke"], one)
    assert {p.name for p in one.iterdir()} == {p.name for p in two.iterdir()}
    for same in ("config.json", "generation_config.json", "tokenizer.json", "training.json"):
        assert (one / same).read_text() == (two / same).read_text()
    curve, same, near = (pd.read_csv(f / "curve.csv") for f in (one, two, rounded))
    pd.testing.assert_frame_equal(curve, same, rtol=1e-4, atol=1e-5)
    assert len(curve) == len(near) == 4 and curve["margin"].iloc[-1] > 0.01
    assert near["loss"].tolist() == pytest.approx(curve["loss"].tolist(), abs=0.05)
    assert 0 < (near["margin"] - curve["margin"]).abs().max() < 0.2
    before, alone, together = (load_file(f / "model.safetensors") for f in (tiny, one, two))
    assert alone.keys() == together.keys() == before.keys()
    for name in before:
        torch.testing.assert_close(together[name], alone[name], rtol=0, atol=1e-6)
    assert max((alone[n] - before[n]).abs().max() for n in before) > 1e-4
