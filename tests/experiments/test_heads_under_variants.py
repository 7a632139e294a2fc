"""Heads under variants: the stage against detection and masking done by hand, and the curves
against cases that can be worked out."""


import numpy as np
import pandas as pd
import pytest
from scipy.stats import mannwhitneyu, spearmanr

from rmutils.attention.ms_poe import MsPoe
from rmutils.attention.share_attention import Retain
from rmutils.attention.sharing_plans import retention
from rmutils.attention.variants import Plain
from rmutils.book.chapters.retrieval_heads_under_change import experiment as module
from rmutils.book.chapters.retrieval_heads_under_change import findings as head_ranking
from rmutils.book.chapters.retrieval_heads_under_change.experiment import (
    HeadsConfig,
    heads,
    heads_stored,
    set_apart,
)
from rmutils.book.chapters.retrieval_heads_under_change.findings import (
    agreements,
    masking,
    moves,
    retrieval_of,
    scores_under,
    training,
)
from rmutils.core.errors import NotStored, UserError
from rmutils.evaluation.answers import find_needles
from rmutils.heads import DetectConfig, HeadScores, detect, mask_heads
from rmutils.models import load_model

GRID = DetectConfig(lengths=(160,), depths=(0.5,), needles=3, max_new_tokens=20)
CONFIG = HeadsConfig(variants={"plain": Plain(), "wide": MsPoe(s_min=1, s_max=1.5, first_layer=0)},
                     needles=GRID, tau=0.5, draws=1, trainings=("train-0",))


@pytest.fixture(scope="module")
def lm():
    return load_model("tiny-qwen3")


@pytest.fixture(scope="module")
def made(lm, tmp_path_factory):
    journal = tmp_path_factory.mktemp("heads") / "journal"
    scores = detect(lm, GRID)
    return scores, journal, heads(lm, scores, CONFIG, journal=journal, load=lambda name: lm)


def test_tables_are_those_of_detection_and_masking(lm, made):
    scores, _, tables = made
    retrieval = scores.select(tau=0.5)
    assert retrieval_of(tables) == retrieval
    under_plain = scores_under(tables, "plain")
    np.testing.assert_array_equal(under_plain.runs, scores.runs)
    assert under_plain.cases["response"].equals(scores.cases["response"])
    found = tables["needles"].query("variant == 'plain'").set_index("subject")["correct"]
    assert found["whole"].tolist() == scores.cases["success"].astype(float).tolist()
    others = scores.select_random(len(retrieval), exclude=retrieval, seed=42)
    for name, chosen in (("retrieval", retrieval), ("non-retrieval", others)):
        with mask_heads(lm, chosen):
            by_hand = find_needles(lm, GRID)["success"].astype(float)
        assert found[name].tolist() == by_hand.tolist()
    # what was loaded as a training is the model itself
    for _, part in tables["needles"].groupby("variant"):
        both = part.set_index("subject")["correct"]
        assert both["trained"].tolist() == both["whole"].tolist()
    wide = tables["scores"].query("variant == 'wide'")["score"].to_numpy()
    assert not np.array_equal(wide, tables["scores"].query("variant == 'plain'")["score"])


def test_what_is_done_is_not_done_again(lm, made, monkeypatch):
    scores, journal, tables = made
    monkeypatch.setattr("rmutils.attention.variants.generate",
                        lambda lm, prompts, **kwargs: [pytest.fail("asked again")
                                                       for _ in prompts])
    monkeypatch.setattr("rmutils.heads.answering.decode", lambda *a, **k: pytest.fail("again"))
    monkeypatch.setattr(module, "traits", lambda *a: tables["traits"])
    again = heads(lm, scores, CONFIG, journal=journal, load=lambda name: lm)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(again[name], table)


def test_refused(lm, made, cache):
    with pytest.raises(UserError, match="no head of tiny-qwen3 reaches tau=2"):
        heads(lm, made[0], CONFIG.model_copy(update={"tau": 2.0}))
    with pytest.raises(NotStored, match="rmutils variants heads tiny-qwen3 --variants "):
        heads_stored("tiny-qwen3", CONFIG, compute="never")


def test_as_many_heads_share_as_are_wanted(lm):
    shares = [retention(Retain(kept=kept, prompts=1, tokens=200).plan(lm))
              for kept in (0.9, 0.5)]
    assert 0.5 < shares[0] <= 0.9 and shares[1] <= 0.5


