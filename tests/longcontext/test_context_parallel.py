"""Two and four processes against one."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from rmutils.core.errors import UserError
from rmutils.longcontext.context_parallel import (
    balance,
    communication,
    loss_and_gradients,
    packed_balance,
    slice_of,
)
from rmutils.longcontext.packing import packed_inputs
from tests.conftest import make_lm

ROWS = [[list(range(5, 35)), list(range(100, 130))], [list(range(60, 110)), [7, 8, 9]]]
FAMILIES = ("llama", "olmo3")  # Olmo 3 has windows of 24 tokens


def prepared(family, tokenizer):
    model = make_lm(family, tokenizer).model
    return model, packed_inputs(model, ROWS, length=64, pad_id=0)


def work(rank, ranks, tokenizer, address, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    for family in FAMILIES:
        model, inputs = prepared(family, tokenizer)
        loss = loss_and_gradients(model, inputs)
        if rank == ranks - 1:
            torch.save({"loss": loss, "gradients": {
                name: p.grad for name, p in model.named_parameters()}}, folder / f"{family}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [2, 4])
def test_loss_and_gradients_of_one_process(ranks, tokenizer, tmp_path):
    """With documents that the slices cut through, padding, and windows."""
    address = f"file://{tmp_path / 'rendezvous'}"
    mp.start_processes(work, (ranks, tokenizer, address, tmp_path), ranks, start_method="fork")
    for family in FAMILIES:
        model, inputs = prepared(family, tokenizer)
        loss = model(**inputs).loss
        loss.backward()
        found = torch.load(tmp_path / f"{family}.pt")
        torch.testing.assert_close(found["loss"], loss.detach(), rtol=1e-5, atol=1e-5)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(found["gradients"][name], parameter.grad, rtol=1e-5,
                                       atol=1e-5, msg=name)


def test_slices(llama):
    inputs = packed_inputs(llama.model, ROWS, length=64, pad_id=0)
    parts = [slice_of(inputs, rank, 4) for rank in range(4)]
    assert torch.equal(torch.cat([p["input_ids"] for p in parts], 1), inputs["input_ids"])
    assert parts[1]["attention_mask"].shape == (2, 1, 16, 64)
    targets = torch.cat([p["targets"] for p in parts], 1)
    assert targets[0, :4].tolist() == [6, 7, 8, 9] and targets[0, 28:31].tolist() == [34, -100, 101]
    with pytest.raises(UserError, match="64 tokens cannot be cut into 3 .*Pad them to 66"):
        slice_of(inputs, 0, 3)


def test_what_is_sent_and_who_waits():
    """Olmo 3 7B by hand: 32 layers, 8 slices of 8,192 tokens; each receives seven of them."""
    assert communication(65_536, 8, layers=32, key_heads=32, head_size=128) == \
        7 * 8192 * 32 * (2 * 32 * 128 * 2)
    rows, columns = np.indices((64, 64))
    for window in (None, 10):
        seen = (columns <= rows) & (rows - columns < (window or 64))
        np.testing.assert_allclose(balance(64, 4, window),
                                   seen.reshape(4, -1).sum(1) / seen.sum())


def test_who_waits_where_documents_do_not_see_each_other():
    """Against masks: an instance of three documents and padding, one of a single document."""
    rows, columns = np.indices((64, 64))
    for window in (None, 10):
        near = (columns <= rows) & (rows - columns < (window or 64))
        document = np.repeat([0, 1, 2, 3], [30, 20, 6, 8])
        packed = near & (document[:, None] == document) & (document < 3)
        work = np.stack([each.sum(1).reshape(4, -1).sum(1) for each in (packed, near)])
        np.testing.assert_allclose(packed_balance([[30, 20, 6], [64]], 64, 4, window),
                                   work / work.mean(1, keepdims=True))
