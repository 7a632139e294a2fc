"""The score x ablation matrix, against counts by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils import DetectConfig, detect, load_model
from rmutils.book.chapters.which_heads import experiment as module
from rmutils.book.chapters.which_heads.experiment import (
    COPY,
    MATCHED,
    PLAIN_TEXT,
    TOP,
    WHOLE,
    WhichHeads,
    planned,
    watch_answer,
)
from rmutils.book.chapters.which_heads.findings import agreement, clear, compare_ablations, costs
from rmutils.book.chapters.which_heads.plots import copy_against_write
from rmutils.core.experiment import load_plan

NEEDLES = 20


def made(lost: dict[str, int]) -> WhichHeads:
    """The whole model finds all needles; the top heads of each score lose the first few, others of
    the same layers one in the first of two draws. Plain text loses half a nat."""
    rows = [("", WHOLE, 0, 0, "literal", i, 1.0) for i in range(NEEDLES)]
    rows += [("", WHOLE, 0, 0, PLAIN_TEXT, i, -2.0) for i in range(4)]
    for kind, count in lost.items():
        rows += [(kind, TOP, 2, 0, "literal", i, float(i >= count)) for i in range(NEEDLES)]
        rows += [(kind, MATCHED, 2, draw, "literal", i, float(i > 0 or draw))
                 for draw in (0, 1) for i in range(NEEDLES)]
        rows += [(kind, policy, 2, draw, PLAIN_TEXT, i, -2.5)
                 for policy, draw in ((TOP, 0), (MATCHED, 0), (MATCHED, 1)) for i in range(4)]
    maps = dict.fromkeys(lost, [[9.0, 8.0], [0.0, 1.0]]) | {
        COPY: [[0.5, 0.2], [0.1, 0.0]], "locos": [[3.0, 2.0], [0.0, 1.0]]}
    scores = [(kind, i, j, maps[kind][i][j]) for kind in maps for i in (0, 1) for j in (0, 1)]
    return WhichHeads(
        pd.DataFrame(scores, columns=["kind", "layer", "head", "score"]),
        pd.DataFrame(rows, columns=["kind", "policy", "count", "draw", "outcome", "sample",
                                    "value"]), pd.DataFrame())


def test_costs_are_what_is_lost_beyond_the_control():
    table = costs(made({COPY: 10, "locos": 0})).set_index(["outcome", "kind"])
    copy, locos = table.loc["literal", COPY], table.loc["literal", "locos"]
    assert copy["whole"] == 1 and copy["lost"].value == 0.5
    assert copy["control"].value == pytest.approx(1 / (2 * NEEDLES))
    assert copy["difference"].value == pytest.approx(0.5 - 1 / (2 * NEEDLES))
    assert 0 < copy["difference"].low < copy["difference"].high < 1
    assert copy["p_holm"] == pytest.approx(2 * copy["p"]) and copy["p"] < 0.01
    assert locos["difference"].value < 0 and locos["p_holm"] == 1  # one needle, of one draw
    assert table.loc[PLAIN_TEXT, COPY]["lost"].value == pytest.approx(0.5)


def test_a_comparison_is_decided_by_the_rule_of_the_plan():
    table = costs(made({COPY: 10, "locos": 0})).set_index(["outcome", "kind"])
    assert clear(table.loc["literal", COPY]) and not clear(table.loc["literal", "locos"])
    assert not clear(table.loc["literal", COPY], level=1e-9)


def test_agreement_counts_heads_and_reads_tau_on_other_scales():
    table = agreement(made({COPY: 1}), 2).set_index("kind")
    assert table.loc["locos", "common"] == 2
    assert table.loc["locos", "correlation"] == pytest.approx(0.8)  # one pair swapped
    assert table.loc["locos", "like_tau"] == 1.0  # three heads reach 0.1


def test_ablations_are_compared_on_the_same_needles():
    kinds = ("anchor", "query", "patching")
    by_how = {how: made({COPY: copy, **dict.fromkeys(kinds, 12)})
              for how, copy in (("zero", 4), ("mean", 14), ("query", 4))}
    table = compare_ablations(by_how).set_index("what")
    assert len(table) == 5 and table["p_holm"].min() == pytest.approx(5 * table["p"].min())
    assert table.loc["heads by query", "difference"].value == pytest.approx(
        12 / NEEDLES - 1 / (2 * NEEDLES))
    assert table.loc["mean minus zero, heads by copy", "difference"].value == pytest.approx(0.5)
    assert table.loc["query minus zero, heads by copy", "p"] == 1


def test_heads_that_two_scores_choose_are_masked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "_ask", lambda lm, config: asked.append(1) or pd.DataFrame(
        {"outcome": ["literal"], "sample": [0], "value": [float(len(asked))]}))
    monkeypatch.setattr(module, "watch_answer", lambda *_: pd.DataFrame())
    monkeypatch.setattr(module, "detect_stored", lambda lm, config: (SimpleNamespace(
        mean=np.arange(64.0).reshape(4, 16)), None))
    config = planned(load_plan("which_heads_ablations"), "mean")["tiny-llama"]
    assert config.how == "mean" and len(config.kinds) == 7 and config.top == (8,)
    table = module.which_heads(load_model("tiny-llama", device="cpu"), config).outcomes
    assert len(asked) == 3 and len(table) == 1 + 7 * (1 + 3)  # draws: the only eight others
    assert table.query("policy == @TOP")["value"].nunique() == 1


def test_plan_is_followed(monkeypatch):
    configs = planned(load_plan("which_heads"))
    assert list(configs)[-1] == "smollm2-135m" and configs["smollm2-135m"].top == (5,)
    config = configs["tiny-llama"].changed({
        "detect.needles": 2, "detect.depths": (0.5,), "kinds": (COPY,), "top": (4,), "draws": 2})
    masked = []
    monkeypatch.setattr(module, "_ask", lambda lm, config: masked.append(
        lm.model.model.layers[-1].self_attn.o_proj.weight.abs().sum().item()) or pd.DataFrame(
            {"outcome": ["literal"], "sample": [0], "value": [1.0]}))
    monkeypatch.setattr(module, "watch_answer", lambda *_: pd.DataFrame())
    lm = load_model("tiny-llama", device="cpu")
    result = module.which_heads(lm, config)
    assert result.outcomes["policy"].tolist() == [WHOLE, TOP, MATCHED, MATCHED]
    expected = detect(lm, config.detect).mean
    assert np.allclose(result.map_of(COPY), expected)
    assert masked[1] < masked[0]


def test_watched_heads_copy_the_token_that_is_written():
    lm, config = load_model("tiny-llama", device="cpu"), DetectConfig(
        lengths=(256,), depths=(0.5,), needles=1, max_new_tokens=24)
    mean = np.zeros(lm.shape)
    mean[3, 7] = 1  # the head that copies most
    table = watch_answer(lm, config, {COPY: mean, "dla": mean}, top=1)
    head = table[table["kind"] == COPY]
    assert head["copies"].sum() >= 3 and head.loc[head["copies"], "attention"].min() > 0.1
    assert len(table) == 2 * len(head)
    axes, *_, bars = copy_against_write(table.assign(step=table["step"] + 5), "a model").axes
    dots = axes.lines[0].get_xdata() - 0.5  # columns of the answer's steps, which may begin late
    assert dots.tolist() == np.flatnonzero(head["copies"]).tolist() and bars is not axes
