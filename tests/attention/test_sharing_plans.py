"""Plans of sharing by counting."""

import copy
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from rmutils.attention import sharing_plans
from rmutils.attention.sharing_plans import (
    ANSWER_TOKENS,
    calibration_prompts,
    check_window,
    document_prompt,
    document_questions_at,
    even_sharing,
    in_layers,
    mean_distances,
    most_alike,
    retention,
    retention_by_layer,
    sharing_at,
    shuffled,
    threshold_for,
)
from rmutils.core.errors import UserError
from rmutils.corpora.world.samples import DRAWS, TooShort
from rmutils.evaluation.helmet.suite import DATASETS
from rmutils.models import load_model

APART = np.array([  # heads on a line at 0, 0.1, 0.3 and 1; at 0, 0.2, 0.5 and 0.9
    [[abs(a - b) for a in line] for b in line] for line in ([0, 0.1, 0.3, 1], [0, 0.2, 0.5, 0.9])])


def test_prompts_for_calibration():
    """They fit with an answer, and nobody is asked them later."""
    teaching = load_model("tiny-llama")
    prompts = calibration_prompts(teaching, 3, 300)
    own, later = ([document_prompt(teaching, question.prompt) for (question,) in itertools.islice(
        document_questions_at(teaching, 300, (0.5,), seed), 3)] for seed in (-1, 0))
    assert prompts == own and len({*map(tuple, own + later)}) == 6
    assert 200 < max(map(len, own + later)) <= 300 - ANSWER_TOKENS
    assert DATASETS["document_qa"].max_new_tokens == ANSWER_TOKENS
    bare = replace(teaching, tokenizer=copy.deepcopy(teaching.tokenizer))
    bare.tokenizer.chat_template = None
    assert bare.tokenizer.decode(document_prompt(bare, "Who?")).endswith("Who?\nAnswer:")
    check_window(teaching, teaching.window)
    with pytest.raises(UserError, match=f"the window of .* has {teaching.window} tokens"):
        calibration_prompts(teaching, 1, teaching.window + 1)
    with pytest.raises(UserError, match="does not fit into 60 tokens: take at least") as told:
        calibration_prompts(teaching, 1, 60)
    least = int(str(told.value).split("at least ")[1].rstrip("."))
    assert calibration_prompts(teaching, 1, least + 20)


def test_worlds_that_do_not_fit_are_left_out(llama, monkeypatch):
    """All but the last that may fail in a row, again and again; one more is told."""
    asked = []

    def question(world, *rest):
        asked.append(world)
        if len(asked) % often:
            raise TooShort("too short", 7, 9)
        return [len(asked)]

    monkeypatch.setattr(sharing_plans, "Chronicle", lambda name: name)
    monkeypatch.setattr(sharing_plans, "document_question_at", question)
    often = DRAWS
    found = document_questions_at(llama, 300, (0.5,), 8)
    assert [*itertools.islice(found, 3)] == [[DRAWS], [2 * DRAWS], [3 * DRAWS]]
    assert asked == [f"places 8 {i}" for i in range(3 * DRAWS)]
    asked, often = [], DRAWS + 1
    with pytest.raises(UserError, match="does not fit into 300 tokens"):
        next(document_questions_at(llama, 300, (0.5,), 8))
    assert len(asked) == DRAWS


def test_distances_are_means_over_prompts(lm):
    prompts = [list(range(7, 20)), list(range(30, 60))]
    one, other = (mean_distances(lm.model, [prompt]) for prompt in prompts)
    assert one.shape == (4, 4, 4) and np.abs(one - other).max() > 0.01
    with torch.device("meta"):  # where torch makes tensors is not where the model is
        np.testing.assert_allclose(mean_distances(lm.model, prompts), (one + other) / 2)


@pytest.mark.parametrize(("kept", "threshold", "heads"), [
    (1, 0, 8), (0.99, 0.1, 7), (7 / 8, 0.1, 7), (6 / 8, 0.2, 6), (0.7, 0.3, 5), (0.5, 0.4, 4),
    (0.25, 1, 2), (0.1, 1.5, 2)])
def test_lowest_threshold_that_leaves_so_many(kept, threshold, heads):
    """By complete linkage, heads join at 0.1, 0.3, 1 in the first layer; 0.2, 0.4, 0.9 in the
    second."""
    found = threshold_for(APART, kept)
    assert found == pytest.approx(threshold, abs=0.0011) and found >= threshold - 1e-9
    assert found == round(found, 3)  # in steps of a thousandth
    assert retention(sharing_at(APART, found)) == heads / 8


def test_some_layers_share_alone():
    """In the second layer heads join at 0.2, 0.4 and 0.9; the first one stays whole."""
    limit = threshold_for(APART, 6 / 8, layers=[1])
    assert limit == pytest.approx(0.4, abs=0.0011)
    assert retention_by_layer(sharing_at(APART, in_layers(limit, [1], 2))) == [1, 0.5]
    assert in_layers(0.3, None, 2) == [0.3, 0.3]


def test_layers_add_up():
    sharing = sharing_at(APART, 0.3)
    assert retention_by_layer(sharing) == [0.5, 0.75] and retention(sharing) == 0.625
    assert retention({}) == 1


def test_heads_that_are_most_alike():
    assert most_alike(APART[0], 0.05) == [0, 1] and most_alike(APART[0], 0.35) == [0, 1, 2]
    assert most_alike(APART[1][::-1, ::-1], 0.01) == [2, 3]
    assert most_alike(APART[1], 0.45) == [0, 1]  # before 2 and 3
    pairs = np.array([[abs(a - b) for a in (0, 0.2, 1, 1.1)] for b in (0, 0.2, 1, 1.1)])
    assert most_alike(pairs, 0.25) == [0, 1]  # although 2 and 3 are nearer to each other


def test_even_sharing_leaves_as_many_heads_in_each_layer():
    sharing = even_sharing(2, 5, 2)
    assert sharing == {0: {0: [2, 4], 1: [3]}, 1: {0: [2, 4], 1: [3]}}
    assert retention_by_layer(even_sharing(3, 16, 4)) == [0.25] * 3


def test_shuffled_keeps_sizes_and_every_head():
    sharing = {0: {0: [1, 2], 3: []}, 1: {0: [], 1: [], 2: [], 3: []}, 2: {1: [0, 2, 3]}}
    drawn = [shuffled(sharing, seed) for seed in range(40)]
    for one in drawn:
        for i, layer in one.items():
            assert sorted(h for head, others in layer.items() for h in (head, *others)) == [
                0, 1, 2, 3]
            assert Counter(map(len, layer.values())) == Counter(map(len, sharing[i].values()))
    assert shuffled(sharing, 3) == drawn[3]
    assert {head for one in drawn for head, others in one[0].items() if others} == {0, 1, 2, 3}
