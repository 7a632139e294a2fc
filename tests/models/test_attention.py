"""The attention that writes: loops over heads and keys, and when it is in use."""

import pytest
import torch

from rmutils.models.engine.implementations import GROUPED, grouped_query, using, writing
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


def test_only_sdpa_is_replaced_and_comes_back(llama):
    def name() -> str:
        return llama.model.config._attn_implementation

    with pytest.raises(RuntimeError, match="in between"), writing(llama.model):
        assert name() == GROUPED
        raise RuntimeError("in between")
    assert name() == "sdpa"
    with using(llama.model, "eager"), writing(llama.model):
        assert name() == "eager"  # it may have more in it than SDPA: sinks, a cap on the scores
