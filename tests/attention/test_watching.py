"""Where heads look under a variant, against attention matrices worked out head by head."""


import numpy as np
import pytest
import torch

from rmutils.attention.gemfilter import GemFilter, choose
from rmutils.attention.ms_poe import MsPoe, rescaled
from rmutils.attention.select_attention import Select
from rmutils.attention.share_attention import Retain, Share
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles
from rmutils.heads.answering import batched, one_by_one
from rmutils.heads.detection import DetectConfig, even_depths, run_cases
from rmutils.longcontext.extension import Extended
from rmutils.models import load_model
from tests.attention.by_hand import heads_by_hand, in_two
from tests.conftest import two_families
from tests.heads.test_detection import slow_answer

STEPS = 3
WIDE = {"s_min": 1, "s_max": 8, "first_layer": 1}
SHARE = Retain(kept=0.6, prompts=1, tokens=700)


@torch.inference_mode()
def read_again(lm, prompt, **how):
    """Tokens and positions, with everything read again for each token."""
    ids, positions = list(prompt), []
    with heads_by_hand(lm, **how) as looked:
        for _ in range(STEPS):
            logits = lm.model(torch.tensor([ids]), use_cache=False).logits
            positions.append([looked[layer] for layer in range(4)])
            ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt):], np.array(positions)


def selected(lm, prompt, p):
    """The same for Select-Attention, which sees the whole prompt for the first token."""
    ids, positions = list(prompt), []
    for step in range(STEPS):
        logits, _, looked = in_two(lm, ids, p if step else 99)
        positions.append(looked)
        ids.append(int(logits.argmax()))
    return ids[len(prompt):], np.array(positions)


def expected(lm, variant, prompt):
    match variant:
        case MsPoe():
            with rescaled(lm.model, variant, prompt) as scales:
                ratios = {layer: own.ratios.tolist() for layer, own in scales.items()}
            return read_again(lm, prompt, ratios=ratios)
        case Retain():
            return read_again(lm, prompt, sharing=variant.plan(lm))
        case Select():
            return selected(lm, prompt, variant.p)
        case GemFilter():
            places = choose(lm, prompt, variant)
            tokens, looked = slow_answer(lm, [prompt[i] for i in places], STEPS)
            return tokens, np.array([*places, *range(len(prompt), 999)])[looked]
    with variant.attached(lm):
        return slow_answer(lm, prompt, STEPS)


@two_families
@pytest.mark.parametrize("variant", [
    MsPoe(**WIDE), MsPoe(**WIDE, order="position_aware"), SHARE, Select(filter_layer=1, p=0.6),
    GemFilter(filter_layer=1, tokens=60), Extended(factor=4, trained=64, layers="all")],
    ids=lambda v: f"{v.kind} {getattr(v, 'order', '')}")
def test_same_tokens_and_rows_as_by_hand(lm, variant):
    """Of cases that are read side by side, with what they share read once, or one by one."""
    cases = NiahBuilder(lm, load_haystacks()[:1]).grid(load_needles()[:1], (160, 200), (0.0, 1.0))
    how = {"max_new_tokens": STEPS, "stop_ids": set()}
    with variant.attached(lm) as model:
        found = [*batched(lm, cases, **how)] if model.batched else \
            [*one_by_one(cases, lambda ids: model.watch(ids, **how))]
        if model.batched:  # one by one is the same
            alone = model.watch(found[-1][0].input_ids, **how)
            np.testing.assert_array_equal(alone.positions, found[-1][1].positions)
    assert lm.model.config._attn_implementation == "sdpa" and len(found) == 4
    changed = 0
    for case, answer, _ in found[:1] + found[-1:]:
        tokens, looked = expected(lm, variant, case.input_ids)
        assert answer.tokens.tolist() == tokens
        np.testing.assert_array_equal(answer.positions, looked)
        changed += (slow_answer(lm, case.input_ids, STEPS)[1] != looked).sum()
    assert changed > 0


GRID = DetectConfig(lengths=(160,), depths=even_depths(2), needles=1, max_new_tokens=20)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-olmo3"])
def test_variants_that_change_nothing_score_as_plain_detection(name):
    lm = load_model(name)
    plain, table = run_cases(lm, GRID)
    assert table["success"].any() and plain.max() > 0.5
    for variant in (MsPoe(s_min=1, s_max=1, first_layer=0),
                    MsPoe(s_min=1, s_max=1, first_layer=0, order="position_aware"),
                    Share(threshold=0, prompts=1, tokens=200), Select(filter_layer=1, p=1),
                    GemFilter(filter_layer=1, tokens=999), Extended(method="ntk", factor=1)):
        with variant.attached(lm) as model:
            runs, same = run_cases(lm, GRID, watch=None if model.batched else model.watch)
        np.testing.assert_array_equal(runs, plain)
        assert same["response"].equals(table["response"])
