"""How probable chosen and rejected responses are to a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config, digest
from rmutils.models import LanguageModel
from rmutils.models.memory import in_batches

LIKELIHOODS = Stage("likelihoods", version=1)
BATCH_TOKENS = 2048
"""Tokens read at once, in one sequence at least: the logits of each take memory for the whole
vocabulary."""


def log_likelihoods(
    lm: LanguageModel, encoded: Mapping[str, list], *, batch_tokens: int = BATCH_TOKENS
) -> pd.DataFrame:
    """Log-probability of both responses to each prompt, in nats.

    Parameters
    ----------
    lm : LanguageModel
        The model before training: the reference of Equation 5.
    encoded : mapping
        `prompt_ids`, `chosen_ids`, `rejected_ids`: as `rmutils.training.encoding.encode` makes
        them for DPO, with the end of the turn where the response has one. Nothing is cut here, as
        long sequences are in training.
    batch_tokens : int
        Tokens read at once; without influence on the result but for its last bits.

    Returns
    -------
    DataFrame
        `chosen`, `rejected`: sums over the tokens; `chosen_mean`, `rejected_mean`: per token;
        `gap` and `gap_mean`: chosen less rejected.
    """
    found = pd.DataFrame()
    for side in ("chosen", "rejected"):
        answers = encoded[f"{side}_ids"]
        found[side] = log_probabilities(lm, encoded["prompt_ids"], answers, batch_tokens)
        found[f"{side}_mean"] = found[side] / [len(answer) for answer in answers]
    return found.assign(gap=found["chosen"] - found["rejected"],
                        gap_mean=found["chosen_mean"] - found["rejected_mean"])


@torch.inference_mode()
def log_probabilities(
    lm: LanguageModel, prompts: Sequence[list[int]], answers: Sequence[list[int]],
    batch_tokens: int = BATCH_TOKENS,
) -> list[float]:
    """Log-probability of each answer after its prompt: the sum over its tokens, in nats.

    Sequences are padded on the right, which no token of a causal model sees.

    Parameters
    ----------
    prompts, answers : sequence of lists of int
        Token ids, one at least of each prompt.
    """
    sequences = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]

    def read(batch: Sequence[int]) -> list[float]:
        width = max(len(sequences[i]) for i in batch)
        ids = torch.tensor([sequences[i] + [0] * (width - len(sequences[i])) for i in batch],
                           device=lm.model.device)
        logits = lm.model(input_ids=ids, use_cache=False).logits
        spans = [(len(prompts[i]), len(sequences[i])) for i in batch]
        return [-cross_entropy(logits[row, start - 1:end - 1].float(), ids[row, start:end],
                               reduction="sum").item() for row, (start, end) in enumerate(spans)]

    sums = {}
    for batch in _batches([len(sequence) for sequence in sequences], batch_tokens):
        for part, read_sums in in_batches(batch, len(batch), read, "sequence"):
            sums |= zip(part, read_sums, strict=True)
    return [sums[i] for i in range(len(sequences))]


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Numbers of sequences of like length, as many at once as fit into `size` tokens."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[i] > size:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


class LikelihoodConfig(Config):
    """Nothing is left to configure: model and token ids are inputs."""


def log_likelihoods_stored(
    lm: LanguageModel, encoded: Mapping[str, list], *, compute: Compute = "auto", command: str
) -> tuple[pd.DataFrame, Artifact]:
    """`log_likelihoods`, but a stored result is read instead.

    Parameters
    ----------
    command : str
        The command line that makes this result.
    """
    def make(folder: Path) -> dict:
        table = log_likelihoods(lm, encoded)
        table.to_parquet(folder / "likelihoods.parquet", index=False)
        return {"pairs": len(table)}

    ids = {name: encoded[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")}
    artifact = LIKELIHOODS.obtain(LikelihoodConfig(), {"model": lm.identity, "ids": digest(ids)},
                                  make, compute=compute, command=command)
    return pd.read_parquet(artifact.path("likelihoods.parquet")), artifact
