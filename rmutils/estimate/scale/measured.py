"""A formula held against a clock: does work foretell the time to read a longer text?"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from rmutils.models import LanguageModel
from rmutils.stats import cluster_bootstrap, percentiles
from rmutils.threads import one_thread


@torch.inference_mode()
def reading_times(
    lm: LanguageModel, lengths: Sequence[int], rounds: int, seed: int = 0
) -> pd.DataFrame:
    """Processor seconds of one thread to read texts of random tokens, all lengths in each round.

    The first round, in which much is done for the first time, is not counted.

    Returns
    -------
    DataFrame
        `round`, `length`, `seconds`, `cache` (bytes of keys and values at the end).
    """
    draw, rows = np.random.default_rng(seed), []
    count = lm.model.config.vocab_size
    with one_thread():
        for number in range(rounds + 1):
            for length in lengths:
                ids = torch.from_numpy(draw.integers(0, count, (1, length)))
                started = time.process_time()
                kept = lm.model(ids, use_cache=True, logits_to_keep=1).past_key_values
                seconds = time.process_time() - started
                size = sum(t.nbytes for layer in kept.layers for t in (layer.keys, layer.values))
                rows.append({"round": number, "length": length, "seconds": seconds, "cache": size})
    table = pd.DataFrame(rows)
    return table[table["round"] > 0].reset_index(drop=True)


def foretold(times: pd.DataFrame, work: dict[int, float]) -> tuple[float, np.ndarray, float]:
    """Time to read the longest text from the times of the shorter ones, which are taken as a fixed
    part and a part that grows with the work.

    Parameters
    ----------
    times : DataFrame
        As from `reading_times`, with three lengths or more.
    work : dict
        Length -> operations.

    Returns
    -------
    float, ndarray, float
        Measured time of the longest text over the foretold one; its 95 % interval over rounds; and
        the operations per second that the shorter texts show.
    """
    table = times.pivot(index="round", columns="length", values="seconds")
    drawn = cluster_bootstrap(table.to_numpy(), None)
    found = _ratio(table.to_numpy().mean(0)[None], [*table.columns], work)
    ratios = _ratio(drawn, [*table.columns], work)[0]
    return float(found[0][0]), percentiles(ratios), float(found[1][0])


def _ratio(
    means: np.ndarray, lengths: Sequence[int], work: dict[int, float]
) -> tuple[np.ndarray, np.ndarray]:
    """(samples, lengths) -> measured over foretold, and operations per second."""
    *shorter, longest = sorted(range(len(lengths)), key=lambda i: lengths[i])
    known = np.array([work[lengths[i]] for i in shorter])
    # Relative errors count alike: short texts are not to be lost beside long ones.
    weights = 1 / means[:, shorter]
    rows = []
    for weight in weights:
        design = np.stack([np.ones_like(known), known], axis=1) * weight[:, None]
        rows.append(np.linalg.lstsq(design / design.max(0), np.ones(len(known)), rcond=None)[0]
                    / design.max(0))
    fixed, each = np.array(rows).T
    return means[:, longest] / (fixed + each * work[lengths[longest]]), 1 / each
