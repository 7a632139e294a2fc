"""The attentions that read and write: loops over heads and keys, and when they are in use."""

import pytest
import torch

from rmutils.models.engine import implementations
from rmutils.models.engine.implementations import GROUPED, grouped_query, in_two, using, writing
from tests.attention.test_capture import HEADS, KEY_HEADS, KEYS, MODULE, SIZE, loops


@pytest.mark.parametrize("hidden", [0, 4], ids=["no padding", "padding"])
def test_a_step_against_loops(hidden):
    torch.manual_seed(0)
    tensors = [torch.randn(2, heads, n, SIZE)
               for heads, n in ((HEADS, 1), (KEY_HEADS, KEYS), (KEY_HEADS, KEYS))]
    mask = torch.ones(2, 1, 1, KEYS, dtype=torch.bool)
    mask[0, ..., :hidden] = False
    output, _ = grouped_query(MODULE, *tensors, mask if hidden else None, scaling=0.25)
    torch.testing.assert_close(output, loops(*tensors, mask)[0])


def causal(queries: int) -> torch.Tensor:
    return torch.ones(2, 1, queries, KEYS, dtype=torch.bool).tril(KEYS - queries)


WINDOW = causal(4).triu(KEYS - 4 - 6)
"""Each of four queries sees itself and six tokens before it."""


@pytest.mark.parametrize("mask", [causal(1), causal(4), causal(KEYS - 1), causal(KEYS), WINDOW],
                         ids=["step", "part", "after one", "no cache", "window"])
def test_reading_in_two_against_loops(mask):
    torch.manual_seed(0)
    tensors = [torch.randn(2, heads, n, SIZE)
               for heads, n in ((HEADS, mask.shape[2]), (KEY_HEADS, KEYS), (KEY_HEADS, KEYS))]
    output, _ = in_two(MODULE, *tensors, mask, scaling=0.25)
    torch.testing.assert_close(output, loops(*tensors, mask)[0])


def test_all_but_windows_and_padding_are_read_in_two(monkeypatch):
    tensors = [torch.randn(2, heads, n, SIZE)
               for heads, n in ((HEADS, 4), (KEY_HEADS, KEYS), (KEY_HEADS, KEYS))]
    monkeypatch.setattr(implementations, "sdpa_attention_forward",
                        lambda *args, **kwargs: ("whole", None))
    padded = causal(4)
    padded[1, ..., 0] = False
    assert in_two(MODULE, *tensors, causal(4), scaling=0.25)[0] != "whole"
    for mask in (None, WINDOW, padded):
        assert in_two(MODULE, *tensors, mask, scaling=0.25)[0] == "whole"


def test_only_sdpa_is_replaced_and_comes_back(llama):
    def name() -> str:
        return llama.model.config._attn_implementation

    with pytest.raises(RuntimeError, match="in between"), writing(llama.model):
        assert name() == GROUPED
        raise RuntimeError("in between")
    assert name() == "sdpa"
    with using(llama.model, "eager"), writing(llama.model):
        assert name() == "eager"  # it may have more in it than SDPA: sinks, a cap on the scores
