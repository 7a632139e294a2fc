"""Copying at its barest: random tokens said twice, where nothing but copying helps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from rmutils.corpora.haystack import load_haystacks
from rmutils.models import LanguageModel
from rmutils.models.attention import using
from rmutils.paths import CORPORA


@dataclass(frozen=True)
class Induction:
    """How well a model copies, and which heads find what is to be copied.

    Attributes
    ----------
    first_loss, second_loss : float
        Mean loss (nats per token) where a span is said first and where it is said again.
    prefix_matching : ndarray
        (layers, heads), 0 to 1: the mean attention that a token of the second copy pays to the
        token that followed it in the first: to what should come next.
    """

    first_loss: float
    second_loss: float
    prefix_matching: np.ndarray


def spoken_twice(lm: LanguageModel, rows: int, span: int, seed: int = 0) -> Tensor:
    """(rows, 2 span) token ids: in each row a span of different random tokens, two times.

    They are tokens that occur in the haystacks of the model's corpus, as a model trained on little
    text has never read many of the others. They are different, so that each has one previous
    occurrence.
    """
    texts = [haystack.text for haystack in load_haystacks(CORPORA[lm.corpus] / "haystack")]
    encoded = lm.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    known = sorted(set(chain.from_iterable(encoded)))
    rng = np.random.default_rng(seed)
    once = np.stack([rng.choice(known, span, replace=False) for _ in range(rows)])
    return torch.tensor(np.concatenate([once, once], axis=1), device=lm.model.device)


@torch.inference_mode()
def induction(lm: LanguageModel, *, rows: int = 16, span: int = 32, seed: int = 0) -> Induction:
    """The induction test: losses on both copies of random spans, and each head's part in it.

    The first token of a span counts in neither loss, as nothing tells that it is next.

    References
    ----------
    Olsson et al. (2022), "In-context Learning and Induction Heads".
    """
    ids = spoken_twice(lm, rows, span, seed)
    with using(lm.model, "eager"):  # the one that shows its attention
        out = lm.model(input_ids=ids, output_attentions=True, use_cache=False)
    told = out.logits[:, :-1].float().log_softmax(-1)
    loss = -told.gather(2, ids[:, 1:, None])[..., 0].mean(0)  # of the tokens 1 to 2 span - 1
    again = torch.arange(span, 2 * span, device=ids.device)
    attention = torch.stack(out.attentions).float()  # (layers, rows, heads, queries, keys)
    return Induction(
        loss[: span - 1].mean().item(), loss[span:].mean().item(),
        attention[..., again, again - span + 1].mean((1, 3)).cpu().numpy(),
    )
