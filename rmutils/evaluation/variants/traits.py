"""What Ms-PoE and Share-Attention go by when they look at a head, for every head of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rmutils.attention.ms_poe import MsPoeConfig, rescaled
from rmutils.attention.sharing_plans import mean_distances
from rmutils.evaluation.variants.kinds import Share
from rmutils.evaluation.variants.under import calibration
from rmutils.heads.before_after import needle_weights
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel
from rmutils.stats import RESAMPLES, percentiles

KEYS, DISTANCE = "keys looked at", "distance to the nearest head"
UNCHANGED = MsPoeConfig(s_min=1, s_max=1, first_layer=0, order="position_aware")
"""All layers, and ratios that change nothing."""


def traits(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], questions: Sequence[int],
    share: Share = Share(),
) -> pd.DataFrame:
    """Two measures of each head, in the model as it is.

    *Keys looked at* is the share of the keys that get more than three times the mean attention of
    the last query, positions left out: Ms-PoE calls heads with high shares position-aware.
    *Distance to the nearest head* is that of Share-Attention (Equation 9) to the head of the same
    layer whose map is most alike: heads with low distances share first.

    Parameters
    ----------
    prompts : sequence of sequence of int
        For the first measure. For the second, those that Share-Attention is calibrated on.
    questions : sequence of int
        Of each of these prompts the number of what it asks for: prompts may differ in the place of
        the answer only.

    Returns
    -------
    DataFrame
        `trait`, `prompt`, `question`, `layer`, `head`, `value`.
    """
    looked = []
    for prompt in prompts:
        with rescaled(lm.model, UNCHANGED, prompt) as scales:
            looked.append([scales[i].shares.tolist() for i in sorted(scales)])
    nearest = []
    for prompt in calibration(lm, share):
        apart = mean_distances(lm.model, [prompt])
        apart[:, range(lm.shape[1]), range(lm.shape[1])] = np.inf
        nearest.append(apart.min(-1))
    return pd.concat([_long(np.array(looked), KEYS, questions),
                      _long(np.array(nearest), DISTANCE, range(len(nearest)))], ignore_index=True)


def _long(values: np.ndarray, trait: str, questions: Sequence[int]) -> pd.DataFrame:
    prompt, layer, head = (index.ravel() for index in np.indices(values.shape))
    return pd.DataFrame({"trait": trait, "prompt": prompt, "layer": layer, "head": head,
                         "question": np.asarray(questions)[prompt], "value": values.ravel()})


def set_apart(
    traits: pd.DataFrame, retrieval: Sequence[Head], *, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Whether a measure sets retrieval heads apart from other heads of the same layer.

    Parameters
    ----------
    traits : DataFrame
        As from the function of that name.
    retrieval : sequence of (layer, head)

    Returns
    -------
    DataFrame
        `trait`; `value`: how often a retrieval head has more of it than another head of its layer,
        ties counted half (0.5: no difference), with `low` and `high` over questions; `p`,
        two-sided: how often as many heads, drawn in each layer anew, are set apart as far.
    """
    rows, rng = [], np.random.default_rng(seed)
    for trait, part in traits.groupby("trait", sort=False):
        wide = part.pivot_table(index="question", columns=["layer", "head"], values="value")
        marked = np.isin(np.arange(wide.shape[1]), [wide.columns.get_loc(h) for h in retrieval])
        layers = wide.columns.get_level_values("layer").to_numpy()
        weights = needle_weights(len(wide), resamples, seed)
        means = weights @ wide.to_numpy()
        drawn = np.array([_more_often(mean, marked, layers) for mean in means])
        by_chance = np.array([_more_often(means[0], _shuffled(marked, layers, rng), layers)
                              for _ in range(resamples)])
        extreme = np.abs(by_chance - 0.5) >= abs(drawn[0] - 0.5) - 1e-12
        rows.append((trait, drawn[0], *percentiles(drawn[1:]),
                     (1 + extreme.sum()) / (1 + resamples)))
    return pd.DataFrame(rows, columns=["trait", "value", "low", "high", "p"])


def _more_often(values: np.ndarray, marked: np.ndarray, layers: np.ndarray) -> float:
    """Share of pairs within a layer in which the marked head has more."""
    pairs = marked[:, None] & ~marked & (layers[:, None] == layers)
    more = (values[:, None] > values) + 0.5 * (values[:, None] == values)
    return float(more[pairs].mean()) if pairs.any() else 0.5


def _shuffled(marked: np.ndarray, layers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = np.empty_like(marked)
    for layer in np.unique(layers):
        drawn[layers == layer] = rng.permutation(marked[layers == layer])
    return drawn
