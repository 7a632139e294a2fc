"""Select-Attention against a model cut in two behind the filter layer."""


import pytest
import torch
from transformers import DynamicCache

from rmutils.attention.select_attention import (
    Select,
    SelectedView,
    Selection,
    answer_selecting,
    selecting,
    top_p,
)
from rmutils.attention.sharing_plans import even_sharing
from rmutils.core.errors import UserError
from rmutils.models.engine.generation import generate
from tests.attention.by_hand import in_two
from tests.conftest import two_families

PROMPT = list(range(7, 47))


@two_families
def test_heads_of_later_layers_share_besides(lm):
    """Not those of the filter layer, though the plan has it."""
    heads, ids = lm.shape[1], [*PROMPT, 50]
    pairs = even_sharing(1, heads, heads // 2)[0]
    cache, plan = DynamicCache(), Select(filter_layer=1, p=0.9, sharing={1: pairs, 3: pairs})
    with torch.inference_mode(), selecting(lm.model, plan) as selection:
        for part in (PROMPT, [50]):
            found = lm.model(torch.tensor([part]), past_key_values=cache).logits[0, -1]
    want, chosen, _ = in_two(lm, ids, 0.9, {1: pairs})
    assert selection.chosen[-1].tolist() == chosen.tolist()
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-3)
    alone, _, _ = in_two(lm, ids, 0.9)
    assert (found - alone).abs().max() > 0.01


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_later_layers_see_the_chosen_tokens_only(lm, p):
    ids = list(PROMPT)
    cache = DynamicCache()
    with torch.inference_mode():
        with selecting(lm.model, Select(filter_layer=1, p=p)) as selection:
            steps = [lm.model(torch.tensor([ids]), past_key_values=cache).logits[0, -1]]
            for token in (50, 51, 52):
                ids.append(token)
                steps.append(lm.model(torch.tensor([[token]]), past_key_values=cache).logits[0, -1])
        torch.testing.assert_close(steps[0], lm.model(torch.tensor([PROMPT])).logits[0, -1],
                                   rtol=1e-3, atol=1e-3)
    want, chosen, _ = in_two(lm, ids, p)
    assert selection.chosen[-1].tolist() == chosen.tolist() and len(chosen) < len(ids)
    torch.testing.assert_close(steps[-1], want, rtol=1e-3, atol=1e-3)


@two_families
def test_selection_at_prefill(lm):
    config = Select(filter_layer=1, p=0.7, at_prefill=True)
    with torch.inference_mode(), selecting(lm.model, config) as selection:
        found = lm.model(torch.tensor([PROMPT]), past_key_values=DynamicCache()).logits[0, -1]
    want, chosen, _ = in_two(lm, PROMPT, 0.7)
    assert selection.config == config
    assert selection.chosen[0].tolist() == chosen.tolist()
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-3)


@two_families
def test_a_share_of_its_own_at_prefill(lm):
    """More of the prompt is chosen when it is read than while it is answered."""
    with torch.inference_mode(), selecting(
            lm.model, Select(filter_layer=1, p=0.4, at_prefill=0.9)) as selection:
        cache = DynamicCache()
        first = lm.model(torch.tensor([PROMPT]), past_key_values=cache).logits[0, -1]
        lm.model(torch.tensor([[50]]), past_key_values=cache)
    want, many, _ = in_two(lm, PROMPT, 0.9)
    _, few, _ = in_two(lm, [*PROMPT, 50], 0.4)
    assert [one.tolist() for one in selection.chosen] == [many.tolist(), few.tolist()]
    torch.testing.assert_close(first, want, rtol=1e-3, atol=1e-3)
    with pytest.raises(UserError, match="at_prefill: expected true or false or less than 1"):
        Select(at_prefill=1.5)


@two_families
@pytest.mark.parametrize("at_prefill", [True, False])
def test_all_tokens_are_the_plain_model(lm, at_prefill):
    config = Select(filter_layer=1, p=1, at_prefill=at_prefill)
    said, selection = answer_selecting(lm, PROMPT, config, max_new_tokens=6)
    assert said == generate(lm, [PROMPT], max_new_tokens=6)[0]
    assert selection.hidden.shape == (1, len(selection.scores), 32)
    assert generate(lm, [PROMPT], max_new_tokens=6)[0] == said  # restored


def test_kept_by_hand():
    """Of 10 tokens and the first of the answer 4 are chosen, of 12 then 6; the prompt is read by
    itself."""
    view = SelectedView(range(10), selection=Selection(Select(), hidden=torch.zeros(1, 12, 8)))
    assert view.hidden_bytes() == 12 * 8 * 4
    for size, share in ((10, float("nan")), (4, 4 / 11), (6, (4 / 11 + 6 / 12) / 2)):
        view.selection.chosen.append(torch.arange(size))
        assert view.kept() == pytest.approx(share, nan_ok=True)


def test_a_prompt_is_seen_whole_however_short(llama):
    said, selection = answer_selecting(llama, PROMPT[:2], Select(filter_layer=1, p=0.01),
                                       max_new_tokens=2, stop_ids=())
    prompt, step = (places.tolist() for places in selection.chosen)
    assert prompt == [0, 1] and len(step) <= 2 == step[-1]


def test_an_answer_that_ends_at_once(llama):
    with Select(filter_layer=1).attached(llama) as model:
        (first,) = model.watch(PROMPT, max_new_tokens=1, stop_ids=()).tokens
        nothing = model.watch(PROMPT, max_new_tokens=5, stop_ids={first})
    assert nothing.tokens.dtype == int and nothing.positions.shape == (0, 4, 4)


def test_top_p_by_hand():
    scores = torch.tensor([0.4, 0.1, 0.3, 0.15, 0.05])
    assert top_p(scores, 0.65).tolist() == [0, 2, 4]  # the newest always
    assert top_p(scores, 0.75).tolist() == [0, 2, 3, 4]
    assert top_p(scores, 0.01).tolist() == [0, 4]
    assert top_p(torch.tensor([0.0, 1.0]), 1).tolist() == [0, 1]
    assert top_p(torch.ones(400), 0.25).tolist() == [*range(100), 399]  # the first of equal ones


def test_refused(llama):
    with pytest.raises(UserError, match="no layer follows filter layer 3: the model has 0 to 3"), \
            selecting(llama.model, Select(filter_layer=3)):
        pass