def tables_of(runs, success=None):
    """Tables of cases with these scores, {variant: (cases, layers, heads)}; a needle each."""
    cases, scores = [], []
    for name, each in runs.items():
        won = np.ones(len(each), bool) if success is None else success[name]
        cases += [{"variant": name, "case": str(i), "needle": i, "success": won[i]}
                  for i in range(len(each))]
        scores += [{"variant": name, "case": str(i), "layer": layer, "head": head,
                    "score": each[i, layer, head]} for i, layer, head in np.ndindex(each.shape)]
    return {"cases": pd.DataFrame(cases), "scores": pd.DataFrame(scores),
            "retrieval": pd.DataFrame([(0, 0), (1, 1)], columns=["layer", "head"])}


def answered(tables, question):
    found = head_ranking.verdicts({"model": tables}).set_index("question").loc[[question]]
    return dict(zip(found["variant"], found["verdict"], strict=True))


def kept(tables):
    """Verdicts on the ranking alone, with three needles that were all found."""
    needles = pd.concat([pd.DataFrame(needles_of(name, whole=[[1] * 3], retrieval=[[0] * 3],
                                                 non_retrieval=[[1] * 3] * 3))
                         for name in tables["cases"]["variant"].unique()])
    return answered(tables | {"needles": needles}, head_ranking.RANKING)


def test_agreement_on_needles_found_both_times():
    rng = np.random.default_rng(0)
    plain = rng.random((6, 2, 4)) / 10
    plain[:, 0, 0], plain[:, 1, 1] = 0.9, 0.8
    other = rng.random((6, 2, 4)) / 10
    other[:, 0, 0], other[:, 0, 3] = 0.7, 0.6
    other[5] = 9.0  # not found, so it does not count
    won = {"plain": np.ones(6, bool), "other": np.arange(6) < 5, "lost": np.zeros(6, bool)}
    tables = tables_of({"plain": plain, "other": other, "lost": plain}, won)
    found = agreements(tables).set_index(["variant", "quantity"])
    rho = spearmanr(plain[:5].mean(0).ravel(), other[:5].mean(0).ravel()).statistic
    assert found.loc[("other", "rank correlation"), "value"] == pytest.approx(rho)
    assert found.loc[("other", "overlap")].tolist() == [0.5, 0.5, 0.5]
    assert [*found.index.get_level_values("variant").unique()] == ["other"]
    moved = moves(tables).set_index("quantity")
    # 0.9 falls to 0.7, and 0.8 to what the head has in the other's cases
    by_hand = (-0.2 + other[:5, 1, 1].mean() - 0.8) / 2
    assert moved.loc["retrieval heads", "value"] == pytest.approx(by_hand)
    assert moved.loc["retrieval heads", "low"] <= by_hand <= moved.loc["retrieval heads", "high"]
    assert isinstance(scores_under(tables, "other"), HeadScores)
    assert kept(tables) == {"other": "yes", "lost": "no room"}
    swapped = {"plain": plain, "other": plain[:, ::-1, ::-1] - plain}
    assert kept(tables_of(swapped)) == {"other": "no"}
    with pytest.raises(UserError, match="no successful run"):
        scores_under(tables, "lost").ranking()


def test_one_needle_or_none_found_both_times():
    """There is nothing to draw from one needle, and nothing to compare without any."""
    plain = np.random.default_rng(0).random((6, 2, 4))
    won = {"plain": np.ones(6, bool), "other": np.arange(6) < 1}
    tables = tables_of({"plain": plain, "other": plain}, won)
    for found in (agreements(tables), moves(tables)):
        assert found["value"].notna().all() and found[["low", "high"]].isna().all(axis=None)
    assert kept(tables) == {"other": "open"}
    lost = tables_of({"plain": plain, "other": plain}, {"plain": np.zeros(6, bool),
                                                        "other": np.ones(6, bool)})
    assert agreements(lost).empty and moves(lost).empty
    assert kept(lost) == {"other": "no room"}


def needles_of(variant, **found):
    """{subject: [of each draw: right answers to four needles]}"""
    return [{"variant": variant, "subject": subject.replace("_", "-"), "draw": draw, "length": 1,
             "question": i, "place": 0.5, "correct": right}
            for subject, draws in found.items() for draw, answers in enumerate(draws)
            for i, right in enumerate(answers)]


