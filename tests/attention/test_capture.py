"""The attention function against loops over heads and keys."""

from itertools import product
from types import SimpleNamespace

import pytest
import torch

from rmutils.attention.decoding import (
    ArgMaxRecorder,
    capturing,
    register_attention,
    retrieval_capture,
)
from rmutils.core.errors import UserError
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.heads.score_kinds import SCORES
from rmutils.models import load_model
from rmutils.models.engine.implementations import register
from tests.conftest import make_lm

HEADS, KEY_HEADS, KEYS, SIZE = 6, 2, 11, 8
MODULE = SimpleNamespace(layer_idx=0, num_key_value_groups=HEADS // KEY_HEADS, is_causal=True,
                         training=False)


@pytest.fixture
def tensors(request):
    torch.manual_seed(0)
    return (torch.randn(2, HEADS, getattr(request, "param", 1), SIZE),
            torch.randn(2, KEY_HEADS, KEYS, SIZE), torch.randn(2, KEY_HEADS, KEYS, SIZE))


def loops(query, key, value, mask):
    """Softmax attention, a row of a head at a time."""
    outputs, looked = torch.zeros_like(query).transpose(1, 2), torch.zeros(query.shape[:3]).long()
    for b, h, q in product(*map(range, query.shape[:3])):
        k, v = key[b, h // 3], value[b, h // 3]  # three query heads share a key head
        scores = [float(query[b, h, q] @ k[j]) * 0.25 if mask[b, 0, q, j] else -1e9
                  for j in range(KEYS)]
        weights = torch.tensor(scores).softmax(0)
        outputs[b, q, h] = sum(w * row for w, row in zip(weights, v, strict=True))
        looked[b, h, q] = scores.index(max(scores))
    return outputs, looked[:, None]


@pytest.mark.parametrize("tensors", [1, 3, KEYS], indirect=True, ids=["step", "draft", "no cache"])
@pytest.mark.parametrize("hidden", [0, 4], ids=["no padding", "padding"])
def test_output_and_index_against_loops(tensors, hidden):
    rows = tensors[0].shape[2]
    mask = torch.ones(2, 1, rows, KEYS, dtype=torch.bool).tril(KEYS - rows)
    mask[0, ..., : min(hidden, KEYS - rows)] = False
    recorder = ArgMaxRecorder(rows)
    output, _ = retrieval_capture(MODULE, *tensors, mask if hidden and rows < KEYS else None,
                                  scaling=0.25, recorder=recorder)
    want, looked = loops(*tensors, mask)
    torch.testing.assert_close(output, want)
    assert torch.equal(recorder.take(), looked)  # (batch, 1 layer, heads, rows)


def test_padding_is_masked_in_the_model(lm):
    """A left-padded prompt is read as the bare one: the mask arrives under the new name too."""
    ids = torch.tensor([lm.tokenizer("One learns to see the gap first.")["input_ids"]])
    pad = torch.full((1, 7), lm.tokenizer.pad_token_id)
    mask = torch.cat([torch.zeros_like(pad), torch.ones_like(ids)], 1)
    with capturing(lm.model), torch.no_grad():
        bare = lm.model(ids).logits[:, -1]
        padded = lm.model(torch.cat([pad, ids], 1), attention_mask=mask,
                          position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[:, -1]
    torch.testing.assert_close(padded, bare)


def looked_hardest(lm, case, answer):
    """Where each head looks hardest at each step, out of all the weights of a pass of its own."""
    ids = torch.tensor([[*case.input_ids, *answer.tokens[:-1].tolist()]])
    weights = lm.model(ids, output_attentions=True).attentions
    rows = torch.stack([layer[0, :, len(case.input_ids) - 1 :] for layer in weights])
    return rows.argmax(-1).permute(2, 0, 1).numpy()  # (tokens, layers, heads)


def answered(lm):
    config = DetectConfig(lengths=(192, 256), depths=(0.0, 1.0), needles=1, max_new_tokens=6)
    return list(SCORES["copy"](lm, config).answers(build_cases(lm, config), None))


def test_an_attention_of_ones_own_is_watched_as_it_is(llama):
    @register_attention("contrary")
    def contrary(module, query, key, value, mask, *, scaling, **kwargs):
        key, value = (t.repeat_interleave(2, 1) for t in (key, value))
        scores = mask - scaling * query @ key.transpose(2, 3)  # where others look least
        return (scores.softmax(-1) @ value).transpose(1, 2), scores.softmax(-1)

    llama.model.set_attn_implementation("contrary")
    for case, answer, _ in answered(llama):
        assert (answer.positions == looked_hardest(llama, case, answer)).all()
    assert llama.model.config._attn_implementation == "contrary"


def test_an_attention_without_weights_is_refused(llama):
    register("mute", lambda *tensors, **how: (retrieval_capture(*tensors, **how)[0], None))
    llama.model.set_attn_implementation("mute")
    with pytest.raises(UserError, match="'mute' says nothing about where the heads look"):
        answered(llama)


def test_capped_scores_stay_capped(tokenizer, tmp_path):
    """Gemma 2: SDPA drops the cap, and both the answers and the heads are others'."""
    model = make_lm("gemma2", tokenizer, attn_logit_softcapping=0.5).model
    model.save_pretrained(tmp_path / "capped")
    tokenizer.save_pretrained(tmp_path / "capped")
    lm = load_model(tmp_path / "capped", device="cpu")
    assert lm.model.config._attn_implementation == "eager"
    for case, answer, _ in answered(lm):
        greedy = lm.model.generate(torch.tensor([case.input_ids]), max_new_tokens=6,
                                   do_sample=False)[0, len(case.input_ids):]
        assert greedy[: len(answer.tokens)].tolist() == answer.tokens.tolist()
        assert (answer.positions == looked_hardest(lm, case, answer)).mean() > 0.99  # ties
