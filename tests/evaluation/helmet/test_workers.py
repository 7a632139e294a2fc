"""Several processes answer as one does. Each share is done in this process here."""


from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.evaluation.helmet import evaluation as stored
from rmutils.models import load_model

CONFIG = EvaluateConfig(datasets=("document_qa", "labels_coarse", "key_value"),
                        lengths=(300, 400), samples=3)


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
