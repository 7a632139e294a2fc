"""Kinds of retrieval score that are added from outside the package."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rmutils import DetectConfig, detect
from rmutils.heads.score_kinds import SCORES, ScoreKind

GRID = DetectConfig(lengths=(240,), depths=(0.0, 1.0), needles=2, max_new_tokens=3)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    monkeypatch.setattr(SCORES, "_known", {**SCORES._known})


def test_arg_max_rows_are_enough_for_a_kind_of_one_method(llama):
    """And it may say which cases count: here all, whether the needle is found or not."""
    @SCORES.register("sink")
    class Sink(ScoreKind):
        only_found = False

        def score(self, case, answer):
            return (answer.positions == 0).mean(0)

    scores = detect(llama, GRID.changed({"score": "sink"}))
    assert scores.runs.shape == (4, *llama.shape)
    assert 0 <= scores.mean.min() < scores.mean.max() <= 1
    assert scores.cases["needle_tokens"].min() > 1


def test_a_kind_may_capture_what_it_likes(llama, tmp_path):
    """The attention that the needle gets from the last token of the prompt, without any answer."""
    @SCORES.register("attention mass")
    class Mass(ScoreKind):
        only_found = False

        def answers(self, cases, watch):
            self.lm.model.set_attn_implementation("eager")
            for case in cases:
                with torch.no_grad():
                    out = self.lm.model(torch.tensor([case.input_ids]), output_attentions=True)
                rows = np.stack([layer[0, :, -1].numpy() for layer in out.attentions])
                yield case, SimpleNamespace(tokens=[], rows=rows), 0.0
            self.lm.model.set_attn_implementation("sdpa")

        def score(self, case, answer):
            return answer.rows[:, :, slice(*case.needle_span)].sum(-1)

    config = GRID.changed({"score": "attention mass"})
    scores = detect(llama, config, journal=tmp_path / "journal")
    assert (scores.runs > 0).all() and (scores.runs < 1).all()
    np.testing.assert_array_equal(
        detect(llama, config, journal=tmp_path / "journal").runs, scores.runs)
