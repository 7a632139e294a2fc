"""Several processes answer as one does. Each share is done in this process here."""

import pandas as pd

from rmutils.core.journal import Journal, worker_part
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.evaluation.helmet import evaluation as stored
from rmutils.evaluation.helmet.evaluation import evaluate_side_by_side
from rmutils.models import load_model

CONFIG = EvaluateConfig(datasets=("document_qa", "labels_coarse", "key_value"),
                        lengths=(300, 400), samples=3)


def test_answers_are_those_of_one_process(tmp_path):
    """Also those that a stopped worker left, with a line that it did not finish."""
    alone = tmp_path / "alone.jsonl"
    table = evaluate(load_model("tiny-llama"), CONFIG, journal=alone)
    one = Journal(alone)
    begun = tmp_path / "begun.jsonl"
    left = Journal(worker_part(begun, 1),
                   stored._depends(load_model("tiny-llama").identity, CONFIG))
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
