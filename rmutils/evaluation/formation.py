"""How retrieval heads form: the heads of one model at every snapshot of its training.

A model that cannot answer yet has no retrieval score, as Equation 1 counts successful answers only.
So the right answer is forced on it here, and what its heads look at meanwhile is counted.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from safetensors.torch import load_file

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.attention.retrieval_capture import capturing
from rmutils.config import Config
from rmutils.corpora.niah import NiahCase
from rmutils.errors import UserError
from rmutils.evaluation.needles import find_needles
from rmutils.heads.answering import tokens_together
from rmutils.heads.decoding import decode
from rmutils.heads.detection import DetectConfig, build_cases, even_depths
from rmutils.heads.induction import Induction, induction
from rmutils.heads.scores import HeadScores
from rmutils.heads.scoring import copy_counts
from rmutils.heads.store import inputs_of
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of, find_trained
from rmutils.models.prefixes import Trunk
from rmutils.progress import progress_bar
from rmutils.stats import cluster_bootstrap, percentiles

FORMATION = Stage("formation", version=1)


class FormationConfig(Config):
    """What is asked of each snapshot; the sizes are ours."""

    lengths: tuple[int, ...] = (256,)
    """Prompt lengths in tokens."""
    depths: tuple[float, ...] = even_depths(5)
    """Needle positions, from 0 (start of the context) to 1 (its end)."""
    needles: int = 8
    """How many needles of the corpus, from its start."""
    max_new_tokens: int = 30
    """Longest answer of the model's own."""
    rows: Annotated[int, Field(ge=1)] = 16
    """Texts of random tokens."""
    span: Annotated[int, Field(ge=2)] = 32
    """Tokens of a span, which each of these texts says twice."""

    @property
    def grid(self) -> DetectConfig:
        """The needle-in-a-haystack part."""
        return DetectConfig(**self.model_dump(exclude={"rows", "span"}))


@dataclass(frozen=True)
class Formation:
    """Two tables over the steps of a training.

    Attributes
    ----------
    heads : DataFrame
        `step`, `layer`, `head`, `retrieval` (forced score) with `retrieval_low`, `retrieval_high`
        (95 % interval over needles), `prefix_matching`.
    steps : DataFrame
        `step`, `first_copy_loss`, `second_copy_loss` (nats), `found` (share of needles, by the
        model's own answers) with `found_low`, `found_high`.
    """

    heads: pd.DataFrame
    steps: pd.DataFrame


def forced_scores(lm: LanguageModel, cases: Sequence[NiahCase]) -> HeadScores:
    """Retrieval scores of a model that need not be able to answer.

    What is forced is the inserted sentence, in the very tokens it has in the prompt: a whole
    sentence is what a teaching model answers, and each token of the value could be copied. It is
    counted as Equation 1 says, so the words before the value count nothing unless they are words of
    the value too. Every case is a run.
    """
    longest = max(len(case.input_ids) for case in cases)
    size = tokens_together(lm, longest) // longest
    runs = []
    with capturing(lm.model) as recorder:
        for batch in (cases[i : i + size] for i in range(0, len(cases), size)):
            answers = decode(
                lm.model, recorder, [case.input_ids for case in batch],
                [Trunk(lm.model, case.input_ids[:-1]).cache for case in batch],
                forced=[case.input_ids[slice(*case.inserted_span)] for case in batch],
            )
            runs += [copy_counts(answer, case.input_ids, case.needle_span)
                     / len(range(*case.needle_span))
                     for case, answer in zip(batch, answers, strict=True)]
    return HeadScores(np.stack(runs), lm.name, np.array([case.needle_index for case in cases]))


def formation(folder: Path, config: FormationConfig = FormationConfig()) -> Formation:
    """Measure all snapshots of a training.

    Parameters
    ----------
    folder : Path
        A trained model with its hidden folder `.training`.

    Raises
    ------
    UserError
        It has no snapshots; or a needle does not fit into a length.
    """
    paths = sorted((folder / ".training" / "snapshots").glob("*.safetensors"))
    if not paths:
        raise UserError(f"{folder.name} has no snapshots of its training on this machine. Train "
                        f"it anew: `rmutils models train {folder.name}`.")
    lm = load_model(str(folder), dtype=torch.float32)
    cases = build_cases(lm, config.grid)
    heads, steps = [], []
    with progress_bar(f"heads of {folder.name} in training", len(paths),
                      unit="snapshots") as advance:
        for path in paths:
            state = load_file(path)  # holds the embeddings once; the output matrix is tied to them
            lm.model.load_state_dict(state | {"lm_head.weight": state["model.embed_tokens.weight"]})
            scores = forced_scores(lm, cases)
            copying = induction(lm, rows=config.rows, span=config.span)
            success = find_needles(lm, config.grid)["success"].to_numpy()
            low, high = percentiles(cluster_bootstrap(success, scores.clusters))
            heads.append(_head_table(int(path.stem), scores, copying))
            steps.append({
                "step": int(path.stem), "first_copy_loss": copying.first_loss,
                "second_copy_loss": copying.second_loss, "found": success.mean(),
                "found_low": low, "found_high": high,
            })
            advance(1)
    return Formation(pd.concat(heads, ignore_index=True), pd.DataFrame(steps))


def _head_table(step: int, scores: HeadScores, copying: Induction) -> pd.DataFrame:
    layers, heads = np.indices(scores.shape)
    interval = scores.interval()
    columns = {"layer": layers, "head": heads, "retrieval": scores.mean,
               "retrieval_low": interval[..., 0], "retrieval_high": interval[..., 1],
               "prefix_matching": copying.prefix_matching}
    return pd.DataFrame({"step": step, **{k: v.ravel() for k, v in columns.items()}})


def half_risen(result: Formation) -> dict[str, float]:
    """The head with the highest score at the end, and the first snapshot with half of that score.

    Returns
    -------
    dict
        `layer`, `head`, `score` with `low` and `high`, `half by step`, `matching then` and
        `matching at the end` (prefix matching scores).
    """
    heads = result.heads
    best = heads[heads["step"] == heads["step"].max()].nlargest(1, "retrieval").iloc[0]
    its = heads[(heads["layer"] == best["layer"]) & (heads["head"] == best["head"])]
    half = its[its["retrieval"] >= best["retrieval"] / 2].nsmallest(1, "step").iloc[0]
    return {"layer": int(best["layer"]), "head": int(best["head"]), "score": best["retrieval"],
            "low": best["retrieval_low"], "high": best["retrieval_high"],
            "half by step": int(half["step"]), "matching then": half["prefix_matching"],
            "matching at the end": best["prefix_matching"]}


def formation_stored(
    name: str, config: FormationConfig = FormationConfig(), *, compute: Compute = "auto"
) -> tuple[Formation, Artifact]:
    """`formation` of a model by its name or folder, but a stored result is read instead.

    Reading needs the trained model, but none of the snapshots, which do not ship: the training is
    told by the weights that it ends with.
    """

    def make(folder: Path) -> dict:
        result = formation(find_trained(name) or Path(name), config)
        result.heads.to_parquet(folder / "heads.parquet", index=False)
        result.steps.to_parquet(folder / "steps.parquet", index=False)
        return {"snapshots": len(result.steps)}

    inputs = inputs_of(identify(name, torch.float32), config.grid, corpus_of(name))
    artifact = FORMATION.obtain(config, inputs, make, compute=compute,
                                command=shlex.join(["rmutils", "models", "train", name]))
    tables = (pd.read_parquet(artifact.path(f"{table}.parquet")) for table in ("heads", "steps"))
    return Formation(*tables), artifact
