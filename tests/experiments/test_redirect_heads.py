"""Redirected heads: conditions and what answers follow by hand, rows of a batch one at a time."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils import HeadScores, generate, load_model, redirect
from rmutils.book.chapters.redirect_heads import findings as results
from rmutils.book.chapters.redirect_heads.experiment import (
    ALL,
    ANYWHERE,
    EVERY,
    MATCHED,
    MOVED,
    PLAIN,
    TOP,
    RedirectConfig,
    conditions_of,
    redirected_answers,
)
from rmutils.book.chapters.redirect_heads.findings import (
    BOTH,
    NEITHER,
    OTHER,
    POINTED,
    by_pair,
    condition,
    failed,
    judged,
    more,
    primary,
    rates,
)
from rmutils.book.chapters.redirect_heads.texts import contradictions, prompts
from rmutils.book.experiments.masked_needles import heads_in
from rmutils.core.errors import NotStored
from rmutils.heads import DetectConfig

GRID = DetectConfig(lengths=(256,), depths=(0.5,), needles=2, max_new_tokens=16)
CONFIG = RedirectConfig(
    detect=GRID, shares=(0.05, 0.1), strengths=(2, 5), share=0.1, strength=5, all_heads=True,
    same_layers=2, anywhere=1, pairs=2, variants=("two", "alone", "distractors", "moved 1"),
    length=300, max_new_tokens=8)


def test_conditions_are_those_of_the_configuration():
    """Of 20 heads: 1 and 2 by copy score at two strengths, 2 by another score; the controls have
    neither these nor others at or above 0.1."""
    mean = np.zeros((4, 5))
    mean[1, :3], mean[3, 4] = (0.9, 0.5, 0.2), 0.6
    scores = {"copy": HeadScores(mean[None], "a model"),
              "dla": HeadScores(np.arange(20.0).reshape(1, 4, 5), "a model", score="dla")}
    table = conditions_of(scores, CONFIG.changed({"scores": ("dla",)}))
    assert table.groupby("policy").size().to_dict() == {
        PLAIN: 1, TOP: 5, EVERY: 1, MATCHED: 4, ANYWHERE: 2}
    top = table[table["policy"] == TOP]
    assert [*zip(top["score"], top["count"], top["strength"], top["heads"], strict=True)] == [
        ("copy", 1, 2, "1-0"), ("copy", 1, 5, "1-0"), ("copy", 2, 2, "1-0 3-4"),
        ("copy", 2, 5, "1-0 3-4"), ("dla", 2, 5, "3-3 3-4")]
    for row in table[table["policy"].isin([MATCHED, ANYWHERE])].itertuples():
        heads = heads_in(row.heads)
        assert len(heads) == 2 and row.strength == 5
        assert not {*heads} & {(1, 0), (1, 1), (1, 2), (3, 4)}
        assert row.policy == ANYWHERE or sorted(layer for layer, _ in heads) == [1, 3]
    assert table.loc[table["policy"] == MATCHED, "pair"].tolist() == [0, 0, 1, 1]
    assert {*table.loc[table["policy"] == TOP, "pair"]} == {ALL}


@pytest.fixture(scope="module")
def lm():
    return load_model("tiny-llama", device="cpu")


@pytest.fixture(scope="module")
def found(lm, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RMUTILS_CACHE", str(tmp_path_factory.mktemp("cache")))
        return redirected_answers(lm, CONFIG)


def test_each_text_is_asked_what_the_plan_says(found):
    """Plain once; each sentence is pointed at: 4 by copy score, all heads, 2 + 1 controls."""
    counts = found.answers.groupby(["pair", "variant", "policy"]).size()
    for pair in (0, 1):
        assert counts[pair, "two"].to_dict() == {PLAIN: 1, TOP: 8, EVERY: 2, MATCHED: 4,
                                                 ANYWHERE: 2}
        assert counts[pair, "alone"].to_dict() == {PLAIN: 1, TOP: 1, MATCHED: 1}
        assert counts[pair, "distractors"].to_dict() == {PLAIN: 1, TOP: 2, MATCHED: 2}
        assert counts[pair, "moved 1"].to_dict() == {MOVED: 1}


def test_rows_of_a_batch_are_single_answers(found, lm):
    texts = {(text.pair.pair, text.variant): text for text in prompts(
        lm, contradictions(2, CONFIG.seed), CONFIG.length, CONFIG.variants)}
    heads = found.conditions.set_index(["score", "policy", "count", "strength", "draw"])["heads"]
    for row in found.answers[found.answers["pair"] == 1].itertuples():
        text = texts[row.pair, row.variant]
        if row.target < 0 or row.policy == MOVED:
            said, = generate(lm, [text.ids], max_new_tokens=8)
        else:
            key = row.score, row.policy, row.count, row.strength, row.draw
            with redirect(lm, heads_in(heads[key]), text.spans[row.target], row.strength):
                said, = generate(lm, [text.ids], max_new_tokens=8)
        assert lm.tokenizer.decode(said, skip_special_tokens=True).strip() == row.response
        assert text.follows(row.response) == row.follows
        if said and row.policy == PLAIN:
            with torch.inference_mode():
                odds = lm.model(torch.tensor([[*text.ids, *said]])).logits[0].log_softmax(-1)
            nats = -np.mean([float(odds[len(text.ids) - 1 + i, token])
                             for i, token in enumerate(said)])
            assert row.surprise == pytest.approx(nats, abs=1e-3)


def test_a_text_has_its_sentences_where_they_belong(lm):
    for text in prompts(lm, contradictions(6, 1), 300, ("two", "distractors", "moved 0")):
        told = [lm.tokenizer.decode(span.prompt[span.start : span.end]).strip()
                for span in text.spans]
        assert told == [*text.pair.sentences] and len(text.ids) <= 300
        whole = lm.tokenizer.decode(text.ids)
        assert all(whole.count(sentence) == 1 for sentence in told)
        first, second = (whole.index(told[i]) for i in (text.first, 1 - text.first))
        if text.variant == "moved 0":
            assert f"{told[0]}</book>" in whole
        else:
            assert first < second
        assert text.variant != "distractors" or all(other in whole for other in text.pair.others)
    orders = [text.first for text in prompts(lm, contradictions(6, 1), 300, ("two",))]
    assert orders == [0, 0, 0, 1, 1, 1]


def test_what_an_answer_follows(lm):
    text, = prompts(lm, contradictions(1, 1), 300, ("two",))
    a, b = text.pair.values
    for said, which in ((f"In {a}.", "0"), (f"it is {b.upper()}", "1"), (f"{a} or {b}", "both"),
                        ("I do not know.", "neither")):
        assert text.follows(said) == which


PAIRS = 8


def answers(policy, target, follows, *, count=4, variant="two", score="copy"):
    """One answer about each pair."""
    return pd.DataFrame({
        "score": "" if policy == PLAIN else score, "policy": policy, "count": count,
        "strength": 5.0, "draw": 0, "pair": range(PAIRS), "kind": "city", "variant": variant,
        "first": 0, "target": target, "follows": follows, "surprise": 0.5, "response": ""})


@pytest.fixture
def table():
    """Plain answers follow sentence 1, but for two; top heads follow where they are pointed, but
    for one; others change nothing."""
    plain = ["1"] * 6 + ["neither", "both"]
    return judged(pd.concat([
        answers(PLAIN, -1, plain, count=0), answers(TOP, 0, ["0"] * 8),
        answers(TOP, 1, ["1"] * 7 + ["0"]), answers(MATCHED, 0, plain),
        answers(MATCHED, 1, plain)]))


def test_what_answers_hold(table):
    plain = condition(table, PLAIN)
    assert len(plain) == 16 and plain["held"].value_counts().to_dict() == {
        POINTED: 6, OTHER: 6, NEITHER: 2, BOTH: 2}
    assert by_pair(condition(table, TOP)).tolist() == [1.0] * 7 + [0.5]
    shown = rates(table).set_index("policy")
    assert shown.loc[TOP, POINTED] == 15 / 16 and shown.loc[TOP, OTHER] == 1 / 16
    assert shown.loc[MATCHED, [POINTED, OTHER, BOTH, NEITHER]].tolist() == [
        3 / 8, 3 / 8, 1 / 8, 1 / 8]
    assert (shown["low"] <= shown[POINTED]).all() and (shown[POINTED] <= shown["high"]).all()


def test_a_sentence_alone_is_pointed_at_once():
    table = judged(pd.concat([answers(PLAIN, -1, "0", variant="alone"),
                              answers(TOP, 0, "0", variant="alone")]))
    assert len(table) == 2 * PAIRS and {*table["target"]} == {0}


def test_the_rule_of_the_plan(table):
    """Differences of the pairs: 6 times 1/2, then 1, then 1/2."""
    found = more(condition(table, TOP), condition(table, MATCHED))
    assert found.value == pytest.approx((6 * 0.5 + 1 + 0.5) / 8) and found.p == 2 / 2**PAIRS
    both = primary({"a": table, "b": table})
    assert both["p_holm"].tolist() == pytest.approx([4 / 2**PAIRS] * 2)
    assert both["top"].tolist() == pytest.approx([15 / 16] * 2) and both["plain"][0] == 6 / 16
    assert primary({}).empty


def test_main_conditions_have_most_heads_and_the_largest_bias():
    table = pd.concat([answers(TOP, 0, "0", count=n).assign(strength=float(s))
                       for n in (2, 9) for s in (2, 5)])
    assert {*condition(table, TOP)["count"]} == {9}
    assert {*condition(table, TOP)["strength"]} == {5.0}
    assert {*condition(table, TOP, count=2, strength=2.0)["count"]} == {2}


def test_texts_that_the_plain_model_fails(table, monkeypatch):
    kept = results.Stored({"a": table}, {})
    monkeypatch.setattr(results, "stored", lambda part="contradictions": kept)
    assert np.unique(failed("a")["pair"]).tolist() == [6]
    shown = results.recovered_table()
    assert shown.loc[0, "heads that copy"] == 100 and shown.loc[0, "difference"] == "too few"


def test_two_ways_to_choose_heads_are_compared_on_the_same_pairs(table, monkeypatch):
    """By attention all answers about pairs 4 to 7 follow; of those by copy score, 3 1/2 of 4 do."""
    few = pd.concat([answers(TOP, i, [str(i)] * 8, score="attention") for i in (0, 1)])
    parts = {"conditions": few[few["pair"] >= 4], "contradictions": table}
    monkeypatch.setattr(results, "stored", lambda part: results.Stored(
        {"a": judged(parts[part]) if part == "conditions" else parts[part]},
        {"a": SimpleNamespace(name=part)}))
    found = results.by_attention("a")
    assert found.found.value == pytest.approx(100 * 0.5 / 4) and found.clusters == 4
    assert found.p == 1
    parts["conditions"] = parts["conditions"].assign(score="anchor")
    with pytest.raises(NotStored, match="the plan has no such condition"):
        results.by_attention("a")
