"""Measurements under variants against other ways to the same numbers; curves and costs by hand."""

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils.attention.ms_poe import MsPoe
from rmutils.attention.select_attention import Select
from rmutils.attention.sharing_plans import calibration_prompts
from rmutils.book.chapters.scale.work import MACHINES, SHAPES, roofline, step
from rmutils.book.experiments.sweep_questions import KNOWN_TOKENS
from rmutils.book.experiments.under_variants import (
    TextsConfig,
    VariantConfig,
    changes,
    levels,
    measure,
    perplexities,
)
from rmutils.book.experiments.variant_questions import DocumentsConfig, document_questions
from rmutils.core.errors import UserError
from rmutils.evaluation.answers import find_needles
from rmutils.heads import DetectConfig, mask_heads
from rmutils.models import load_model
from rmutils.models.language_model import passages

GRID = DetectConfig(lengths=(160, 256), depths=(1.0,), needles=2, max_new_tokens=24)
SMALL = VariantConfig(
    needles=GRID, documents=DocumentsConfig(lengths=(256,), places=(0, 0.5, 1), questions=3),
    texts=TextsConfig(count=2, tokens=48))
TINY = VariantConfig(
    needles=None, texts=TextsConfig(count=2, tokens=40),
    documents=DocumentsConfig(lengths=(700,), places=(0, 1), questions=2))


@pytest.fixture(scope="module")
def teaching():
    return load_model("tiny-llama")


@pytest.fixture(scope="module")
def plain(teaching):
    return measure(teaching, SMALL)


def test_needles_are_those_of_the_grid(teaching, plain):
    expected = find_needles(teaching, GRID).rename(columns={
        "needle": "question", "depth": "place", "success": "correct"})
    found = plain["needles"]
    pd.testing.assert_frame_equal(found[["question", "length", "place", "response", "correct"]],
                                  expected.astype({"correct": float}), check_like=True)
    assert ((found["recall"] > 0.5) == (found["correct"] == 1)).all()
    assert found["correct"].any() and (found["kept"] == 1).all()


def test_documents_are_right_if_they_hold_the_value(teaching, plain):
    found = plain["documents"]
    asked = document_questions(teaching, SMALL.documents).questions
    assert found[["question", "place"]].to_numpy().tolist() == [
        [i, place] for i in range(3) for place in (0, 0.5, 1)]
    assert found.query("place == 0")["document"].eq(1).all()
    last = found.query("place == 1")
    assert last["document"].eq(last["documents"]).all()
    assert (found.groupby("question")["documents"].nunique() == 1).all()
    text = [teaching.tokenizer.decode(question.prompt) for question in asked]
    assert all("Document 3 (" in t and len(q.prompt) <= 256 for t, q in zip(text, asked,
                                                                           strict=True))
    assert found["correct"].isin([0, 1]).all() and found["correct"].any()


def test_more_questions_begin_with_the_same(teaching):
    few, many = (document_questions(teaching, SMALL.documents.model_copy(
        update={"questions": n})).questions for n in (2, 4))
    assert [q.prompt for q in few] == [q.prompt for q in many[:6]]
    other = document_questions(teaching, SMALL.documents.model_copy(update={"seed": 1}))
    assert {*map(tuple, (q.prompt for q in other.questions))}.isdisjoint(
        tuple(q.prompt) for q in few)


def test_nats_are_transformers_own_loss(teaching, plain):
    texts, turn = passages(teaching, 2, 48)
    for row, text in zip(plain["texts"].itertuples(), texts, strict=True):
        ids = torch.tensor([text])
        labels = ids.clone()
        labels[:, : turn + KNOWN_TOKENS] = -100
        with torch.inference_mode():
            assert row.nats == pytest.approx(teaching.model(ids, labels=labels).loss.item(),
                                             abs=1e-4)


def test_variants_and_masks_act_on_all_that_is_measured(teaching, plain):
    heads = tuple((layer, head) for layer in range(4) for head in range(16))
    masked = measure(teaching, SMALL.model_copy(update={"masked": heads}))
    with mask_heads(teaching, heads):
        inside = measure(teaching, SMALL)
    wide = measure(teaching, SMALL.model_copy(update={"variant": MsPoe(s_max=8, first_layer=0)}))
    for name, frame in plain.items():
        pd.testing.assert_frame_equal(masked[name], inside[name])
        value = "nats" if name == "texts" else "response"
        assert not frame[value].equals(masked[name][value])
        assert not frame[value].equals(wide[name][value])
    assert masked["documents"]["correct"].sum() == 0


def test_sharing_is_calibrated_on_other_questions(teaching):
    prompts = calibration_prompts(teaching, 2, 256)
    asked = {tuple(q.prompt) for q in document_questions(teaching, SMALL.documents).questions}
    assert len(prompts) == 2 and asked.isdisjoint(map(tuple, prompts))


