"""Share-Attention against weights that are overwritten head by head."""

import copy
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from rmutils.attention import sharing_plans
from rmutils.attention.share_attention import Shared, Workspace, share_attention, sharing_heads
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
from rmutils.models.engine.generation import generate
from tests.attention.by_hand import expects, heads_by_hand
from tests.conftest import two_families

PROMPT = torch.arange(7, 47)[None]
SHARING = {0: {0: [], 1: [], 2: [], 3: []}, 1: {0: [3], 1: [2]}, 2: {2: [0, 1, 3]},
           3: {1: [0, 2, 3]}}


def logits(lm, ids=PROMPT, **kwargs):
    with torch.inference_mode():
        return lm.model(ids, **kwargs).logits


def overwritten(lm, sharing, ids=PROMPT):
    """Logits with all weights computed, those of sharing heads then replaced."""
    with heads_by_hand(lm, sharing=sharing):
        return logits(lm, ids)


@two_families
def test_weights_are_those_of_the_essential_head(lm):
    plain = logits(lm)
    with sharing_heads(lm.model, SHARING):
        found, short = logits(lm), logits(lm, PROMPT[:, :2])
    torch.testing.assert_close(found, overwritten(lm, SHARING), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(short, overwritten(lm, SHARING, PROMPT[:, :2]), rtol=1e-4, atol=1e-4)
    assert (found - plain).abs().max() > 0.01
    torch.testing.assert_close(logits(lm), plain, rtol=0, atol=0)  # restored


def test_other_numbers_than_float32(llama):
    llama.model.double()
    with sharing_heads(llama.model, SHARING):
        found = logits(llama)
    torch.testing.assert_close(found, overwritten(llama, SHARING), rtol=1e-3, atol=1e-3)


def test_weights_of_few_bits_are_computed_in_float32():
    query, key, value = torch.randn(3, 1, 4, 9, 8, generator=torch.Generator().manual_seed(0),
                                    ).bfloat16()
    own = Shared(torch.arange(4), torch.arange(4), Workspace())
    found, _ = share_attention(None, query, key, value, None, scaling=0.5, given=own)
    products = (query @ key.transpose(2, 3) * 0.5).masked_fill(
        ~torch.ones(9, 9, dtype=torch.bool).tril(), -torch.inf)
    weights = products.float().softmax(-1).bfloat16()
    assert torch.equal(found, (weights @ value).transpose(1, 2))


@two_families
def test_cached_decoding_is_the_full_pass(lm):
    prompts = [PROMPT[0].tolist(), PROMPT[0, :25].tolist()]
    with sharing_heads(lm.model, SHARING):
        said = generate(lm, prompts, max_new_tokens=5)
        assert all(expects(lm, *one) for one in zip(prompts, said, strict=True))


def test_equation_9_by_hand():
    maps = torch.tensor([[[1.0, 0], [0.5, 0.5]], [[1.0, 0], [0.1, 0.9]], [[0.0, 1], [0.5, 0.5]]])
    # squared differences: 0.16 + 0.16; 1 + 1; 1 + 1 + 0.16 + 0.16; over two tokens
    want = np.sqrt(np.array([[0, 0.32, 2], [0.32, 0, 2.32], [2, 2.32, 0]]) / 2)
    np.testing.assert_allclose(sharing_plans.distances(maps), want, rtol=1e-6)
    assert sharing_plans.clusters(want, 0.3) == {0: [], 1: [], 2: []}
    assert sharing_plans.clusters(want, 0.5) == {0: [1], 2: []}
    assert sharing_plans.clusters(want, 2) == {0: [1, 2]}  # head 0 is nearest to both
    unequal = want + np.tril(np.full((3, 3), 1e-6), -1)  # by the last bits of a computation
    assert sharing_plans.clusters(unequal, 0.5) == {0: [1], 2: []}
    many = torch.rand(40, 5, 5)
    many[31] = many[3]
    assert sharing_plans.distances(many)[3, 31] == 0  # not by products, which leave a rest
    # 1 and 2 lie further apart than 1.05, though each is near enough to 0
    assert sharing_plans.clusters(want, 1.05) == {0: [1], 2: []}


def test_file(tmp_path, llama):
    (tmp_path / "heads.json").write_text(sharing_plans.sharing_json(SHARING))
    assert sharing_plans.retention(SHARING) == 8 / 16
    assert sharing_plans.load_sharing(tmp_path / "heads.json") == SHARING
    assert len((tmp_path / "heads.json").read_text().splitlines()) == len(SHARING)
    for wrong in ({4: {0: [1, 2, 3]}}, {-1: {0: [1, 2, 3]}}, {0: {0: [1, 2]}}):
        with pytest.raises(UserError, match="which has 4 layers of 4 heads"), \
                sharing_heads(llama.model, wrong):
            pass


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
