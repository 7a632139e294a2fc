"""A data set from outside is evaluated like the suite's own, also by worker processes."""

import sys
from importlib import import_module

import pandas as pd
import pytest

from rmutils.core.registry import outside_modules
from rmutils.evaluation.helmet import EvaluateConfig, averages, evaluate
from rmutils.evaluation.helmet.evaluation import evaluate_side_by_side
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.suite import CATEGORIES, DATASETS, SUITE
from rmutils.models import load_model

MODULE = "tests.evaluation.helmet.toy_dataset"


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    for registry in (DATASETS, METRICS):
        monkeypatch.setattr(registry, "_known", {**registry._known})
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield import_module(MODULE)


def test_here_and_in_workers(tmp_path):
    config = EvaluateConfig(datasets=("toy", "key_value"), lengths=(300,), samples=2)
    table = evaluate(load_model("tiny-llama"), config)
    found = evaluate_side_by_side("tiny-llama", config, tmp_path / "journal", 2)
    pd.testing.assert_frame_equal(found, table)
    assert MODULE in outside_modules(), "workers import it"
    means = averages(table).set_index("name")
    assert means.loc["Toys", "level"] == "category"
    assert means.loc["overall", "value"] == means.loc["Recall", "value"]
    assert table["metric"].unique().tolist() == ["substring_exact_match", "length_of_answer",
                                                 "recall"]


def test_what_is_asked_by_default_stays():
    """Results that are stored are still found."""
    assert "toy" not in EvaluateConfig().datasets
    assert EvaluateConfig(datasets=CATEGORIES) == EvaluateConfig()
    assert EvaluateConfig(datasets=("Toys",)).datasets == ("toy",)
    assert [name for names in SUITE.values() for name in names] == [*EvaluateConfig().datasets]


def test_a_metric_that_nobody_registered_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(METRICS, "_known", {})
    with pytest.raises(Exception, match="is no metric"):
        evaluate(load_model("tiny-llama"), EvaluateConfig(datasets=("toy",), lengths=(300,)))
