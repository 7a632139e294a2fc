"""The attention function against loops over heads and keys."""

from types import SimpleNamespace

import pytest
import torch

from rmutils.attention.decoding import ArgMaxRecorder, capturing, retrieval_capture

HEADS, KEY_HEADS, KEYS, SIZE = 6, 2, 11, 8
MODULE = SimpleNamespace(layer_idx=0, num_key_value_groups=HEADS // KEY_HEADS, is_causal=True,
                         training=False)


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return (torch.randn(2, HEADS, 1, SIZE), torch.randn(2, KEY_HEADS, KEYS, SIZE),
            torch.randn(2, KEY_HEADS, KEYS, SIZE))


def loops(query, key, value, mask):
    """Softmax attention of one row, a head at a time."""
    outputs, looked = [], []
    for b in range(len(query)):
        for h in range(HEADS):
            k, v = key[b, h // 3], value[b, h // 3]  # three query heads share a key head
            scores = [float(query[b, h, 0] @ k[j]) * 0.25 if mask[b, 0, 0, j] else -1e9
                      for j in range(KEYS)]
            weights = torch.tensor(scores).softmax(0)
            outputs.append(sum(w * row for w, row in zip(weights, v, strict=True)))
            looked.append(scores.index(max(scores)))
    return torch.stack(outputs).view(2, 1, HEADS, SIZE), torch.tensor(looked).view(2, 1, HEADS)


@pytest.mark.parametrize("hidden", [0, 4], ids=["no padding", "padding"])
def test_output_and_index_against_loops(tensors, hidden):
    mask = torch.ones(2, 1, 1, KEYS, dtype=torch.bool)
    mask[0, ..., :hidden] = False
    recorder = ArgMaxRecorder()
    output, _ = retrieval_capture(MODULE, *tensors, mask if hidden else None, scaling=0.25,
                                  recorder=recorder)
    want, looked = loops(*tensors, mask)
    torch.testing.assert_close(output, want)
    assert torch.equal(recorder.take(), looked)  # (batch, 1 layer, heads)


def test_same_output_as_plain_attention(tensors):
    """Recording changes nothing, and prefill is plain SDPA."""
    plain, _ = retrieval_capture(MODULE, *tensors, None, scaling=0.25)
    recorded, _ = retrieval_capture(MODULE, *tensors, None, scaling=0.25,
                                    recorder=ArgMaxRecorder())
    torch.testing.assert_close(plain, recorded)


def test_recorder_keeps_layers_in_order():
    recorder = ArgMaxRecorder()
    for layer in (2, 0, 1):
        recorder.record(layer, torch.full((1, 3), layer))
    assert recorder.take().tolist() == [[[0] * 3, [1] * 3, [2] * 3]]


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
