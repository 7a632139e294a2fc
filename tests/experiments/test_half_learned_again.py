"""Half-learned models asked again: the comparison against a hand computation, and the rule."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from rmutils.book.chapters.data_and_training import half_learned
from rmutils.book.chapters.data_and_training.half_learned_again import (
    ALL,
    HALF_LEARNED_AGAIN,
    Lead,
    leads,
    verdict,
)
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK
from rmutils.core.experiment import load_plan
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.stats import Interval


@pytest.fixture(scope="module")
def cases():
    rng, rows = np.random.default_rng(0), []
    for model, gain in (("one", 0.0), ("two", 0.4)):
        for needle, depth in product(range(60), (0.25, 0.75)):
            rows.append((model, BEFORE, 0, needle, depth, rng.random() < 0.4))
            rows += [(model, arm, seed, needle, depth, rng.random() < 0.4 + gain * (arm == RETMASK))
                     for seed, arm in product(range(5), (RETMASK, MATCHED))]
    table = pd.DataFrame(rows, columns=["model", "arm", "seed", "needle", "depth", "success"])
    return table.astype({"success": bool})


def test_leads_are_means_over_needles_and_seeds(cases):
    found = leads(cases)
    by_arm = cases.groupby(["model", "arm"])["success"].mean().unstack()
    wanted = 100 * (by_arm[RETMASK] - by_arm[MATCHED])
    assert [found[model].interval.value for model in wanted.index] == pytest.approx(wanted.tolist())
    assert found[ALL].interval.value == pytest.approx(wanted.mean())
    wide = cases[cases["model"] == "two"].pivot_table(
        index="needle", columns="arm", values="success", aggfunc="mean")
    by_needle = 100 * (wide[RETMASK] - wide[MATCHED])
    plain = ttest_1samp(by_needle, 0).confidence_interval()  # needles alone: no wider than theirs
    assert found["two"].interval.low < plain.low + 1 and found["two"].interval.high > plain.high - 1
    assert found["two"].p < 0.01 < 0.05 < found["one"].p and found[ALL].needles == 60


def test_the_rule_of_the_plan():
    plan = load_plan("half_learned_again")
    ends = {"shown": (2.0, 1, 3, 0.01), "excluded": (0.5, -2, 2.9, 0.4),
            "undecided": (2.0, -1, 5, 0.2)}
    for word, (value, low, high, p) in ends.items():
        assert verdict(Lead(Interval(value, low, high), p, 200), plan) == word
    assert verdict(Lead(Interval(2.0, 1, 3), 0.06, 200), plan) == "undecided"


def test_training_is_that_of_the_first_experiment():
    ours = {key: run.retmask for key, run in HALF_LEARNED_AGAIN.runs().items()}
    theirs = {key: run.retmask for key, run in half_learned.HALF_LEARNED.runs().items()}
    assert len(ours) == 33 and all(theirs[key] == one for key, one in ours.items())


def test_no_needle_is_answered_by_its_haystack_or_was_asked_before():
    home = CORPORA["world"]
    more, asked = load_needles(home / "more"), load_needles(home / "needles")
    haystacks = load_haystacks(home / "haystack")
    assert len({needle.needle for needle in more} - {needle.needle for needle in asked}) == 200
    assert not [needle for index, needle in enumerate(more)
                if needle.real_needle in haystacks[index % 20].text]