@pytest.mark.parametrize(("changed", "message"), [
    ({"documents": DocumentsConfig(lengths=(9999,))}, "length 9999: the window"),
    ({"documents": DocumentsConfig(lengths=(40,))}, "take at least"),
    ({"variant": Select(filter_layer=9)}, "no layer follows")])
def test_refused(teaching, changed, message):
    with pytest.raises(UserError, match=message):
        measure(teaching, SMALL.model_copy(update=changed))


def test_a_change_of_shares_is_no_larger_than_one():
    """Three needles, two of which are lost: unbounded, the interval began below -1."""
    table = pd.DataFrame([(name, q, 0.5, float(name == "plain" or q == 0)) for name in
                          ("plain", "x") for q in range(3)],
                         columns=["variant", "question", "place", "correct"])
    row = changes(table, "correct").iloc[0]
    assert row["effect"] == pytest.approx(-2 / 3) and -1 <= row["low"] < row["effect"]
    assert changes(table.assign(nats=table["correct"]), "nats").iloc[0]["low"] < -1


def test_bounds_are_those_of_the_quantity():
    """Not those of its largest value: seconds below 1 are no shares, percent are refused."""
    table = pd.DataFrame({"variant": "x", "question": range(3), "correct": [1.0, 1, 0],
                          "step_seconds": [0.9, 0.9, 0.1]})
    assert levels(table, "step_seconds")["high"].item() > 1 == levels(table, "correct")[
        "high"].item()
    with pytest.raises(ValueError, match="out of bounds"):
        levels(table.assign(correct=100 * table["correct"]), "correct")


RIGHT = {  # variant -> a row per question: right at places 0, 0.5, 1
    "plain": [(1, 0, 1), (1, 0, 1), (1, 0, 0), (1, 1, 1)],
    "flat": [(1, 1, 1), (1, 1, 1), (1, 1, 0), (1, 1, 1)]}


@pytest.fixture
def answers():
    return pd.DataFrame([
        {"variant": name, "length": 256, "question": i, "place": place, "correct": float(right)}
        for name, rows in RIGHT.items() for i, row in enumerate(rows)
        for place, right in zip((0, 0.5, 1), row, strict=True)])


def test_levels_by_place(answers):
    found = levels(answers, "correct", ["place"]).set_index(["variant", "place"])
    assert found.loc["plain", "value"].tolist() == [1, 0.25, 0.75]
    assert found.loc["plain", "samples"].tolist() == [4, 4, 4]
    assert found.loc[("plain", 0), ["low", "high"]].tolist() == [1, 1]  # all alike
    low, high = found.loc[("plain", 0.5), ["low", "high"]]
    assert low == 0 and 0.5 <= high <= 1
    whole = levels(answers, "correct").set_index("variant")["value"]
    assert whole.tolist() == pytest.approx([8 / 12, 11 / 12])


def test_changes_are_paired(answers):
    """Three of four questions gain one of three places."""
    row, = changes(answers, "correct").itertuples()
    assert row.variant == "flat" and row.effect == pytest.approx(3 / 12)
    assert (row.samples, row.clusters) == (12, 4) and np.isnan(row.p)  # p is 1/8 at least
    shuffled = changes(answers.sample(frac=1, random_state=0), "correct")
    assert shuffled["effect"].item() == pytest.approx(row.effect)


def test_perplexities_by_hand():
    texts = pd.DataFrame({"variant": ["plain"] * 3 + ["odd"] * 3, "question": [0, 1, 2] * 2,
                          "nats": [1.0, 2, 3, 1.1, 2.1, 3.1]})
    found = perplexities(texts).set_index("variant")
    assert found["value"].tolist() == pytest.approx([np.exp(2), np.exp(2.1)])
    assert found.loc["plain", ["change", "change_low", "change_high"]].tolist() == [0, 0, 0]
    # every text rises by as much, so nothing is left to chance
    assert found.loc["odd", ["change", "change_low", "change_high"]].tolist() == pytest.approx(
        [np.expm1(0.1)] * 3)


def test_a_plain_step_reads_all_weights_and_keys():
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
    numbers = 32 * layer + 4096 * 128256 + 32 * 2 * 8 * 128 * 10_000
    found = step(SHAPES["llama-3.1-8b-instruct"], MACHINES["h100"], 10_000)
    assert found["memory"] == pytest.approx(2 * numbers / 3.35e12)
    assert found["bound"] == found["memory"] > found["arithmetic"]
    assert found["held"] == 131_072 * 10_000  # 128 KiB a token


def test_selected_tokens_pass_through_later_layers_again():
    table = roofline([10_000], [0.01, 0.1, 1]).set_index("kept")
    one = table.loc[0.1]
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336
    assert one["arithmetic"] == pytest.approx(2 * 16 * layer * 1000 / 989e12, rel=0.1)
    assert table["times"].is_monotonic_increasing and table.loc[0.01, "times"] < 1
    assert table.loc[1, "times"] > 10
    assert one["held_share"] == pytest.approx(18 / 32)  # half of the layers, and hidden states
