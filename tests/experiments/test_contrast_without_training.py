"""The comparisons of contrast and training, counted by hand, and the plan's rule."""

import itertools

import pandas as pd
import pytest
import torch

from rmutils.book.chapters.contrast_without_training import (
    BASE,
    DECORE,
    RETMASK,
    compare_needles,
    draw_next_words,
    next_words,
    shares,
    verdict,
)
from rmutils.core.experiment import load_plan
from rmutils.heads import mask_heads

PLAN = load_plan("contrast_without_training")


def cases(right):
    """`right(model, arm, seed, question, place)` says what is found."""
    seeds = {BASE: [0], DECORE: [0], RETMASK: [5, 6, 7]}
    return pd.DataFrame([
        {"model": model, "arm": arm, "seed": seed, "question": question, "place": place,
         "correct": float(right(model, arm, seed, question, place))}
        for model, (arm, of_arm), question, place in itertools.product(
            PLAN.content["models"], seeds.items(), range(20), (0.0, 1.0)) for seed in of_arm])


def test_differences_are_means_over_cases_and_trainings():
    """Each training finds every needle at the end, one of three also those at the start; DeCoRe
    finds a quarter of them; p by the binomial formula: 20 needles of one sign."""
    table = cases(lambda model, arm, seed, question, place: {
        RETMASK: place == 1 or seed == 5, DECORE: question < 5, BASE: False}[arm])
    found = compare_needles(table, [(RETMASK, BASE), (DECORE, BASE)]).set_index(["model", "arm"])
    trained = found.loc["tiny-olmo3", RETMASK]
    assert trained["effect"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert trained["low"] < trained["effect"] < trained["high"]
    assert trained["p"] < 1e-3 and trained["p_holm"] >= trained["p"]
    assert found.loc["tiny-qwen3", DECORE]["effect"] == 0.25
    assert found.loc["tiny-qwen3", DECORE]["p"] == pytest.approx(2 / 2**5, abs=0.02)
    assert shares(table).set_index(["model", "arm"]).loc[
        ("tiny-olmo3", DECORE), "value"] == 0.25


@pytest.mark.parametrize(("right", "said"), [
    (lambda model, arm, *_: arm == RETMASK, "more"),
    (lambda model, arm, *_: arm == DECORE, "less"),
    (lambda model, arm, seed, question, place: question % 2, "excluded"),
    (lambda model, arm, *_: arm == RETMASK and model == "tiny-olmo3", "undecided")])
def test_the_rule_of_the_plan(right, said):
    assert verdict(compare_needles(cases(right), [(RETMASK, DECORE)]), PLAN) == said


def test_next_words_of_the_model_its_masked_copy_and_their_contrast(llama):
    text, heads = "The river is wide", [(1, 0), (2, 3)]
    ids = torch.tensor([llama.tokenizer(text).input_ids])
    with torch.inference_mode():
        whole = llama.model(ids).logits[0, -1].log_softmax(-1)
        with mask_heads(llama, heads):
            masked = llama.model(ids).logits[0, -1].log_softmax(-1)
    unsure = -(whole.exp() * whole).sum()
    contrasted = ((1 + unsure) * whole - unsure * masked).softmax(-1)
    found = next_words(llama, heads, text, most=1, least=0)
    likeliest = [one.argmax() for one in (whole, contrasted, masked)]
    words = dict.fromkeys(llama.tokenizer.decode(i).strip() or "(space)" for i in likeliest)
    assert [*found["word"]] == [*words]
    assert found.iloc[0, 1:].tolist() == pytest.approx(
        [float(of[likeliest[0]]) for of in (whole.exp(), masked.exp(), contrasted)], abs=1e-4)
    assert next_words(llama, heads, text, least=1).empty
    bars = draw_next_words({text: found}).axes[0].patches
    assert len(bars) == 3 * len(found)
