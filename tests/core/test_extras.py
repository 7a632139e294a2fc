"""What only an extra brings is asked for where it is needed, and then by the name of the extra."""

import sys

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.models import load_model
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskSteps, run_retmask
from rmutils.training import train


def test_measures_that_need_nothing_are_measured_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    lm = load_model("tiny-llama", device="cpu")
    config = EvaluateConfig(datasets=("labels_coarse",), lengths=(300,), samples=1)
    assert len(evaluate(lm, config)) == 1
    with pytest.raises(UserError, match=r'needs ir_measures,.*`pip install "rmutils\[train\]"`'):
        evaluate(lm, config.changed({"datasets": "labels_coarse,rerank", "lengths": "600"}))


def test_training_says_what_it_needs(monkeypatch, llama, tmp_path):
    for name in ("trl", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "rmutils.training.trainers", raising=False)
    pairs = pd.DataFrame({"prompt": ["Who?"], "chosen": ["Anna."], "rejected": ["No one."]})
    with pytest.raises(UserError, match=r'this needs (datasets|trl).*"rmutils\[train\]"'):
        train(llama, pairs, "smoke", tmp_path / "out")


def test_retmask_says_so_before_it_answers(monkeypatch, tiny):
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.delitem(sys.modules, "rmutils.training.trainers", raising=False)
    monkeypatch.setattr(RetMaskSteps, "detect", lambda self: pytest.fail("began"))
    with pytest.raises(UserError, match=r'needs trl.*"rmutils\[train\]"'):
        run_retmask(str(tiny), RetMaskConfig(recipe="smoke"))
