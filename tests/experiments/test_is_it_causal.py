"""Exchanged heads, against whole texts with hooks; the planned comparisons, against counts by hand.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils import DetectConfig, HeadScores, load_model
from rmutils.book.chapters.is_it_causal import experiment as module
from rmutils.book.chapters.is_it_causal import plots as shown
from rmutils.book.chapters.is_it_causal.experiment import (
    COPY,
    MATCHED,
    NONE,
    OWN,
    REMOVE,
    RESTORE,
    SHIFTED,
    TOP,
    ZERO,
    IsItCausal,
    IsItCausalConfig,
    Leaders,
    is_it_causal,
    planned,
    planned_leaders,
)
from rmutils.book.chapters.is_it_causal.findings import (
    changes,
    compare_leaders,
    copy_by_length,
    effects,
    imbalance,
    leading_heads,
    own_heads,
    room,
    token_leaders,
)
from rmutils.core.experiment import load_plan
from rmutils.core.journal import Journal
from rmutils.heads.detection import build_cases
from rmutils.heads.patching import GivenAnswer, without_needle
from rmutils.heads.score_kinds import SCORES

NEEDLES = 20
GRID = DetectConfig(lengths=(200,), depths=(0.5,), needles=1, max_new_tokens=8, score="dla")


@torch.no_grad()
def whole_text(lm, ids, rows, wanted, given, heads):
    """Log-probabilities of tokens, heads exchanged in some rows of one text without a cache; and
    what all heads hand over in these rows."""
    size, seen, hooks = lm.model.config.head_dim, {}, []
    for i, layer in enumerate(lm.model.model.layers):
        def hook(module, inputs, i=i):
            for h in (head for at, head in heads if at == i):
                part = slice(h * size, (h + 1) * size)
                inputs[0][0, rows, part] = given[i][0, rows, part]
            seen[i] = inputs[0].clone()

        hooks.append(layer.self_attn.o_proj.register_forward_pre_hook(hook))
    logits = lm.model(torch.tensor([ids])).logits[0, rows].log_softmax(-1)
    for hook in hooks:
        hook.remove()
    return [float(row[token]) for row, token in zip(logits, wanted, strict=True)], seen


def test_exchanges_are_those_of_whole_texts():
    """Sets that differ by token are checked by their ends: all heads give the other run."""
    lm = load_model("tiny-olmo3", device="cpu")  # sliding windows
    kind = SCORES["dla"](lm, GRID)
    (case, answer, _), = kind.answers(build_cases(lm, GRID), None)
    tokens = answer.tokens.tolist()
    rows = [len(case.input_ids) - 1 + step for step in answer.steps]
    wanted = [tokens[step] for step in answer.steps]
    full, bare = ([*ids, *tokens] for ids in (case.input_ids, without_needle(case)))
    clean, empty = (GivenAnswer(lm, ids, answer)
                    for ids in (case.input_ids, without_needle(case)))
    with_needle, on = whole_text(lm, full, rows, wanted, None, [])
    without, off = whole_text(lm, bare, rows, wanted, None, [])
    for found, seen in ((clean.outputs(), on), (empty.outputs(), off), (answer.outputs, on)):
        for i, whole in seen.items():
            np.testing.assert_allclose(found[:, i].flatten(1), whole[0, rows], atol=1e-4)
    heads = [(3, 10), (3, 11), (2, 4)]
    chosen = np.zeros((3, 1, *lm.shape), bool)
    for head in heads:
        chosen[1, 0][head] = True
    chosen[2] = True
    for run, ids, outputs, given, start, end in (
            (empty, bare, answer.outputs, on, without, with_needle),
            (clean, full, empty.outputs(), off, with_needle, without)):
        odds, right = run.exchanged(outputs, chosen)
        some, _ = whole_text(lm, ids, rows, wanted, given, heads)
        np.testing.assert_allclose(odds, [start, some, end], atol=1e-4)
        assert abs(odds[1] - odds[0]).max() > 0.01 and set(right.ravel()) <= {0.0, 1.0}
    assert right[0].all() and not right[2].all()  # greedy answers are first choices


def made(returned: int, lost: int) -> IsItCausal:
    """Answers of two tokens, none of them right without the needle. The top head returns, and
    loses, both tokens of the first few needles; others of its layer one token of the first, in one
    of two draws. Head 0-1 leads at the first token and 0-0 at the second; shifted, they return
    half."""
    sets, singles = [], []
    for n in range(NEEDLES):
        for way, start, sign, count in ((RESTORE, 0.0, 1, returned), (REMOVE, 1.0, -1, lost),
                                        (ZERO, 1.0, -1, lost)):
            row = {"case": f"{n}", "needle": n, "way": way, "kind": "", "count": 0, "draw": 0}
            sets.append(row | {"policy": NONE, "right": start})
            row |= {"kind": COPY, "count": 1}
            sets.append(row | {"policy": TOP, "right": start + sign * (n < count)})
            sets += [row | {"policy": MATCHED, "draw": draw,
                            "right": start + sign * 0.5 * (n == draw == 0)} for draw in (0, 1)]
        row = {"case": f"{n}", "needle": n, "way": RESTORE, "kind": "", "count": 1, "draw": 0}
        sets += [row | {"policy": OWN, "right": 1.0}, row | {"policy": SHIFTED, "right": 0.5}]
        singles += [{"case": f"{n}", "needle": n, "step": step, "token": " a", "layer": 0,
                     "head": head, "restored": float(head != step), "removed": 0.1}
                    for step in (0, 1) for head in (0, 1)]
    table = pd.DataFrame(sets)
    return IsItCausal(
        pd.DataFrame({"kind": COPY, "layer": 0, "head": [0, 1], "score": [0.1, 0.5]}),
        table.assign(whole=table["right"] == 1, nats=0.0), pd.DataFrame(singles))


def test_effects_are_what_is_exchanged_beyond_the_control():
    result = made(returned=10, lost=2)
    table = effects(result).set_index("way")
    assert result.ranking(COPY) == [(0, 1), (0, 0)] and room(result).value == 1
    control = 0.5 / (2 * NEEDLES)
    for way, top in ((RESTORE, 0.5), (REMOVE, 0.1), (ZERO, 0.1)):
        assert table.loc[way, "top"].value == pytest.approx(top)
        assert table.loc[way, "control"].value == pytest.approx(control)
        assert table.loc[way, "difference"].value == pytest.approx(top - control)
    assert table.loc[RESTORE, "p_holm"] == pytest.approx(2 * table.loc[RESTORE, "p"])
    assert table.loc[REMOVE, "p_holm"] == table.loc[REMOVE, "p"] == pytest.approx(
        0.5, abs=0.02)  # two needles: 2 of 4 patterns of signs are as large
    assert np.isnan(table.loc[ZERO, "p_holm"])
    assert imbalance(result, COPY, 1).value == pytest.approx(-0.4)
    again = result.sets[result.sets["needle"] == 0].assign(case="again", right=1.0)
    more = IsItCausal(result.scores, pd.concat([result.sets, again]), result.singles)
    assert room(more).value == pytest.approx(1 - 0.5 / NEEDLES)  # two answers of one needle
    assert changes(result, REMOVE, "whole").query("policy == @TOP")["change"].sum() == 2


def test_heads_of_each_token():
    result = made(1, 1)
    more, p, shifted = own_heads({"a": result})["a"]
    assert more.value == 0.5 == shifted and p < 0.001
    leaders = token_leaders(result)
    assert leaders[leaders["step"] == 0]["leader"].unique().tolist() == [(0, 1)]
    assert leaders[leaders["step"] == 1]["leader"].unique().tolist() == [(0, 0)]
    result.singles.loc[result.singles["step"] == 1, "restored"] *= 0.09
    assert token_leaders(result)["step"].unique().tolist() == [0]


def test_leading_heads_are_counted():
    assert leading_heads(made(1, 1)) == {
        "tokens": 2 * NEEDLES, "heads that lead": 2, "most frequent": "0-1",
        "leads at tokens": NEEDLES}


def test_leaders_are_compared_length_by_length():
    runs = np.zeros((24, 1, 2))
    cases = pd.DataFrame({"length": [256] * 12 + [4096] * 12, "needle": [*range(12)] * 2,
                          "success": True})
    runs[:12, 0, 0], runs[12:, 0, 1] = 0.5, 0.5
    scores = HeadScores(runs, "a model", cases["needle"].to_numpy(), cases)
    config = planned_leaders(load_plan("is_it_causal"), scores)
    assert config.heads == ((0, 0), (0, 1)) and config.cases.lengths == (512, 2048)
    table = copy_by_length(scores, config.heads)
    assert [row.value for row in table["difference"]] == [0.5, -0.5]
    leaders = Leaders(pd.DataFrame([
        {"needle": n, "length": 512, "layer": 0, "head": head, "restored": 2.0 - head, "gap": 9.0}
        for n in range(6) for head in (0, 1)]))
    row, = compare_leaders(leaders, config.heads).itertuples()
    assert (row.length, row.answers, row.difference.value) == (512, 6, 1.0)
    assert row.least_p == row.p_holm == 2 / 2**6
    few = Leaders(leaders.table[leaders.table["needle"] < 5])
    assert compare_leaders(few, config.heads)["least_p"][0] == 2 / 2**5  # it cannot show anything
    both = Leaders(pd.concat([leaders.table, leaders.table.assign(length=2048)]))
    assert compare_leaders(both, config.heads)["least_p"].tolist() == [2 * 2 / 2**6] * 2
    assert len(shown.copy_scores_by_length(table, config.heads).axes) == 2


def test_an_experiment_goes_on_where_it_stopped(tmp_path, monkeypatch):
    config = planned(load_plan("is_it_causal"))["tiny-llama"]
    assert config.top == (4, 8, 16) and config.cases.depths == (0.25, 0.75)
    asked = DetectConfig(lengths=(256,), depths=(0.5,), needles=2, needle_set="literal",
                         max_new_tokens=24)
    config = IsItCausalConfig(
        choice=asked.changed({"needles": 1, "needle_set": None}), kinds=(COPY,), cases=asked,
        top=(4,), draws=1, seed=42)
    lm = load_model("tiny-llama", device="cpu")
    result = is_it_causal(lm, config, journal=tmp_path / "journal")
    sets = result.sets.set_index(["case", "way", "policy"])["right"].unstack("policy")
    assert sets.loc[(slice(None), REMOVE), NONE].eq(1).all()
    assert sets.loc[(slice(None), RESTORE), [TOP, OWN]].min().min() > sets.loc[
        (slice(None), RESTORE), NONE].max()
    assert len(result.singles.groupby(["case", "step"])) * 64 == len(result.singles)
    monkeypatch.setattr(module, "_exchanged", None)
    again = is_it_causal(lm, config, journal=tmp_path / "journal")
    pd.testing.assert_frame_equal(again.sets, result.sets)
    leaders = module.leaders_by_length(lm, module.LeadersConfig(
        cases=asked.changed({"needles": 1}), heads=((3, 7), (3, 12))),
        journal=tmp_path / "leaders").table
    alone = result.singles[result.singles["needle"] == 0].groupby(["layer", "head"])["restored"]
    assert leaders["restored"].tolist() == pytest.approx(
        [alone.sum()[3, head] for head in (7, 12)], abs=1e-3)
    assert (leaders["gap"] > leaders["restored"]).all() and len(Journal(tmp_path / "leaders")) == 1
