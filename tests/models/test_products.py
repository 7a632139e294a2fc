"""Products by oneDNN: against float64, and when PyTorch's own are kept."""

import copy

import pytest
import torch
from torch import nn

from rmutils.models import load_model, products
from rmutils.models.products import WORTH, Linear, use_onednn

ROWS, WIDTH, OUT = 40, 300, 500


def layers(bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    """A linear module as it is, and as `use_onednn` leaves it."""
    plain = nn.Linear(WIDTH, OUT, bias=bias)
    changed = nn.Sequential(copy.deepcopy(plain))
    use_onednn(changed)
    assert isinstance(changed[0], Linear)
    return plain, changed[0]


@pytest.fixture
def calls(monkeypatch):
    """Inputs that were given to oneDNN, of any size."""
    found, own = [], torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(products, "WORTH", 0)
    monkeypatch.setattr(products, "FEWEST", 0)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise",
                        lambda *args: found.append(args[0]) or own(*args))
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (2, 20, WIDTH), (1, 1, WIDTH)])
def test_products_are_as_exact_as_pytorchs_own(calls, bias, shape):
    plain, fast = layers(bias)
    rows = torch.randn(*shape)
    with torch.inference_mode():
        exact = copy.deepcopy(plain).double()(rows.double())
        errors = [(layer(rows) - exact).abs().max() for layer in (plain, fast)]
    assert len(calls) == 1
    assert errors[1] < 8 * errors[0] + 1e-6


def test_few_sizes_are_asked_for(calls):
    """Whatever the number of rows, as each size takes memory for good."""
    plain, fast = layers()
    with torch.no_grad():
        for count in (counts := range(1, 1025, 7)):
            rows = torch.randn(count, WIDTH)
            torch.testing.assert_close(fast(rows), plain(rows))
    sizes = {len(rows) for rows in calls}
    assert len(calls) == len(counts) and len(sizes) < 25
    assert all(len(rows) < 1.25 * count + 8 for count, rows in zip(counts, calls, strict=True))


def test_any_layout_is_taken(calls):
    plain, fast = layers()
    rows = torch.randn(WIDTH, 2, ROWS).permute(1, 2, 0)
    with torch.no_grad():
        torch.testing.assert_close(fast(rows), plain(rows))
        torch.testing.assert_close(fast(rows[:1].expand(3, -1, -1)), plain(rows[[0, 0, 0]]))
    assert len(calls) == 2


def test_training_other_precisions_and_small_products_are_pytorchs_own(calls, monkeypatch):
    plain, fast = layers()
    rows = torch.randn(ROWS, WIDTH, requires_grad=True)
    both = [layer(rows) for layer in (plain, fast)]
    assert torch.equal(*both)
    assert torch.equal(*(torch.autograd.grad(out.sum(), rows)[0] for out in both))
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert fast(rows).dtype == torch.bfloat16
        for kind in (torch.bfloat16, torch.float64):
            layer = copy.deepcopy(fast).to(kind)
            assert torch.equal(layer(rows.to(kind)), copy.deepcopy(plain).to(kind)(rows.to(kind)))
        monkeypatch.setattr(products, "WORTH", WORTH)
        assert torch.equal(fast(rows[:1]), plain(rows[:1])) and not calls
        assert ROWS * WIDTH * OUT >= WORTH and fast(rows) is not None and len(calls) == 1


def test_loaded_models_have_it():
    model = load_model("tiny-llama", device="cpu").model
    kinds = {type(module) for module in model.modules() if isinstance(module, nn.Linear)}
    assert kinds == {Linear}
