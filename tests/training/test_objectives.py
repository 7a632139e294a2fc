"""Trainings of four steps, done again by a slow and obvious implementation."""

import copy
import math

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import logsigmoid
from trl import DPOConfig

from rmutils import load_model
from rmutils.models.trained import load_adapter
from rmutils.training import RECIPES, train
from rmutils.training.trainers import arguments
from tests.conftest import two_families
from tests.training.conftest import quick

LONG = {"max_prompt_length": 30, "max_length": 48}  # so that some are cut
RATES = [0, 1e-3, 1e-4 + 0.75 * 9e-4, 1e-4 + 0.25 * 9e-4]
"""By hand: a step of warm-up from 0; then half a cosine from 1e-3 to 1e-4, in thirds."""


@pytest.fixture
def pairs(pairs):
    """One long prompt and two long answers."""
    longer = pairs.copy()
    longer.loc[2, "prompt"] = "It is said that " + longer["prompt"][2]
    longer.loc[4, "chosen"] += " This is because the keys were hers, as she told all of us."
    longer.loc[5, "rejected"] += " What do I know of keys, of bridges, of people who hide things?"
    return longer


def sequence(lm, prompt: str, answer: str, keep: str) -> tuple[torch.Tensor, int]:
    """Token ids, cut, and how many of the last are the answer's and its end."""
    text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
    before, after = (lm.tokenizer.encode(t) for t in (text, f"{answer}<|im_end|>"))
    ids = before[-LONG["max_prompt_length"]:] + after
    excess = max(len(ids) - LONG["max_length"], 0)
    if keep == "end":
        return torch.tensor(ids[excess:]), min(len(after), LONG["max_length"])
    return torch.tensor(ids[: len(ids) - excess]), len(after) - excess


def log_probabilities(model, ids: torch.Tensor, answer: int) -> torch.Tensor:
    """Of each token of the answer, given those before it; the first of all has none before it."""
    odds = model(ids[None]).logits[0].log_softmax(-1)
    places = range(max(len(ids) - answer, 1), len(ids))
    return torch.stack([odds[place - 1, ids[place]] for place in places])


def train_slowly(lm, loss):
    """Four steps of AdamW on all pairs at once; the model, and what `loss` gave at each step."""
    model, told = copy.deepcopy(lm.model).train(), []
    matrices = [p for p in model.parameters() if p.ndim == 2]
    norms = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": norms, "weight_decay": 0.0}], betas=(0.9, 0.95))
    for rate in RATES:
        for group in optimizer.param_groups:
            group["lr"] = rate
        told.append(loss(model))
        told[-1]["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model, told


def assert_same_training(folder, lm, slow, told):
    curve = pd.read_csv(folder / "curve.csv")
    assert curve["step"].tolist() == [1, 2, 3, 4]
    assert curve["learning_rate"].tolist() == pytest.approx(RATES)
    for name in told[0]:
        values = [step[name].item() for step in told]
        assert curve[name].tolist() == pytest.approx(values, rel=1e-3, abs=1e-5), name
    fast = load_model(str(folder), dtype=torch.float32).model.state_dict()
    before = lm.model.state_dict()
    for name, weights in slow.state_dict().items():
        # Not each weight by itself: Adam divides by its gradient, which may be next to nothing.
        moved = (weights - before[name]).norm()
        assert moved > 0 and (fast[name] - weights).norm() < 1e-3 * moved, name


def test_dpo(lm, pairs, tmp_path):
    """Equation 5, with the last tokens of long sequences kept."""
    folder = train(lm, pairs, quick(batch=8, epochs=4, beta=0.3, **LONG), tmp_path / "out")

    def log_ratios(model, side):
        cut = [sequence(lm, p.prompt, getattr(p, side), "end") for p in pairs.itertuples()]
        with torch.no_grad():
            reference = [log_probabilities(lm.model, *c).sum() for c in cut]
        own = [log_probabilities(model, *c).sum() for c in cut]
        return 0.3 * (torch.stack(own) - torch.stack(reference))

    def loss(model):
        chosen, rejected = (log_ratios(model, side) for side in ("chosen", "rejected"))
        return {"loss": -logsigmoid(chosen - rejected).mean(), "chosen_reward": chosen.mean(),
                "rejected_reward": rejected.mean(), "margin": (chosen - rejected).mean(),
                "accuracy": (chosen > rejected).float().mean()}

    slow, told = train_slowly(lm, loss)
    assert told[0]["loss"].item() == pytest.approx(math.log(2)) and told[3]["margin"] > 0.1
    assert_same_training(folder, lm, slow, told)


@two_families
def test_sft(lm, pairs, tmp_path):
    """Mean over the tokens of all chosen answers, with the first tokens of long sequences kept."""
    folder = train(lm, pairs, quick(batch=8, epochs=4, objective="sft", **LONG), tmp_path / "out")

    def loss(model):
        cut = [sequence(lm, p.prompt, p.chosen, "start") for p in pairs.itertuples()]
        return {"loss": -torch.cat([log_probabilities(model, *c) for c in cut]).mean()}

    slow, told = train_slowly(lm, loss)
    assert_same_training(folder, lm, slow, told)
    assert "margin" not in pd.read_csv(folder / "curve.csv")


@two_families
def test_lora(lm, pairs, tmp_path):
    """W + 2 B A in all linear layers but the head, with B and A as they were saved."""
    folder = train(lm, pairs, quick(lora_rank=3), tmp_path / "an adapter")
    saved = load_file(folder / "adapter_model.safetensors")
    assert {t.dtype for t in saved.values()} == {torch.float16}
    assert not (folder / "model.safetensors").exists()
    merged = load_adapter(lm, folder)
    by_hand = copy.deepcopy(lm.model)
    linear = {n: m for n, m in by_hand.named_modules()
              if isinstance(m, torch.nn.Linear) and n != "lm_head"}
    assert len(saved) == 2 * len(linear) == 2 * 4 * 7
    for name, module in linear.items():
        a, b = (saved[f"base_model.model.{name}.lora_{x}.weight"].float() for x in "AB")
        assert a.shape[0] == b.shape[1] == 3 and b.any()
        module.weight.data += 2 * b @ a
    ids = torch.tensor([lm.tokenizer.encode("Who hid the keys?")])
    with torch.no_grad():
        found, expected, before = (m(ids).logits for m in (merged.model, by_hand, lm.model))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert (expected - before).abs().max() > 1e-2
    assert merged.name == "an adapter" and merged.identity.startswith(lm.identity)


def test_recipe_of_the_paper():
    """Appendix A of the paper; then what is in force in the authors' script."""
    paper = RECIPES["paper"]
    assert (paper.objective, *paper.betas) == ("dpo", 0.9, 0.95)
    assert (paper.warmup, paper.learning_rate, paper.min_learning_rate) == (0.1, 5e-7, 5e-8)
    assert (paper.weight_decay, paper.batch) == (0.1, 512)
    assert (paper.epochs, paper.beta, paper.max_length, paper.max_prompt_length) == \
        (2, 0.1, 1024, 512)
    assert (paper.precision, paper.gradient_checkpointing) == ("bfloat16", True)
    assert paper.lora_rank is None and paper.max_steps is None


def test_one_process_takes_one_gpu(tmp_path, monkeypatch):
    """Of several; TRL refuses to train on all of them by torch.nn.DataParallel."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(DPOConfig, "n_gpu", property(lambda self: self._n_gpu or 2))
    assert arguments(RECIPES["smoke"], tmp_path).n_gpu == 1
