"""A small study of all stages is killed, runs out of disk, and may not write: nothing is lost.

A few of the places where it can be killed, or all of them: `RMUTILS_FAULTS=long`.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from rmutils.core.paths import ROOT
from tests.faults.table import LONG

STAGES = ("fetch", "detect", "mask", "generate", "pairs", "train", "evaluate")


@pytest.fixture(scope="module")
def counts(tmp_path_factory) -> dict[str, dict[str, int]]:
    """What was tried -> how often, kept and lost; all in one go, as loading takes its time."""
    alone = ["unshare", "--map-root-user", "--mount"]  # may mount a disk, which nobody else sees
    if not shutil.which("unshare") or subprocess.run([*alone, "true"]).returncode:
        pytest.fail("needs Linux's `unshare` (util-linux), and that user namespaces are allowed")
    folder = tmp_path_factory.mktemp("study")
    done = subprocess.run(
        [*alone, sys.executable, "-m", "tests.faults.study", str(folder),
         "long" if LONG else "short"], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
    sys.stderr.write(done.stderr)
    assert not done.returncode
    return json.loads(done.stdout)


def told(counts, tally, begin: str) -> dict[str, dict[str, int]]:
    found = {what: count for what, count in counts.items() if what.startswith(begin)}
    for what, count in found.items():
        tally(what=what.removeprefix(begin), **count)
    assert found and not any(count["lost"] for count in found.values()), found
    return found


@pytest.mark.fault("kill -9", "at a stage of a study")
def test_killed(counts, tally):
    found = told(counts, tally, "kill in ")
    if LONG:
        stages = {what.removeprefix("kill in ").split(",")[0] for what in found}
        assert stages == {*STAGES} and sum(c["tried"] for c in found.values()) >= 200


@pytest.mark.fault("full disk", "a study")
def test_full_disk(counts, tally):
    told(counts, tally, "full disk: ")


@pytest.mark.fault("read-only cache", "a study")
def test_read_only(counts, tally):
    told(counts, tally, "read-only cache: ")


@pytest.mark.fault("token in the environment", "a study")
def test_tokens(counts, tally):
    told(counts, tally, "token: ")
