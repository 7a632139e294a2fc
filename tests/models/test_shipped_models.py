"""The teaching models as they ship: what they are, and that they reach what their cards say."""

import re

import numpy as np
import pandas as pd
import pytest

from rmutils.core.paths import SHIPPED_MODELS
from rmutils.corpora.world.knowledge import instructions
from rmutils.evaluation.answers import answer, find_needles
from rmutils.evaluation.teaching_card import DETECTION, NEEDLES, WANTED, read_card
from rmutils.heads import detect, mask_heads
from rmutils.heads.detection import detect_stored
from rmutils.models import load_model
from rmutils.models.known_models import REGISTRY
from rmutils.models.teaching import RECIPES, first_steps

CLASSES = {"tiny-llama": "LlamaForCausalLM", "tiny-qwen3": "Qwen3ForCausalLM",
           "tiny-olmo3": "Olmo3ForCausalLM"}
NAMES = list(CLASSES)
SHIPPED = sorted(folder.name for folder in SHIPPED_MODELS.iterdir())


@pytest.fixture(scope="module", params=NAMES)
def lm(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # not one that the user has trained
        patch.setenv("RMUTILS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield load_model(request.param)


def card_value(lm, measure: str, condition: str) -> float:
    card = pd.read_csv(SHIPPED_MODELS / lm.name / "scores.csv", keep_default_na=False)
    return card[(card.measure == measure) & (card.condition == condition)].value.item()


def test_what_ships_fits_and_has_a_recipe():
    assert set(NAMES) <= set(SHIPPED) <= set(RECIPES)
    sizes = {name: sum(p.stat().st_size for p in (SHIPPED_MODELS / name).rglob("*"))
             for name in SHIPPED}
    assert max(sizes.values()) <= 12e6 and sum(sizes.values()) <= 40e6


def test_thinks_first_where_asked(tmp_path, monkeypatch):
    """`<think>...</think>`, then the answer; with thinking off, the answer alone."""
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    lm = load_model("tiny-qwen3")
    samples = instructions(20, "thinking", "held_out")
    for thinking in (False, True):
        told = answer(lm, [lm.render(s.prompt, thinking=thinking) for s in samples],
                      max_new_tokens=160)
        thoughts = [re.match(r"<think>\n.*?\n</think>\n\n\S", text, re.DOTALL) for text in told]
        assert sum(map(bool, thoughts)) >= 19 if thinking else not any("think>" in t for t in told)


def test_detection_can_be_repeated(lm):
    """The first needles of the shipped detection, asked again: each answer and score."""
    shipped, _ = detect_stored(lm, DETECTION, compute="never")
    again = detect(lm, DETECTION.changed({"needles": 2}))
    same = ["needle", "length", "depth", "success", "response"]
    cases = shipped.cases[shipped.cases.needle < 2]
    assert again.cases[same].to_numpy().tolist() == cases[same].to_numpy().tolist()
    np.testing.assert_allclose(again.runs, shipped.runs[shipped.clusters < 2], atol=1e-6)


def test_masking(lm):
    """Some of the card's own grid, asked again without the retrieval heads. What the whole model
    answers is asked in the test before this one."""
    scores, _ = detect_stored(lm, DETECTION, compute="never")
    heads = scores.select(tau=REGISTRY[lm.name].tau)
    with mask_heads(lm, heads):
        masked = find_needles(lm, NEEDLES[512].changed({"needles": 2})).success.mean()
    assert len(heads) == card_value(lm, "heads at or above tau", "count")
    assert card_value(lm, "needles found", "512 tokens") - masked == pytest.approx(
        card_value(lm, "needles lost by masking", "retrieval heads"), abs=0.06)


def test_card_says_what_falls_short(lm):
    card = read_card(lm.name)
    text = (SHIPPED_MODELS / lm.name / "README.md").read_text()
    missed = card[card.reached == "no"]
    assert len(card.reached.dropna()) == len(WANTED)
    assert ("It reaches all that was wanted of it." in text) == missed.empty
    assert all(f"- {m.measure} ({m.condition}):" in text for m in missed.itertuples())


def test_training_can_be_repeated(lm):
    """The first steps give the logged losses, so code, texts and weights belong together."""
    logged = pd.read_csv(SHIPPED_MODELS / lm.name / "training.csv")
    again = first_steps(RECIPES[lm.name], 2)
    assert again.length.tolist() == logged.length[:2].tolist()
    assert again.answer_loss.tolist() == pytest.approx(logged.answer_loss[:2].tolist(), abs=0.002)
    assert len(logged) == RECIPES[lm.name].steps
