"""A detection that is killed goes on where it was, and ends with the same result."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import numpy as np

from rmutils import artifacts
from rmutils.heads import DetectConfig, detection
from rmutils.heads.store import detect_stored

CHILD = """
import sys, time
from rmutils import artifacts
from rmutils.heads import DetectConfig, detection, store
record = detection._record
def slow_record(*arguments):  # so slow that the kill comes in the middle
    time.sleep(0.1)
    return record(*arguments)
detection._record = slow_record
detection.SUCCESS_ROUGE = -1.0
store.detect_stored(sys.argv[1], DetectConfig.model_validate_json(sys.argv[2]))
"""
GRID = DetectConfig(lengths=(240, 300), depths=(0.0, 0.5, 1.0), needles=4, max_new_tokens=4)
CASES = 4 * 2 * 3


def test_detection_goes_on_after_kill_9(tiny, cache, monkeypatch, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(tiny), GRID.model_dump_json()])
    journal = wait_for(lambda: next(cache.glob("artifacts/.*.partial/.journal.jsonl"), None))
    wait_for(lambda: journal.read_text().count("\n") >= 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = [json.loads(line)["case"] for line in journal.read_text().splitlines(keepends=True)
            if line.endswith("\n")]
    assert 3 <= len(done) < CASES and list(artifacts.stored()) == []

    ran = []
    record = detection._record
    monkeypatch.setattr(detection, "_record", lambda *a: ran.append(a[2].id) or record(*a))
    scores, artifact = detect_stored(str(tiny), GRID)
    assert sorted(done + ran) == sorted(scores.cases["case"]) and len(scores.cases) == CASES
    assert artifact.problems() == [] and not list(cache.glob("artifacts/.*.partial"))

    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "another cache"))
    undisturbed, same_name = detect_stored(str(tiny), GRID)
    np.testing.assert_array_equal(scores.runs, undisturbed.runs)
    assert same_name.name == artifact.name and same_name.folder != artifact.folder
    assert scores.cases.drop(columns="seconds").equals(undisturbed.cases.drop(columns="seconds"))


def wait_for(condition):
    end = time.monotonic() + 120
    while not (found := condition()):
        assert time.monotonic() < end, "waited for two minutes"
        time.sleep(0.02)
    return found
