"""Share-Attention against weights that are overwritten head by head."""

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from rmutils.attention import sharing_plans
from rmutils.attention.share_attention import Shared, Workspace, share_attention, sharing_heads
from rmutils.core.errors import UserError
from rmutils.models.engine.generation import generate
from rmutils.models.engine.implementations import register, using
from tests.conftest import two_families

PROMPT = torch.arange(7, 47)[None]
SHARING = {0: {0: [], 1: [], 2: [], 3: []}, 1: {0: [3], 1: [2]}, 2: {2: [0, 1, 3]},
           3: {1: [0, 2, 3]}}


def logits(lm, ids=PROMPT, **kwargs):
    with torch.inference_mode():
        return lm.model(ids, **kwargs).logits


def overwritten(lm, sharing, ids=PROMPT):
    """Logits with all weights computed, those of sharing heads then replaced."""
    def attention(module, query, key, value, mask, *, scaling, **kwargs):
        seen = torch.ones(query.shape[2], key.shape[2]).tril().bool() if mask is None else \
            mask[0, 0]
        weights = [(query[0, h] @ key[0, h // 2].T * scaling).masked_fill(~seen, -torch.inf)
                   .softmax(-1) for h in range(4)]
        for essential, others in sharing.get(module.layer_idx, {}).items():
            for other in others:
                weights[other] = weights[essential]
        return torch.stack([w @ value[0, h // 2] for h, w in enumerate(weights)], dim=1)[None], None

    register("overwritten", attention)
    try:
        with using(lm.model, "overwritten"):
            return logits(lm, ids)
    finally:
        AttentionInterface._global_mapping.pop("overwritten")


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
        for prompt, said in zip(prompts, generate(lm, prompts, max_new_tokens=5), strict=True):
            ids = list(prompt)
            for token in said:
                assert int(logits(lm, torch.tensor([ids]))[0, -1].argmax()) == token
                ids.append(token)


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
