"""Losses of the real models, against counts by hand."""

import numpy as np
import pandas as pd
import pytest

from rmutils.book.experiments import needles_left as module
from rmutils.book.experiments.masked_needles import (
    ANYWHERE,
    COPY,
    MATCHED,
    NEWEST,
    TOP,
    WHOLE,
    MaskedNeedles,
)
from rmutils.core.experiment import load_plan
from rmutils.heads.scores import HeadScores

NEEDLES = 32
PLAN = load_plan("real_models")
HEADS = {"smollm2-135m": 270, "gemma3-270m": 72, "qwen2.5-coder-0.5b": 336}


def rows(model, policy, count, found, draw=0, score=COPY, needle_set="facts-literal", length=1024):
    """`found` of the needles are found, the first ones."""
    return pd.DataFrame({
        "model": model, "score": "" if policy == WHOLE else score, "policy": policy,
        "count": count, "draw": draw, "position": NEWEST, "set": needle_set, "length": length,
        "depth": 0.5, "needle": range(NEEDLES), "success": np.arange(NEEDLES) < found,
        "recall": 0.0, "response": ""})


def model_with(model, whole, top, control, count):
    return [rows(model, WHOLE, 0, whole), rows(model, TOP, count, top),
            *(rows(model, MATCHED, count, found, draw) for draw, found in enumerate(control)),
            rows(model, ANYWHERE, count, whole)]


@pytest.fixture
def answers():
    """The first loses 20 needles to its control, the second too few to tell, and the third finds
    too few unmasked."""
    return pd.concat([*model_with("smollm2-135m", 30, 8, (28, 28), 32),
                      *model_with("gemma3-270m", 30, 26, (28, 26), 9),
                      *model_with("qwen2.5-coder-0.5b", 10, 0, (10, 10), 40)], ignore_index=True)


def test_controls_are_compared_needle_by_needle(answers):
    table = module.compare_controls(answers).set_index("model")
    first = table.loc["smollm2-135m"]
    assert (first["whole"], first["top"], first["control"]) == (30 / 32, 8 / 32, 28 / 32)
    assert first["difference"] == 20 / 32 and first["low"] > 0.25 and first["draws"] == 2
    assert first["p"] < 0.001 and table.loc["gemma3-270m", "difference"] == 1 / 32
    assert [*table["readable"]] == [True, True, False]
    assert np.isnan(first["crossed_low"]), "two draws"
    free = module.compare_controls(answers, ANYWHERE).set_index("model")
    assert free.loc["smollm2-135m", "difference"] == 22 / 32


def test_the_rule_of_the_plan(answers):
    """Holm over four models, of which one is missing and one cannot be read."""
    table = module.primary(answers, PLAN, HEADS).set_index("model")
    assert table["shown"].to_dict() == {
        "smollm2-135m": 1, "gemma3-270m": 0, "qwen2.5-coder-0.5b": 0}
    assert table.loc["smollm2-135m", "p_holm"] == pytest.approx(
        4 * table.loc["smollm2-135m", "p"])
    assert table.loc["qwen2.5-coder-0.5b", "p_holm"] == 1


def test_only_the_planned_number_of_heads_is_primary(answers):
    more = pd.concat([answers, *model_with("smollm2-135m", 30, 0, (30, 30), 14)[1:3]])
    assert [*module.primary(more, PLAN, HEADS)["count"]] == [32, 9, 40]


def test_halving(answers):
    more = pd.concat([answers, rows("smollm2-135m", TOP, 4, 16), rows("smollm2-135m", TOP, 8, 15),
                      rows("smollm2-135m", TOP, 16, 20)])
    table = module.halving(more, HEADS).set_index("model")
    assert tuple(table.loc["smollm2-135m", ["count", "before"]]) == (8, 4)
    assert table.loc["smollm2-135m", "share"] == 8 / 270
    assert np.isnan(table.loc["gemma3-270m", "count"])


def test_shares_have_the_draws_in_their_intervals(answers):
    table = module.shares_found(answers).set_index(["model", "policy"])
    first = table.loc["gemma3-270m", MATCHED]
    assert first["value"] == 27 / 32 and (first["needles"], first["draws"]) == (32, 2)
    assert first["low"] < 27 / 32 < first["high"] <= 1


def test_scores_are_compared_on_the_same_needles(answers):
    more = pd.concat([answers[answers["model"] == "smollm2-135m"],
                      rows("smollm2-135m", TOP, 32, 18, score="dla"),
                      rows("smollm2-135m", MATCHED, 32, 28, score="dla")])
    table = module.compare_scores(more)
    assert table["score"].item() == "dla" and table["difference"].item() == 10 / 32
    both = module.by_score(more, PLAN).set_index("score")
    assert both.loc["dla", "difference"] == 10 / 32 and both.loc["dla", "p_holm"] < 0.05
    assert both.loc[COPY, "p_holm"] == pytest.approx(5 * both.loc[COPY, "p"])


def test_sets_are_corrected_over_the_models(answers):
    other = [part.assign(set="facts-relational") for part in model_with(
        "smollm2-135m", 20, 20, (20, 20), 14)]
    table = module.by_set(pd.concat([answers, *other]), 3)
    assert len(table) == 4 and table.set_index("set").loc["facts-relational", "shown"] == 0


def test_displaced_and_common_heads():
    maskings = pd.DataFrame({"score": COPY, "policy": [TOP, MATCHED, MATCHED], "count": 2,
                             "draw": [0, 0, 1], "heads": "", "displaced": [0, 1, 2]})
    table = module.displaced({"a model": MaskedNeedles(maskings, pd.DataFrame())})
    assert [*table.iloc[0]] == ["a model", COPY, 2, 1.5]
    rankings = {"one": [(0, 0), (0, 1), (0, 2)], "two": [(0, 1), (1, 1), (0, 0)]}
    assert module.common_heads(rankings, 2, "one") == {"one": 2, "two": 1}


def test_common_heads_by_set(monkeypatch):
    """Of 40 heads the top two; the relational set shares one of them, the others both."""
    def detections(model, grids, compute):
        tops = [(0, 2) if grid.needle_set == "facts-relational" else (0, 1) for grid in grids]
        for top in tops:
            means = np.zeros((1, 40))
            means[0, list(top)] = 0.9, 0.8
            yield HeadScores(means[None], model, np.array([0])), None

    monkeypatch.setattr(module.real_models, "detections_stored",
                        lambda *given, **how: [*detections(*given, **how)])
    found = module.common_by_set("made up")
    assert found.pop("facts-relational") == 1 and len(found) == 4 and {*found.values()} == {2}
