"""The loss of RetMask on one pair, step by step: what chapter *How RetMask works* shows live."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from rmutils.models import LanguageModel


def log_probability(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> Tensor:
    """Return log pi(y | x) of one answer, in nats: a scalar that gradients flow through."""
    ids = torch.tensor([[*prompt, *answer]], device=model.device)
    odds: Tensor = model(input_ids=ids).logits[0, len(prompt) - 1:-1].float().log_softmax(-1)
    return odds.gather(1, ids[0, len(prompt):, None]).sum()


def train_on_one_pair(
    lm: LanguageModel, encoded: Mapping[str, list[list[int]]], *, steps: int, learning_rate: float,
    beta: float,
) -> pd.DataFrame:
    """Take a few plain gradient steps of Equation 5 on the first pair, with a copy of the model.

    `encoded`: `prompt_ids`, `chosen_ids`, `rejected_ids`, as from
    `rmutils.training.encoding.encode`.
    Result: A row per step, 0 being the model before training: `chosen` and `rejected`, the
    log-probabilities of both answers in nats; `margin`, the argument of the sigmoid; `loss`.
    """
    prompt, chosen, rejected = (encoded[f"{name}_ids"][0] for name in (
        "prompt", "chosen", "rejected"))
    model = deepcopy(lm.model).requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    rows: list[dict[str, float]] = []
    with torch.enable_grad():
        for step in range(steps + 1):
            better, worse = (log_probability(model, prompt, y) for y in (chosen, rejected))
            if not rows:
                reference = better.item() - worse.item()
            margin = beta * (better - worse - reference)
            loss = -logsigmoid(margin)
            rows.append({"step": step, "chosen": better.item(), "rejected": worse.item(),
                         "margin": margin.item(), "loss": loss.item()})
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return pd.DataFrame(rows)
