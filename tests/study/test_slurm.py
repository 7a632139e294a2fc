"""On a real SLURM: the smoke study, through a kill and a restart; a training over two nodes.

It takes minutes, and needs root and Debian's slurm-wlm and munge, whose configuration it writes:
`RMUTILS_SLURM=1 python -m pytest tests/study/test_slurm.py`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from rmutils.book.site.steps import RESULTS
from rmutils.core import paths
from rmutils.core.results import Artifact
from tests.clock import PATIENCE, until
from tests.faults.conftest import Project
from tests.study.slurm import CONFIG, Cluster

pytestmark = pytest.mark.skipif(
    "RMUTILS_SLURM" not in os.environ, reason="takes minutes: RMUTILS_SLURM=1 runs it")
SITE = {"slurm-no-account": True, "slurm-status-command": "squeue",  # there are no accounts
        "slurm-init-seconds-before-status-checks": 5, "seconds-between-status-checks": 5}


@pytest.fixture(params=[1])
def cluster(tmp_path, request):
    if os.geteuid() or not all(map(shutil.which, ("slurmctld", "slurmd", "munged"))):
        pytest.fail("needs root, and `apt install slurm-wlm munge`")
    if CONFIG.exists():
        pytest.fail(f"{CONFIG} is there: this machine has a SLURM of its own")
    cluster = Cluster(tmp_path / "slurm", request.param)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def site(tmp_path):
    """A profile of the project's with what this cluster wants besides."""
    ours = yaml.safe_load((paths.ROOT / "profiles" / "slurm" / "config.yaml").read_text())
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "config.yaml").write_text(yaml.safe_dump(ours | SITE))
    return tmp_path / "site"


def study(root: Path, cache: Path, *options: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rmutils", "study", "--profile", "smoke", "--project", str(root),
         *options], env=os.environ | {"RMUTILS_CACHE": str(cache)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def payloads(root: Path, cache: Path) -> dict[str, dict]:
    """What the study gave, by job: the hash of each file."""
    found = {}
    for job, names in json.loads((root / RESULTS).read_text()).items():
        for name in names:
            artifact = Artifact(cache / "artifacts" / name)
            assert artifact.problems() == []
            # Times are part of the table of cases.
            found[job] = {file: known["sha256"] for file, known in
                          artifact.manifest["files"].items() if file != "cases.parquet"}
    return found


@pytest.mark.fault("kill -9", "a job of a study on SLURM, and its node")
def test_smoke_study_through_a_kill_and_a_restart(cluster, site, tmp_path):
    project, cache = Project(tmp_path / "a book"), tmp_path / "cache"
    (project.root / "notebooks" / "profiles.yaml").write_text("smoke: {}\n")
    process = study(project.root, cache, "--on", str(site))

    def running(stage: str, begun: str) -> str | None:
        """Number of the job that is in the middle of a stage."""
        assert process.poll() is None, process.communicate()[0]
        if any((cache / "artifacts").glob(begun)):
            return next((number for number, told in cluster.jobs("RUNNING").items()
                         if stage in told), None)
        return None

    killed = until(lambda: running("detect", ".detect-*.partial/.journal.jsonl"))
    cluster.kill(killed)
    moved = until(lambda: running("train", ".train-*.partial/.training"))
    cluster.restart_node()
    output = process.communicate(timeout=2 * PATIENCE)[0]
    assert process.returncode == 0, output
    assert killed not in cluster.jobs("COMPLETED")
    assert "Restarts=1" in cluster.ask("scontrol", "show", "job", moved)
    done = " ".join(cluster.jobs("COMPLETED").values())
    stages = ("detect", "generate", "pairs", "train", "evaluate", "chapter_first", "book")
    assert all(stage in done for stage in stages), done
    assert project.page("chapters/first").exists()

    undisturbed = Project(tmp_path / "another")
    (undisturbed.root / "notebooks" / "profiles.yaml").write_text("smoke: {}\n")
    whole = study(undisturbed.root, tmp_path / "other", "--no-book")
    output = whole.communicate(timeout=2 * PATIENCE)[0]
    assert whole.returncode == 0, output
    assert payloads(project.root, cache) == payloads(undisturbed.root, tmp_path / "other")


TWO_NODES = """
import sys
from pathlib import Path

from rmutils.book.jobs import jobs as running
from rmutils.book.jobs import studies
from rmutils.training.compute_backend import ComputeBackend, Launch

small = studies.smoke()
runs = {"tiny-llama": small.runs["tiny-llama"][:1]}
if nodes := int(sys.argv[1]):
    backends = {"tiny-llama": ComputeBackend(launch=Launch(settings="fsdp", gpus=1, nodes=nodes))}
running.study_of = lambda *_: studies.Study(
    runs, {"tiny-llama": []}, compute_backends=backends if nodes else {})
running.run_study("smoke", root=Path(sys.argv[2]), on=sys.argv[3], book=False)
"""
AS_GPUS = """
import sys

if "rmutils.training" in sys.orig_argv[1:4]:
    from tests.training.two_cpus import pass_off

    pass_off()
"""


@pytest.mark.parametrize("cluster", [2], indirect=True)
def test_training_over_two_nodes(cluster, site, tmp_path):
    """Each has a process that is passed off as one with a GPU. One process gives the same curve."""
    (tmp_path / "sitecustomize.py").write_text(AS_GPUS)

    def trained(nodes: int, on: str | Path) -> tuple[subprocess.CompletedProcess, Path]:
        root, cache = tmp_path / f"book {nodes}", tmp_path / f"cache {nodes}"
        if not root.exists():
            (Project(root).root / "notebooks" / "profiles.yaml").write_text("smoke: {}\n")
        env = {"PYTHONPATH": f"{tmp_path}:{paths.ROOT}", "CUDA_VISIBLE_DEVICES": "",
               "OMP_NUM_THREADS": "1", "RMUTILS_CACHE": str(cache)}
        return subprocess.run([sys.executable, "-c", TWO_NODES, str(nodes), root, on], text=True,
                              env=os.environ | env, capture_output=True, timeout=PATIENCE), cache

    refused, _ = trained(2, site)
    assert refused.returncode and "Memory specification can not be satisfied" in refused.stderr
    profile = site / "config.yaml"
    profile.write_text(profile.read_text() + "set-resources: {train: {mem_mb: 4000}}\n")
    curves = []
    for nodes, on in ((2, site), (0, "local")):
        done, cache = trained(nodes, on)
        assert done.returncode == 0, done.stdout + done.stderr
        [folder] = (cache / "artifacts").glob("train/*/*")
        curves.append(pd.read_csv(folder / "curve.csv"))
    [training] = [number for number, told in cluster.jobs("COMPLETED").items() if "train" in told]
    assert "NumNodes=2" in cluster.ask("scontrol", "show", "job", training)
    pd.testing.assert_frame_equal(*curves, rtol=1e-4, atol=1e-5)
