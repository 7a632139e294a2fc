"""Half of the retrieval heads: what is compared, counted case by case, and the plan's rule."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.training_effect.half_masked import (
    BEYOND,
    MASKED,
    OTHER,
    UNMASKED,
    HalfMasked,
    verdict,
)
from rmutils.book.findings import AGAINST, SHOWN, UNDECIDED
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import HeadScores
from rmutils.pipeline.retmask import half_of
from rmutils.stats import Interval

PLAN = load_plan("half_masked")
HEADS = [(0, 1), (1, 0), (1, 2)]


def scores(seed: int, raised: dict | None = None) -> HeadScores:
    """Twelve cases of four needles, some not found; some heads higher."""
    rng = np.random.default_rng(seed)
    found = rng.random(12) < 0.8
    runs = rng.random((12, 2, 3)) / 10
    for (layer, head), by in (raised or {}).items():
        runs[:, layer, head] += by
    cases = pd.DataFrame({"case": range(12), "needle": np.arange(12) % 4, "success": found})
    return HeadScores(runs[found], "a model", cases["needle"].to_numpy()[found], cases)


def run(after: HeadScores, heads) -> SimpleNamespace:
    manifest = {"environment": {"hardware": "one"}}
    return SimpleNamespace(after=after, heads=heads, artifact=SimpleNamespace(manifest=manifest))


@pytest.fixture
def result() -> HalfMasked:
    """Masked heads rise by 0.3, the other half by 0.1."""
    runs = {}
    for split in range(2):
        halves = [half_of(HEADS, f"{split}{side}") for side in "ab"]
        runs[split] = tuple(
            run(scores(10 * split + i + 1, {h: 0.3 if h in half else 0.1 for h in HEADS}), half)
            for i, half in enumerate(halves))
    whole = run(None, HEADS)
    whole.before = scores(0)
    return HalfMasked(whole, runs, 2, [])


def test_rises_case_by_case(result):
    before = result.whole.before
    models = [before, *(run.after for pair in result.runs.values() for run in pair)]
    rows = {what: [] for what in (MASKED, UNMASKED, OTHER)}
    for case in range(12):
        if not all(m.cases["success"][case] for m in models):
            continue
        def table(m, case=case):
            return m.runs[int(m.cases["success"][:case].sum())]
        for pair in result.runs.values():
            for one in pair:
                for what, heads in ((MASKED, one.heads),
                                    (UNMASKED, [h for h in HEADS if h not in one.heads]),
                                    (OTHER, [(0, 0), (0, 2), (1, 1)])):
                    gaps = [table(one.after)[h] - table(before)[h] for h in heads]
                    rows[what].append(np.mean(gaps))
    found = result.rises().set_index("what")
    for what, values in rows.items():
        assert found.loc[what, "value"] == pytest.approx(np.mean(values))
    assert found.loc[BEYOND, "value"] == pytest.approx(
        np.mean(rows[MASKED]) - np.mean(rows[UNMASKED]))
    assert found.loc[BEYOND, "value"] == pytest.approx(0.2, abs=0.05)
    by_run = result.by_run()
    assert list(by_run["half"]) == ["a", "b"] * 2
    assert (by_run[[*rows]].mean() - found.loc[[*rows], "value"]).abs().max() < 1e-12
    assert (found["low"] <= found["value"]).all() and (found["value"] <= found["high"]).all()


def test_the_rule_of_the_plan():
    assert verdict(Interval(0.006, 0.001, 0.011), 0.2, 0.015) == UNDECIDED
    assert verdict(Interval(0.005, 0.002, 0.007), 0.01, 0.015) == SHOWN
    assert verdict(Interval(-0.01, -0.02, -0.002), 0.01, 0.015) == AGAINST
    assert verdict(Interval(0.003, -0.002, 0.009), 0.3, 0.015) == UNDECIDED
