"""Packed documents against the same documents one by one."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

from rmutils.core.errors import UserError
from rmutils.longcontext.packing import NO_LABEL, document_masks, leak, packed_inputs
from tests.conftest import two_families

DOCUMENTS = [list(range(5, 35)), list(range(100, 118)), [7, 8, 9]]
OTHERS = [list(range(60, 90)), list(range(30, 50))]
LENGTH = 56


def packed(lm, rows=(DOCUMENTS, OTHERS), length=LENGTH):
    return packed_inputs(lm.model, rows, length=length, pad_id=lm.tokenizer.pad_token_id)


def loss_alone(lm, documents):
    """Sum of the losses of documents that are read one by one."""
    total = 0
    for document in documents:
        ids = torch.tensor([document])
        loss = lm.model(input_ids=ids, labels=ids).loss
        total = total + loss * (len(document) - 1)
    return total


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_and_gradients_are_those_of_single_documents(lm, attention):
    """Windows of 24 tokens in some layers of Olmo 3 and Gemma 3 are shorter than a document."""
    lm.model.set_attn_implementation(attention)
    inputs = packed(lm)
    with torch.inference_mode():
        logits = lm.model(**inputs).logits
        for i, row in enumerate((DOCUMENTS, OTHERS)):
            at = 0
            for document in row:
                alone = lm.model(torch.tensor([document])).logits[0]
                torch.testing.assert_close(logits[i, at:at + len(document)], alone,
                                           rtol=1e-4, atol=1e-4)
                at += len(document)
    named = dict(lm.model.named_parameters())
    every = [*DOCUMENTS, *OTHERS]
    alone = torch.autograd.grad(loss_alone(lm, every), named.values())
    counted = sum(len(document) - 1 for document in every)
    together = torch.autograd.grad(lm.model(**inputs).loss * counted, named.values())
    for name, one, other in zip(named, together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, msg=name)


@two_families
@pytest.mark.parametrize("first", [0, 5, 511])
def test_nothing_leaks_and_the_measure_would_see_it(lm, first):
    """What transformers does by itself holds without cache and mask, and breaks silently with.
    Whatever token comes first, also the last one of the vocabulary."""
    assert lm.model.config.vocab_size == 512
    inputs = packed(lm, [[[first, *DOCUMENTS[0][1:]], *DOCUMENTS[1:]]], 51)
    assert leak(lm.model, inputs) == 0
    by_positions = {name: inputs[name] for name in ("input_ids", "position_ids")}
    assert leak(lm.model, by_positions, use_cache=False) == 0
    assert leak(lm.model, by_positions, use_cache=True) > 0.01
    alone = packed(lm, [[[first], [9], [8]]], 3)
    assert leak(lm.model, alone) == 0
    assert leak(lm.model, alone | {"attention_mask": torch.ones(1, 3)}) > 0.01
    everything = by_positions | {"attention_mask": torch.ones(1, 51)}
    assert leak(lm.model, everything, use_cache=False) > 0.01


@two_families
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_has_the_same_mask(lm):
    """Without compiling it, which takes seconds for each kind of mask."""
    documents = torch.tensor([[0] * 30 + [1] * 18 + [2] * 3 + [-1] * 5])
    with torch.device("meta"):  # where torch makes tensors is not where the documents are
        dense = document_masks(lm.model, documents)
        lm.model.config._attn_implementation = "flex_attention"
        blocks = document_masks(lm.model, documents)
    for kind in dense if isinstance(dense, dict) else [None]:
        one, other = (m if kind is None else m[kind] for m in (dense, blocks))
        torch.manual_seed(0)
        states = torch.randn(3, 1, 2, 56, 8)
        torch.testing.assert_close(
            flex_attention(*states, block_mask=other),
            scaled_dot_product_attention(*states, attn_mask=one))


@pytest.mark.skipif(not shutil.which("g++"), reason="torch compiles with g++, which is not here")
def test_a_model_with_compiled_flex_attention_gives_the_same_logits(llama):
    """transformers compiles it. Its gradients need a GPU: torch has none for a CPU."""
    logits = []
    for attention in ("sdpa", "flex_attention"):
        llama.model.set_attn_implementation(attention)
        inputs = packed(llama, length=128)
        with torch.inference_mode():
            logits.append(llama.model(**inputs).logits[inputs["labels"] != NO_LABEL])
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)


def test_labels_and_positions_by_hand(llama):
    inputs = packed(llama, [[[5, 6, 7], [8, 9]]], 7)
    pad = llama.tokenizer.pad_token_id
    assert inputs["input_ids"].tolist() == [[5, 6, 7, 8, 9, pad, pad]]
    assert inputs["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 0]]
    no = NO_LABEL
    assert inputs["labels"].tolist() == [[no, 6, 7, no, 9, no, no]]
    which = [0, 0, 0, 1, 1, None, None]  # padding is a document of its own
    assert inputs["attention_mask"].tolist() == [[[
        [key <= query and which[key] == which[query] for key in range(7)] for query in range(7)]]]


def test_inputs_are_where_the_model_is():
    config = SimpleNamespace(_attn_implementation="sdpa")
    model = SimpleNamespace(device=torch.device("meta"), dtype=torch.float32, config=config)
    inputs = packed_inputs(model, [[[5, 6], [7]]], length=4, pad_id=0)
    assert {tensor.device.type for tensor in inputs.values()} == {"meta"} and len(inputs) == 4


def test_refused(llama):
    with pytest.raises(UserError, match="instance 1 holds 50 tokens, and 49 are allowed"):
        packed(llama, [[[5]], OTHERS], 49)
    llama.model.config._attn_implementation = "flex_attention"
    with pytest.raises(UserError, match="a multiple of 128, not 49"):
        packed(llama, [[[5]], OTHERS[:1]], 49)
    assert packed(llama, [[[5]], OTHERS[:1]], 128)["input_ids"].shape == (2, 128)
    llama.model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UserError, match="flash_attention_2 takes no mask of documents"):
        document_masks(llama.model, torch.zeros(1, 4))
