"""GemFilter against the hidden states of a whole pass, head by head and token by token."""

import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from rmutils.attention.gemfilter import GemFilter, choose, chosen_tokens
from rmutils.core.errors import UserError
from rmutils.models.engine.generation import next_token_logits
from tests.attention.by_hand import expects

PROMPT = list(range(7, 47))


def slowly(llama, layer, count):
    """Products of each head from hidden states and weights; sorted by hand."""
    inner = llama.model.base_model
    with torch.inference_mode():
        hidden = llama.model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states[layer]
        block = inner.layers[layer]
        states = block.input_layernorm(hidden)
        query = block.self_attn.q_proj(states).view(1, 40, 4, 8).transpose(1, 2)
        key = block.self_attn.k_proj(states).view(1, 40, 2, 8).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, *inner.rotary_emb(
            hidden, torch.arange(40)[None]))
    products = [sum(float(query[0, head, -1] @ key[0, head // 2, i]) for head in range(4))
                for i in range(40)]
    padded = [0, 0, *products, 0, 0]
    pooled = [sum(padded[i : i + 5]) / 5 for i in range(40)]
    return sorted(sorted(range(40), key=lambda i: -pooled[i])[:count])


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_the_last_query_chooses(llama, layer):
    config = GemFilter(filter_layer=layer, tokens=12)
    assert choose(llama, PROMPT, config) == slowly(llama, layer, 12)


def test_the_whole_model_reads_the_chosen_tokens_only(lm):
    plain = next_token_logits(lm, PROMPT)
    config, found = GemFilter(filter_layer=1, tokens=15), []
    with config.attached(lm) as model:
        model.answer([PROMPT], max_new_tokens=5, done=lambda *given: found.extend(given))
    _, said, kept = found
    ids = [PROMPT[i] for i in choose(lm, PROMPT, config)]
    assert len(ids) == 15 and ids == sorted(ids) and kept == 15 / 40
    assert expects(lm, ids, said)
    torch.testing.assert_close(next_token_logits(lm, PROMPT), plain, rtol=0, atol=0)  # restored


def test_neighbours_by_hand():
    """Sums of five: 0 0 9 9 9 9 9 0 0 7 7 7; a lone peak takes its neighbours with it."""
    products = torch.tensor([0.0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 7])
    assert chosen_tokens(products, 5).tolist() == [2, 3, 4, 5, 6]
    assert chosen_tokens(products, 8).tolist() == [2, 3, 4, 5, 6, 9, 10, 11]
    # zeros behind the end count, so the newest token is no higher than the one five before it
    assert chosen_tokens(torch.tensor([0.0, 0, 0, 0, 0, 7, 7, 7, 7, 7]), 3).tolist() == [6, 7, 8]


def test_refused(llama):
    layers = llama.model.base_model.layers
    with pytest.raises(UserError, match="no layer 4: the model has 0 to 3"):
        choose(llama, PROMPT, GemFilter(filter_layer=4))
    assert llama.model.base_model.layers is layers
