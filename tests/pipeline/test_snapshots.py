"""Snapshots: the search goes on where it was stopped; runs are collected."""

import functools

import pandas as pd
import pytest

from rmutils.book.experiments import planned_runs as module
from rmutils.book.experiments.planned_runs import NoSnapshot, find_snapshot
from rmutils.heads import DetectConfig
from rmutils.models.teaching import TeachingRecipe, pretraining, steps_taken, train

RECIPE = TeachingRecipe(family="llama", steps=40, num_hidden_layers=2, tokens_per_step=256)
DETECT = DetectConfig(lengths=(200,), depths=(0.5,), needles=2, max_new_tokens=4)


@pytest.fixture
def looks(monkeypatch):
    """The share of needles at each step is the step in hundredths; the steps looked at."""
    seen = []

    def look(lm, config):
        seen.append(steps_taken(seen_folder[0]))
        return pd.DataFrame({"success": [seen[-1] / 100]})

    seen_folder = []
    real = train
    monkeypatch.setattr(module, "train", lambda recipe, home, until: (
        seen_folder.append(home), real(recipe, home, until=until))[1])
    monkeypatch.setattr(module, "find_needles", look)
    monkeypatch.setattr(pretraining, "build_tokenizer",
                        functools.cache(pretraining.build_tokenizer))
    return seen


def search(home, found):
    return find_snapshot("Toy", RECIPE, home, DETECT, every=2, found=found)


def test_the_first_look_in_the_range_is_the_snapshot(looks, tmp_path):
    assert search(tmp_path / "m", (0.03, 0.07)) == (tmp_path / "m", 4)
    assert looks == [2, 4] and steps_taken(tmp_path / "m") == 4
    assert search(tmp_path / "m", (0.03, 0.07))[1] == 4 and looks == [2, 4, 4]
    with pytest.raises(NoSnapshot, match="Toy never found 0% to 1% of the needles"):
        search(tmp_path / "other", (0.0, 0.01))


def test_a_stopped_search_goes_on_from_between_two_looks(looks, tmp_path):
    train(RECIPE, tmp_path / "m", until=3)  # a checkpoint after the look at step 2
    assert search(tmp_path / "m", (0.0, 0.07))[1] == 4 and looks == [4]
