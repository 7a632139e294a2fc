"""Single heads and sets of heads: what is masked, and sums by hand."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import teaching_models as ablation
from rmutils.book.chapters.masking_sweep.plots import heads_alone
from rmutils.book.chapters.teaching_models import AblationConfig, ablate, losses, together
from rmutils.heads import DetectConfig
from rmutils.heads.scores import HeadScores

CONFIG = AblationConfig(grid=DetectConfig(lengths=(300,), depths=(0.5,)), draws=2)


@pytest.fixture
def scores(llama) -> HeadScores:
    """Three retrieval heads of sixteen."""
    runs = np.zeros((1, *llama.shape))
    runs[0, 1, :3] = 0.5
    return HeadScores(runs, "m", np.zeros(1, int), None)


@pytest.fixture
def asked(monkeypatch):
    """Stands for the questions: the norm of the output weights says which heads are masked."""
    seen = []

    def find(lm, config):
        size = lm.model.config.head_dim
        masked = [(i, j) for i, layer in enumerate(lm.model.model.layers)
                  for j in range(lm.shape[1])
                  if not layer.self_attn.o_proj.weight[:, j * size:(j + 1) * size].any()]
        seen.append(masked)
        return pd.DataFrame({"needle": [0, 1], "length": 300, "depth": 0.5, "response": "",
                             "success": [not masked, len(masked) < 2]})

    monkeypatch.setattr(ablation, "find_needles", find)
    return seen


def test_every_head_alone_and_sets_of_others(llama, scores, asked, tmp_path):
    table = ablate(llama, scores, CONFIG, journal=tmp_path / "journal")
    assert asked[0] == [] and asked[1:17] == [[(i, j)] for i in range(4) for j in range(4)]
    assert [len(heads) for heads in asked[17:]] == [3, 3] and asked[17] != asked[18]
    assert not {(1, 0), (1, 1), (1, 2)} & {head for heads in asked[17:] for head in heads}
    again = ablate(llama, scores, CONFIG, journal=tmp_path / "journal")
    assert len(asked) == 19  # all of it is in the journal
    pd.testing.assert_frame_equal(again, table)
    assert table.loc[table["heads"] == "1.2", "score"].tolist() == [0.5, 0.5]


def test_losses_by_hand(llama, scores, asked):
    """Needle 0 is lost without any head, needle 1 without any two: alone 1/2, together 1."""
    cases = ablate(llama, scores, CONFIG)
    table, _ = losses(cases)
    assert table["loss"].tolist() == [0.5] * 16 + [1.0] * 2
    assert table["draw"].tolist() == [-1] * 16 + [0, 1]
    parts = together(cases)
    assert parts["value"].to_dict() == {"together": 1.0, "sum of each alone": 1.5}
    # Two needles say next to nothing: the interval ends where three losses of all needles do.
    assert parts.loc["sum of each alone", ["low", "high"]].tolist() == [-3.0, 3.0]
    assert heads_alone(table, 0.1).axes[0].get_legend() is not None
