"""How far a training has moved a model: its next words on held-out text against the base model's.

The paper looks at scores only (section 5.1). The divergence is what the beta of DPO holds back
(equation 5), measured here on text that has nothing to do with the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch

from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.models.engine.generation import next_token_logits
from rmutils.stats import draws, interval_of

FROM_BASE, FROM_TRAINED = "KL from the base model", "KL from the trained model"
PERPLEXITY_BEFORE, PERPLEXITY = "perplexity before", "perplexity after"
RATIO, LOSS = "perplexity after / before", "change of the loss"


def passage_drift(
    lm: LanguageModel, base: LanguageModel, text: Sequence[int], known: int
) -> dict[str, float]:
    """Sums over the tokens of a text from `known` on.

    Parameters
    ----------
    text : sequence of int
        Token ids, the same for both models.
    known : int
        Tokens at the beginning that are not asked for.

    Returns
    -------
    dict
        `tokens`; `base_nats` and `nats`: minus the log-probability that the base model and the
        trained one give the text; `from_base`: sum of p ln(p / q) with the base model's p and the
        trained model's q for the next token; `from_trained`: the same with p and q exchanged.

    Raises
    ------
    UserError
        The models have different vocabularies.
    """
    mine, theirs = (next_token_logits(model, text)[known - 1:-1].double().log_softmax(-1)
                    for model in (lm, base))
    if mine.shape != theirs.shape:
        raise UserError(f"{lm.name} has {mine.shape[1]} tokens and {base.name} {theirs.shape[1]}: "
                        f"the divergence needs models with one vocabulary.")
    said = torch.tensor(text[known:])[:, None]
    gap = theirs - mine
    return {"tokens": len(said), "base_nats": -theirs.gather(1, said).sum().item(),
            "nats": -mine.gather(1, said).sum().item(),
            "from_base": (theirs.exp() * gap).sum().item(),
            "from_trained": -(mine.exp() * gap).sum().item()}


def drift_table(passages: pd.DataFrame) -> pd.DataFrame:
    """Means per token, with intervals.

    Parameters
    ----------
    passages : DataFrame
        `passage`, optionally `seed` (of several trainings), and the columns of `passage_drift`.

    Returns
    -------
    DataFrame
        `measure`, `value`, `low`, `high` (95 %, over passages and seeds). Divergences and the
        change of the loss are in nats per token.
    """
    of_seeds = passages if "seed" in passages else passages.assign(seed=0)
    sums = np.stack([of_seeds.pivot(index="passage", columns="seed", values=name)
                     for name in _SUMS], axis=-1)
    drawn = draws(sums, seeds=True)
    per_token = dict(zip(_SUMS, (drawn / drawn[:, :1]).T, strict=True))
    rows = []
    for measure, of in _MEASURES.items():
        rows.append((measure, *interval_of(of(per_token))))
    return pd.DataFrame(rows, columns=["measure", "value", "low", "high"])


_SUMS = ("tokens", "base_nats", "nats", "from_base", "from_trained")
_MEASURES: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    FROM_BASE: lambda mean: mean["from_base"], FROM_TRAINED: lambda mean: mean["from_trained"],
    PERPLEXITY_BEFORE: lambda mean: np.exp(mean["base_nats"]),
    PERPLEXITY: lambda mean: np.exp(mean["nats"]),
    RATIO: lambda mean: np.exp(mean["nats"] - mean["base_nats"]),
    LOSS: lambda mean: mean["nats"] - mean["base_nats"],
}
