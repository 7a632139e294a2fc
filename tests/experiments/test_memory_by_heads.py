"""Memory by heads: conditions counted by hand, and the ends: the whole cache, and none."""

import numpy as np
import pandas as pd
import pytest

from rmutils import DetectConfig, HeadScores, load_model
from rmutils.book.chapters import memory_by_heads as module
from rmutils.book.chapters.memory_by_heads import (
    ANYWHERE,
    MATCHED,
    NONE,
    TOP,
    WHOLE,
    MemoryConfig,
    conditions_of,
    memory_figure,
    memory_needles,
    needles_kept,
    ranking,
    top_minus_others,
)
from rmutils.evaluation.answers import find_needles

GRID = DetectConfig(lengths=(256,), depths=(0.5,), needles=2, max_new_tokens=16)
CONFIG = MemoryConfig(
    detect=GRID, scores=("copy",), shares=(0.25, 0.75), skipped=3, needles=2, sinks=4, recent=24,
    asked=DetectConfig(lengths=(256,), depths=(0.5,), max_new_tokens=16, needle_set="literal"))


def test_a_key_head_has_the_score_of_its_highest_query_head():
    mean = np.array([[0.1, 0.2, 0.0, 0.9], [0.3, 0.0, 0.25, 0.0]])
    assert ranking(HeadScores(mean[None], "a model"), 2) == [(0, 1), (1, 0), (1, 1), (0, 0)]


def test_conditions_are_those_of_the_configuration():
    """Of 8 key heads 2 and 6; with 6 too few are left for controls."""
    order = [(3, 1), (1, 0), (0, 0), (0, 1), (1, 1), (2, 0), (2, 1), (3, 0)]
    other = order[::-1]
    rows = conditions_of({"copy": order, "attention": other}, (4, 2), CONFIG, 5)
    assert [(score, policy, share, len(heads)) for score, policy, share, heads in rows] == [
        ("", WHOLE, 1.0, 8), ("", NONE, 0.0, 0), ("copy", TOP, 0.25, 2), ("copy", MATCHED, 0.25, 2),
        ("copy", ANYWHERE, 0.25, 2), ("copy", TOP, 0.75, 6), ("attention", TOP, 0.25, 2),
        ("attention", TOP, 0.75, 6)]
    assert rows[2][3] == [(3, 1), (1, 0)] and sorted(rows[3][3]) == [(1, 1), (3, 0)]
    assert not {*rows[4][3]} & {*rows[2][3]}


def test_the_whole_cache_answers_as_the_model_and_a_window_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    lm = load_model("tiny-llama", device="cpu")
    found = memory_needles(lm, CONFIG)
    grid = module._asked(CONFIG, lm.corpus)
    expected = find_needles(lm, grid).sort_values("needle")
    whole = found[found["policy"] == WHOLE]
    assert [*whole["response"]] == [*expected["response"]] and whole["success"].all()
    assert (whole["kept"] == 1).all() and not found.loc[found["policy"] == NONE, "success"].any()
    tops = found[found["policy"] == TOP].groupby("share")["kept"].mean()
    few = found.loc[found["policy"] == NONE, "kept"].mean()
    assert tops[0.25] == pytest.approx(0.25 + 0.75 * few, abs=0.01)  # bytes, not a mask
    assert tops[0.75] == pytest.approx(0.75 + 0.25 * few, abs=0.01)


def test_needles_are_counted_by_hand():
    """Top key heads find three of four needles, others of the same layers none."""
    rows = [("", WHOLE, 1.0, [1, 1, 1, 1], 1.0), ("", NONE, 0.0, [0, 0, 0, 0], 0.1),
            ("copy", TOP, 0.4, [1, 1, 1, 0], 0.5), ("copy", MATCHED, 0.4, [0, 0, 0, 0], 0.5),
            ("copy", ANYWHERE, 0.4, [1, 0, 0, 0], 0.5)]
    answers = pd.concat([pd.DataFrame({
        "score": score, "policy": policy, "share": share, "length": 256, "needle": range(4),
        "success": np.array(found, bool), "kept": kept, "response": ""})
        for score, policy, share, found, kept in rows])
    table = needles_kept(answers).set_index("policy")
    assert table["value"].to_dict() == {WHOLE: 1, NONE: 0, TOP: 0.75, MATCHED: 0, ANYWHERE: 0.25}
    assert table.loc[TOP, "kept"] == 0.5
    found = top_minus_others(answers, 0.4)
    assert found.value == 0.75 and found.p == 0.25 and found.clusters == 4
    assert top_minus_others(answers, 0.4, ANYWHERE).value == 0.5
    axes, = memory_figure({"a model": answers}).axes
    assert [*axes.lines[0].get_ydata()] == [0, 75, 100]


def asked(plan) -> set[tuple]:
    """Model, set, number and length of each needle that a plan asks."""
    return {(run.model, run.config.asked.needle_set, run.config.skipped + i, length)
            for run in plan.runs().values() for i in range(run.config.needles)
            for length in run.config.asked.lengths}


def test_the_page_tells_the_newest_plan():
    """No earlier run asked its cases; four needles had been asked at another length, as it says."""
    new, earlier = asked(module.MORE), asked(module.MEMORY) | asked(module.FOUND)
    assert not new & earlier and len(new) == 48
    assert len({case[:3] for case in new} & {case[:3] for case in earlier}) == 4
    assert all(artifact.label == "more" for _, artifact in module.stored().values())


def test_longer_texts_are_counted_by_hand():
    """From the stored rows: needles by length and rule, and how copy differs from another score."""
    (answers, _), = module.stored(module.LONGER).values()
    hits = {key: {*part["needle"]} for key, part in answers[answers["success"]].groupby(
        ["length", "score", "policy", "share"])}

    def found(length, score, policy=TOP, share=0.4):
        return hits.get((length, score, policy, share), set())

    table = module.longer_table().set_index("tokens")
    lengths, scores = module.longer()
    for length in (2048, 4096):
        row = table.loc[f"{length:,}"]
        assert row["that copy"] == len(found(length, "copy")) >= 9
        assert row["others, same layers"] == len(found(length, "copy", MATCHED)) == 0
        assert row["locos"] == len(found(length, "locos"))
        value, = lengths.loc[lengths["length"] == length, "value"]
        assert value == pytest.approx(len(found(length, "copy")) / 12)
    for row in scores.itertuples():
        gap = sum(len(found(length, "copy", share=row.share))
                  - len(found(length, row.score, share=row.share)) for length in (2048, 4096))
        assert row.value == pytest.approx(gap / 24)
