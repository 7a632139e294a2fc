"""Several processes answer as one does, whatever stops them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, worker_part
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.evaluation.helmet import evaluation as stored
from rmutils.evaluation.helmet.evaluation import evaluate_side_by_side, evaluation_command
from rmutils.models import load_model
from tests.clock import PATIENCE, until

CONFIG = EvaluateConfig(datasets=("document_qa", "labels_coarse", "key_value"),
                        lengths=(300, 400), samples=3)
LONG = CONFIG.changed({"samples": 40})


def test_answers_are_those_of_one_process(tmp_path):
    """Also those that a stopped worker left, with a line that it did not finish."""
    alone = tmp_path / "alone.jsonl"
    table = evaluate(load_model("tiny-llama"), CONFIG, journal=alone)
    one = Journal(alone)
    begun = tmp_path / "begun.jsonl"
    left = Journal(worker_part(begun, 1))
    for name in [*one][5:9]:
        left[name] = one[name]
    with left.path.open("a") as file:
        file.write('["key_val')
    found = evaluate_side_by_side("tiny-llama", CONFIG, begun, 2)
    assert dict(Journal(begun)) == dict(one) and [*tmp_path.glob("begun.jsonl.*")] == []
    pd.testing.assert_frame_equal(found, table)


def test_no_worker_is_without_work(cache, monkeypatch):
    """A single data set is answered by this process, two by two others of the four."""
    asked = []
    monkeypatch.setattr(stored, "evaluate_side_by_side", lambda *given: asked.append(given[3])
                        or evaluate(load_model("tiny-llama"), given[1], journal=given[2]))
    for names in (("key_value",), ("key_value", "labels_coarse")):
        config = CONFIG.changed({"datasets": names, "lengths": (300,), "samples": 1})
        table, _ = stored.evaluate_stored("tiny-llama", config, workers=4)
        assert {*table["dataset"]} == {*names}
    assert asked == [2]


def test_what_a_worker_finds_wrong_is_said(tmp_path):
    with pytest.raises(UserError, match="the window of tiny-llama has 4096"):
        evaluate_side_by_side("tiny-llama", CONFIG.changed({"lengths": (8192,)}), tmp_path / "j", 1)


@pytest.mark.fault("kill -9", "a worker of an evaluation")
def test_a_worker_that_is_killed(tmp_path):
    """What was answered before is kept."""
    path = tmp_path / "j"
    said = []

    def run():
        try:
            evaluate_side_by_side("tiny-llama", LONG, path, 2)
        except UserError as error:
            said.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(Journal(worker_part(path, 0))) > 5)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    thread.join(PATIENCE)
    assert "a worker was stopped" in said[0] and "--workers 1" in said[0]
    assert len(Journal(path)) > 5


@pytest.mark.fault("kill -9", "an evaluation with workers")
def test_a_command_that_is_killed(cache):
    """Its workers end, too, and what they have written stays."""
    words = [sys.executable, "-m", *evaluation_command("tiny-llama", LONG).split()]
    env = os.environ | {"RMUTILS_CACHE": str(cache)}
    parts = lambda: [*(cache / "artifacts").glob(".*/.journal.jsonl.*")]  # noqa: E731
    process = subprocess.Popen([*words, "--workers", "2"], env=env, stderr=subprocess.PIPE)
    until(lambda: len(parts()) == 2 and all(part.stat().st_size for part in parts()))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.wait()
    until(lambda: not any(_runs(pid) for pid in children))
    left = {part: part.stat().st_size for part in parts()}
    time.sleep(0.5)
    assert left == {part: part.stat().st_size for part in parts()}


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False