def test_losses_and_gains_by_hand():
    table = pd.DataFrame(
        needles_of("plain", whole=[[1, 1, 1, 1]], retrieval=[[0, 0, 0, 1]],
                   non_retrieval=[[1, 1, 1, 1], [1, 1, 0, 1]], trained=[[1, 1, 1, 1]] * 2)
        + needles_of("changed", whole=[[1, 1, 0, 0]], retrieval=[[0, 1, 0, 0]],
                     non_retrieval=[[1, 1, 0, 0], [1, 1, 0, 0]],
                     trained=[[1, 1, 1, 0], [1, 1, 0, 0]])).sample(frac=1, random_state=0)
    lost = masking(table).set_index(["variant", "quantity"])["value"]
    assert lost["plain"].to_dict() == pytest.approx({
        "found": 1, "retrieval masked": 0.75, "others masked": 1 / 8, "excess": 5 / 8,
        "excess, change": 0})
    assert lost["changed"].to_dict() == pytest.approx({
        "found": 0.5, "retrieval masked": 0.25, "others masked": 0, "excess": 0.25,
        "excess, change": -3 / 8})
    gained = training(table).set_index(["variant", "quantity"])
    assert gained.loc["changed", "value"].to_dict() == pytest.approx({
        "trained": 5 / 8, "gain": 1 / 8, "gain, change": 1 / 8})
    assert gained.loc[("plain", "gain")].tolist() == [0, 0, 0]
    assert training(table.query("subject != 'trained'")).empty
    low, high = gained.loc[("changed", "gain"), ["low", "high"]]
    assert low < 0 < 1 / 8 < high


def test_verdicts_by_hand():
    """Twelve needles: certain losses, losses with few needles to lose, certain gains and losses."""
    few, none, all_ = [[1] + [0] * 11], [[0] * 12], [[1] * 12]
    some = [[1, 0] * 6]
    table = pd.DataFrame(
        needles_of("plain", whole=all_, retrieval=none, non_retrieval=all_ * 3, trained=all_ * 2)
        + needles_of("hard", whole=few, retrieval=none, non_retrieval=few * 3, trained=all_ * 2)
        + needles_of("others", whole=all_, retrieval=all_, non_retrieval=none * 3,
                     trained=none * 2)
        + needles_of("half", whole=some, retrieval=none, non_retrieval=some * 3,
                     trained=[[0, 1] + [1, 0] * 5] * 2))
    rng = np.random.default_rng(0).random((3, 2, 4))
    tables = tables_of({"plain": rng}, {"plain": np.ones(3, bool)}) | {"needles": table}
    assert answered(tables, head_ranking.MASKING) == {
        "plain": "yes", "hard": "no room", "others": "no", "half": "yes"}
    assert answered(tables, head_ranking.TRAINING) == {
        "plain": "no room", "hard": "yes", "others": "no", "half": "open"}
    rare = table.query("subject != 'non-retrieval' or draw < 2")
    assert answered(tables | {"needles": rare}, head_ranking.MASKING)["plain"] == "open"


def test_heads_set_apart_within_their_layer():
    """All that tells the two apart lies between layers, or within them."""
    layers = np.repeat([0, 1], 8)
    of_head = np.tile(np.arange(8), 2)
    retrieval = [(0, 7), (0, 6), (1, 7), (1, 6)]
    marked = of_head >= 6

    def trait(name, values):
        return pd.DataFrame({"trait": name, "question": np.repeat([0, 1], 16),
                             "layer": np.tile(layers, 2), "head": np.tile(of_head, 2),
                             "value": np.tile(values, 2).astype(float)})

    flat = trait("between", 100 * layers)
    steep = trait("within", of_head - 100 * layers)
    mixed = np.random.default_rng(1).random(16)
    found = set_apart(pd.concat([flat, steep, trait("mixed", mixed)]), retrieval,
                      resamples=500).set_index("trait")
    assert found.loc["between", ["value", "p"]].tolist() == [0.5, 1]
    # two of eight heads in each of two layers: 28 x 28 choices, of which two are as extreme
    assert found.loc["within", "value"] == 1 and found.loc["within", "p"] < 0.02
    by_layer = [mannwhitneyu(*(mixed[part & (layers == i)] for part in (marked, ~marked))).statistic
                for i in (0, 1)]
    assert found.loc["mixed", "value"] == pytest.approx(sum(by_layer) / 24)  # pairs
    assert (found["low"] == found["high"]).all()  # both questions are alike
    # Asked at two places, a question counts once.
    places = set_apart(pd.concat([trait("mixed", mixed), trait("mixed", mixed[::-1])]), retrieval)
    assert (places["low"] == places["high"]).all()
