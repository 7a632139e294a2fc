"""Masks side by side, against one mask at a time by the weights of W_o."""

import pytest
import torch

from rmutils.book.experiments import masked_needles
from rmutils.book.experiments.masked_needles import answer_masked, mask_rows, masks_of
from rmutils.heads import mask_heads
from rmutils.models.engine.caches import Trunk, bytes_per_token
from tests.conftest import make_lm

SETS = [[], [(0, 0), (3, 2)], [(1, 1)], [(2, 0), (2, 1), (2, 2), (2, 3), (0, 3)], [(1, 1)],
        [(layer, head) for layer in range(4) for head in range(3)]]
TEXTS = ["The mill stands by the river, and the key hangs behind the door of the mill. " * 4,
         "The mill stands by the river. Nobody knows where the key is, or who had it last."]
NEW = 8


@pytest.fixture(params=["llama", "olmo3", "qwen2"])
def lm(request, tokenizer):
    """One has windows, one has biases; all have grouped queries."""
    return make_lm(request.param, tokenizer)


def prompts(lm):
    return [lm.render(text) for text in TEXTS]


@torch.no_grad()
def slowly(lm, ids, heads, everywhere, new=NEW):
    """One mask, one token after another, the whole text read anew by the weights of W_o each time.

    With the mask at the newest position alone, what comes before is cached by the whole model.
    """
    def step(new, cache):
        return lm.model(torch.tensor([new]), past_key_values=cache, use_cache=True)

    said = []
    if everywhere:
        with mask_heads(lm, heads):
            while len(said) < new:
                token = int(lm.model(torch.tensor([[*ids, *said]]),
                                     use_cache=False).logits[0, -1].argmax())
                if token in lm.stop_ids:
                    break
                said.append(token)
    else:
        cache, token = step(ids[:-1], None).past_key_values, ids[-1]
        with mask_heads(lm, heads):
            while len(said) < new:
                token = int(step([token], cache).logits[0, -1].argmax())
                if token in lm.stop_ids:
                    break
                said.append(token)
    return said


def text_of(lm, tokens):
    return lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()


@pytest.mark.parametrize("everywhere", [False, True])
def test_answers_are_those_of_one_mask_at_a_time(lm, everywhere):
    expected = [[text_of(lm, slowly(lm, ids, heads, everywhere)) for heads in SETS]
                for ids in prompts(lm)]
    found = [*answer_masked(lm, prompts(lm), masks_of(lm, SETS), max_new_tokens=NEW,
                            everywhere=everywhere)]
    assert found == expected
    assert len({*expected[0]}) > 2  # the masks do something, each something else


def test_what_is_read_before_is_that_of_the_whole_model(llama):
    """So both positions differ."""
    here, everywhere = (
        [*answer_masked(llama, prompts(llama), masks_of(llama, SETS), max_new_tokens=NEW,
                        everywhere=one)] for one in (False, True))
    assert [one[0] for one in here] == [one[0] for one in everywhere]
    assert here != everywhere


@pytest.mark.parametrize("at_once", [1, 4])
def test_rows_at_once_do_not_matter(llama, monkeypatch, at_once):
    expected = [*answer_masked(llama, prompts(llama), masks_of(llama, SETS), max_new_tokens=NEW)]
    monkeypatch.setattr(masked_needles, "rows_at_once", lambda *given: at_once)
    assert expected == [
        *answer_masked(llama, prompts(llama), masks_of(llama, SETS), max_new_tokens=NEW)]


def test_rows_that_end_make_room(llama):
    """What some rows say first ends their answers; the others go on in a smaller batch."""
    ids = prompts(llama)[0]
    first = [slowly(llama, ids, heads, False, new=1) for heads in SETS]
    stop = first[0][0]
    llama.model.generation_config.eos_token_id = [llama.tokenizer.eos_token_id, stop]
    expected = [text_of(llama, slowly(llama, ids, heads, False)) for heads in SETS]
    found = next(answer_masked(llama, [ids], masks_of(llama, SETS), max_new_tokens=NEW))
    assert found == expected and "" in expected and len({*expected}) > 1


def test_hooks_are_gone_after_an_error(llama):
    ids = torch.tensor([prompts(llama)[0]])
    before = llama.model(ids).logits
    with pytest.raises(ZeroDivisionError), mask_rows(llama, masks_of(llama, SETS[1:2])):
        assert not torch.equal(llama.model(ids).logits, before)
        raise ZeroDivisionError
    assert torch.equal(llama.model(ids).logits, before)


def test_rows_fit_into_their_bytes(llama):
    """Two key heads of size 8 in 4 layers, keys and values in float32: 512 bytes a token."""
    trunk = Trunk(llama.model, prompts(llama)[0])
    assert bytes_per_token(trunk.cache) == 512
    assert masked_needles.rows_at_once(llama, trunk.cache, 2048) == 2048
    assert masked_needles.rows_at_once(llama, Trunk(llama.model, []).cache, 2048) == 1
