"""Formulas against counting: weights of a model that is built, bytes of its cache, torch's own
count of operations, tensors that a backward pass keeps, and cases worked by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from rmutils.book.chapters.scale import SHAPES, Assumptions, Shape, shape_of, work
from rmutils.book.chapters.scale import work as exchange
from rmutils.book.chapters.scale import work as memory
from rmutils.book.chapters.scale.step_costs import (
    Rates,
    detecting,
    equal_work,
    fitting,
    generating,
    limits,
    prediction_ratio,
    reading,
    shares,
    training,
    writing,
)
from rmutils.book.chapters.scale.work import Machine
from rmutils.core.errors import UserError
from tests.conftest import FAMILIES, make_lm

BIG = SHAPES["llama-3.1-70b"]


def test_weights_of_published_models():
    """The numbers that the hub shows for their files."""
    assert SHAPES["llama-3.1-8b-instruct"].parameters == 8_030_261_248
    assert SHAPES["qwen3-8b"].parameters == 8_190_735_360
    assert SHAPES["olmo-3-7b-think"].parameters == 7_298_011_136
    assert BIG.parameters == 70_553_706_496
    assert SHAPES["meta-llama/Llama-3.2-3B-Instruct"].parameters == 3_212_749_824
    assert SHAPES["Qwen/Qwen3-0.6B"].parameters == 596_049_920


def test_weights_are_those_of_the_model(lm, tmp_path):
    shape = Shape.of(lm.model.config)
    assert shape.parameters == sum(p.numel() for p in lm.model.parameters())
    assert memory.weights(shape, 4) == sum(p.numel() * 4 for p in lm.model.parameters())
    lm.model.config.save_pretrained(tmp_path)
    assert shape_of(str(tmp_path)) == shape


def test_names_without_a_shape_are_refused(tmp_path):
    with pytest.raises(UserError, match="shape of org/other is not known.*llama-3.1-70b"):
        shape_of("org/other")
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UserError, match="not known"):
        shape_of(str(tmp_path))


@torch.inference_mode()
def test_bytes_of_keys_and_values_are_those_of_the_cache(lm):
    shape = Shape.of(lm.model.config)
    for tokens in (5, 60):  # within the window of some layers, and beyond
        kept = lm.model(torch.ones(1, tokens, dtype=torch.long), use_cache=True).past_key_values
        size = sum(t.numel() * t.element_size() for layer in kept.layers
                   for t in (layer.keys, layer.values))
        assert memory.cache(shape, tokens, each=4) == size, lm.family


@pytest.mark.parametrize("family", FAMILIES)
def test_operations_are_those_that_torch_counts(family, tokenizer):
    """Eager attention computes all pairs, hidden ones too; a single new token hides none, but by
    its window."""
    model, new, cached = make_lm(family, tokenizer).model, 7, 30
    shape = Shape.of(model.config)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        with FlopCounterMode(display=False) as counted:
            kept = model(torch.ones(1, cached, dtype=torch.long), use_cache=True).past_key_values
        each = 4 * shape.heads * shape.head_size
        whole = shape.layers * each * cached**2
        assert counted.get_total_flops() == (
            work.forward(shape, cached) - work.attention(shape, cached) + whole)
        with FlopCounterMode(display=False) as counted:
            model(torch.ones(1, 1, dtype=torch.long), past_key_values=kept)
        assert counted.get_total_flops() == work.forward(shape, 1, cached)
        with FlopCounterMode(display=False) as counted:
            model(torch.ones(1, new, dtype=torch.long), logits_to_keep=1, use_cache=False)
        matrices = work.forward(shape, new, logits=1) - work.attention(shape, new)
        assert counted.get_total_flops() == matrices + shape.layers * each * new**2


def test_a_training_step_is_what_torch_counts(llama):
    model, tokens = llama.model, 12
    shape = Shape.of(model.config)
    model.set_attn_implementation("eager")
    ids = torch.ones(1, tokens, dtype=torch.long)
    with FlopCounterMode(display=False) as counted:
        model(ids, use_cache=False).logits.sum().backward()
    whole = 4 * shape.heads * shape.head_size * shape.layers * tokens**2
    dense = work.forward(shape, tokens) - work.attention(shape, tokens) + whole
    assert counted.get_total_flops() == 3 * dense
    again = work.training(shape, tokens) - work.training(shape, tokens, recompute=False)
    assert again == work.forward(shape, tokens, logits=0)


@pytest.mark.parametrize(("new", "cached", "window"), [
    (5, 0, None), (5, 3, None), (5, 0, 2), (5, 3, 2), (5, 3, 6), (1, 9, 4), (6, 2, 3), (9, 0, 9)])
def test_pairs_of_tokens_are_those_of_the_mask(new, cached, window):
    pairs = sum(1 for i in range(cached, cached + new) for j in range(i + 1)
                if window is None or i - j < window)
    assert work.seen(new, cached, window) == pairs


def test_what_a_layer_keeps_for_its_backward_pass(llama):
    """Between once and twice the formula: it leaves out cosines, norms' scales and copies."""
    shape, tokens = Shape.of(llama.model.config), 64
    layer = llama.model.model.layers[0]
    hidden = torch.randn(1, tokens, shape.hidden, requires_grad=True)
    cos_sin = llama.model.model.rotary_emb(hidden, torch.arange(tokens)[None])
    own = {p.data_ptr() for p in layer.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(hidden, position_embeddings=cos_sin, attention_mask=None)
    one = Shape(**{**vars(shape), "layers": 1})
    said = memory.activations(one, tokens, recompute=False, each=4)
    assert said <= sum(kept.values()) <= 2 * said


def test_states_of_a_training_by_hand():
    """The example of the ZeRO paper: 7.5 billion weights on 64 GPUs take 120, 31.4 and 16.6 GB."""
    shape = Shape("llama", 1, 1, 1, 1, 1, 1, 1)
    for sharing, size in (("alone", 120e9), ("zero1", 31.4e9), ("zero2", 16.6e9)):
        each = memory.states(shape, sharing, 64) / shape.parameters
        assert each * 7.5e9 == pytest.approx(size, rel=0.005), sharing


def test_exchange_by_hand():
    shape = Shape("llama", 2, 8, 4, 2, 2, 16, 32)
    # Two all-reduces in each of two layers, of 3 tokens x 8 numbers x 2 bytes; on a ring of 4 each
    # sends 2 x 3/4 of that.
    assert exchange.tensor_parallel(shape, 3, 4) == 2 * 2 * 48 * 1.5
    # Keys and values: 2 layers x 2 x 2 heads x 2 numbers x 2 bytes x 8 tokens, 3/4 of it.
    assert exchange.context_parallel(shape, 8, 4) == 2 * 2 * 2 * 2 * 2 * 8 * 3 / 4
    assert exchange.tensor_parallel(shape, 3, 1) == 0


@pytest.fixture
def rates() -> Rates:
    """Round numbers: 1 TFLOPS, 1 GB, 1 GB/s, all of them reached."""
    full = Assumptions(compute=1, bandwidth=1, link=1, reserve=1)
    return Rates(Machine("round", 1e12, 1e9, 1e9, 1e9), full)


def test_seconds_by_hand(rates):
    shape = Shape("llama", 10, 1000, 10, 10, 100, 2000, 5000)
    assert shape.layer_weights == 10_000_000
    # Prefill: two operations for each weight and token, the output for one token only.
    by_work = 2 * 100 * 100e6 + 2 * 5e6 + 4 * 1000 * 10 * 5050
    assert reading(shape, 100, rates) == pytest.approx(by_work / 1e12)
    # One text: its step reads the weights (2 bytes each) and its keys and values.
    one = 2 * shape.parameters + 2 * 1000 * 2 * 10 * 100
    assert writing(shape, 100, 1, rates) == pytest.approx(one / 1e9)
    # Ten thousand at once are bound by work.
    assert writing(shape, 100, 10_000, Rates(
        Machine("fast memory", 1e12, 1e9, 1e18, 1e9), rates.assumed)) == pytest.approx(
            work.forward(shape, 1, 100) / 1e12)
    # Two accelerators compute and move half each, and send the hidden states of each layer twice.
    sent = 2 * 10 * (100 * 1000 * 2) / 1e9
    assert reading(shape, 100, rates, 2) == pytest.approx(by_work / 1e12 / 2 + sent)
    assert writing(shape, 100, 1, rates, 2) == pytest.approx(one / 1e9 / 2 + sent / 100)
    room = (1e9 - 2 * shape.parameters) // memory.cache(shape, 1000)
    assert fitting(shape, 1000, rates) == room and fitting(shape, 10**6, rates) == 1


def test_costs_by_hand(rates):
    shape = Shape("llama", 10, 1000, 10, 10, 100, 2000, 5000)
    for share in (1, 2):
        cost = generating(shape, 50, 20, 10, rates, share, 3)
        at_once = fitting(shape, 30, rates, share)
        seconds = (50 * reading(shape, 20, rates, share)
                   + 500 * writing(shape, 25, at_once, rates, share))
        assert cost.gpu_hours == pytest.approx(share * seconds / 3600) and cost.gpus == 3 * share
        assert cost.hours == cost.gpu_hours / (3 * share)
        assert cost.memory == (
            memory.weights(shape) + at_once * memory.cache(shape, 30)) / share
    cost = training(shape, "zero1", 4, pairs=10, tokens=50, epochs=3, sides=2, per_device=1,
                    rates=rates)
    flops = 60 * work.training(shape, 50) + 20 * work.forward(shape, 50)
    assert cost.gpu_hours == pytest.approx(flops / 1e12 / 3600)
    once = training(shape, "zero1", 4, pairs=10, tokens=50, epochs=3, sides=1, per_device=1,
                    rates=rates)
    assert once.gpu_hours == pytest.approx(30 * work.training(shape, 50) / 1e12 / 3600)
    cases = detecting(shape, [0, 100], 5, 100, rates)
    assert cases.gpu_hours * 3600 == pytest.approx(
        reading(shape, 1, rates) + reading(shape, 100, rates)
        + 5 * (writing(shape, 2, 100, rates) + writing(shape, 102, 1, rates)))


def test_limits_are_where_needs_cross():
    """By stepping through, on a machine that a short text fills."""
    shape, machine = Shape("llama", 10, 1000, 10, 10, 100, 2000, 5000), Machine(
        "small", 1e12, 3e8, 1e9, 1e9)
    rates = Rates(machine, Assumptions(compute=1, bandwidth=1, link=1, reserve=1))
    held = memory.weights(shape)
    found = limits(shape, 1, rates).set_index("what")["tokens"]
    first = next(n for n in range(10**6) if held + memory.cache(shape, n) > 3e8)
    assert found["keys and values"] == first
    stored = next(n for n in range(10**6) if held + memory.cache(shape, n)
                  + memory.stored_attention(shape, n, "all") > 3e8)
    assert found["attention of all tokens, stored"] == stored < first
    assert found["DPO, one pair at a time"] == 0 and np.isnan(found["weights"])
    assert found.dropna().is_monotonic_increasing
    slow = next(n for n in range(0, 10**6, 100) if reading(shape, n, rates) > 60)
    assert slow - 100 <= found["60 s until the first token"] <= slow
    even = equal_work(shape)
    assert 2 * work.attention(shape, even) == pytest.approx(
        work.forward(shape, even, logits=0), rel=1e-3)


def test_time_to_send_beside_time_to_compute(rates):
    shape = Shape("llama", 10, 1000, 10, 10, 100, 2000, 5000)
    table = shares(shape, 100, [1, 4], rates).set_index("gpus")
    assert (table.loc[1] == 0).all()
    sent = 2 * 10 * 2 * 100 * 1000 * 2 * 3 / 4 / 1e9
    assert table.loc[4, "tensor parallel"] == pytest.approx(
        sent / (reading(shape, 100, rates) / 4))


def test_times_are_predicted_where_work_is_all_there_is():
    """0.5 s and 1 s for each unit of work; then the longest takes twice what they predict."""
    work_of = {10: 1.0, 20: 3.0, 40: 8.0, 80: 20.0}
    rows = [{"round": k, "length": n, "seconds": (0.5 + w) * (1 + 0.01 * k)}
            for k in range(5) for n, w in work_of.items()]
    ratio, (low, high), rate = prediction_ratio(pd.DataFrame(rows), work_of)
    assert ratio == pytest.approx(1) and low <= 1 <= high and rate == pytest.approx(1 / 1.02)
    twice = pd.DataFrame(rows)
    twice.loc[twice["length"] == 80, "seconds"] *= 2
    ratio, (low, high), _ = prediction_ratio(twice, work_of)
    assert ratio == pytest.approx(2) and low > 1.9
