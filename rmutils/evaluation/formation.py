"""How retrieval heads form: the heads of one model at every snapshot of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor

from rmutils.attention.decoding import capturing, decode
from rmutils.core.config import Config, command_line
from rmutils.core.errors import UserError
from rmutils.core.journal import progress_bar
from rmutils.core.paths import CORPORA
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.core.validation import Count
from rmutils.corpora.niah import NiahCase, load_haystacks
from rmutils.evaluation.answers import find_needles
from rmutils.heads.answering import tokens_together
from rmutils.heads.copy_score import copy_counts
from rmutils.heads.detection import DetectConfig, build_cases, even_depths, inputs_of
from rmutils.heads.scores import HeadScores
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.changes import using
from rmutils.models.engine.caches import Trunk
from rmutils.models.loading import corpus_of, find_trained
from rmutils.stats import SHARE, interval


@dataclass(frozen=True)
class Induction:
    """Copying: how well a model does it, and which heads find what is to be copied."""

    first_loss: float  # mean loss (nats per token) where a span is said first
    second_loss: float  # and where it is said again
    # (layers, heads), 0 to 1: the mean attention that a token of the second copy pays to the token
    # that followed it in the first: to what should come next
    prefix_matching: np.ndarray


def spoken_twice(lm: LanguageModel, rows: int, span: int, seed: int = 0) -> Tensor:
    """(rows, 2 span) token ids: in each row a span of different random tokens, two times."""
    texts = [haystack.text for haystack in load_haystacks(CORPORA[lm.corpus] / "haystack")]
    encoded = map(lm.encode, texts)
    known = sorted(set(chain.from_iterable(encoded)))
    rng = np.random.default_rng(seed)
    once = np.stack([rng.choice(known, span, replace=False) for _ in range(rows)])
    return torch.tensor(np.concatenate([once, once], axis=1), device=lm.model.device)


@torch.inference_mode()
def induction(lm: LanguageModel, *, rows: int = 16, span: int = 32, seed: int = 0) -> Induction:
    """The induction test (Olsson et al., 2022): losses on both copies, and each head's part."""
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


class FormationConfig(Config):
    """The questions to each snapshot; the sizes are ours."""

    lengths: tuple[int, ...] = (256,)
    """Prompt lengths in tokens."""
    depths: tuple[float, ...] = even_depths(5)
    """Needle positions, from 0 (start of the context) to 1 (its end)."""
    needles: int = 8
    """How many needles of the corpus, from its start."""
    max_new_tokens: int = 30
    """Longest answer of the model's own."""
    rows: Count = 16
    """Texts of random tokens."""
    span: Annotated[int, Field(ge=2)] = 32
    """Tokens of a span, which each of these texts says twice."""

    @property
    def grid(self) -> DetectConfig:
        return DetectConfig(**self.model_dump(exclude={"rows", "span"}))


@dataclass(frozen=True)
class Formation:
    """Two tables over the steps of a training."""

    heads: pd.DataFrame
    steps: pd.DataFrame


FORMATION = Stage.of_tables("formation", 2, Formation, lambda result: {
    "snapshots": len(result.steps)})


def forced_scores(lm: LanguageModel, cases: Sequence[NiahCase]) -> HeadScores:
    """Retrieval scores of a model that need not be able to answer; every case is a run."""
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
    """Measure all snapshots of a training."""
    paths = sorted((folder / ".training" / "snapshots").glob("*.safetensors"))
    if not paths:
        raise UserError(f"{folder.name} has no snapshots of its training on this machine. Train "
                        f"it again: `rmutils models train {folder.name}`.")
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
            found, low, high = interval(success, scores.clusters, bounds=SHARE)
            heads.append(_head_table(int(path.stem), scores, copying))
            steps.append({
                "step": int(path.stem), "first_copy_loss": copying.first_loss,
                "second_copy_loss": copying.second_loss, "found": found,
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
    """The head with the highest final score, and the first snapshot with half of that score."""
    heads = result.heads
    best = heads[heads["step"] == heads["step"].max()].nlargest(1, "retrieval").iloc[0]
    its = heads[(heads["layer"] == best["layer"]) & (heads["head"] == best["head"])]
    half = its[its["retrieval"] >= best["retrieval"] / 2].nsmallest(1, "step").iloc[0]
    return {"layer": int(best["layer"]), "head": int(best["head"]), "score": best["retrieval"],
            "low": best["retrieval_low"], "high": best["retrieval_high"],
            "half by step": int(half["step"]), "matching then": half["prefix_matching"],
            "matching at the end": best["prefix_matching"]}


def formation_stored(name: str, config: FormationConfig = FormationConfig(), *,
                     compute: Compute = "auto") -> tuple[Formation, Artifact]:
    """`formation` of a model by its name or folder, but a stored result is read instead."""

    return FORMATION.obtain(
        config, inputs_of(identify(name, torch.float32), config.grid, corpus_of(name)),
        lambda journal: formation(find_trained(name) or Path(name), config), compute=compute,
        command=command_line("models", "train", name), model=name)
