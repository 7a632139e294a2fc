"""How often a masked model loses a name, a format or its reasoning: the counts behind appendix H.

The appendix shows one prompt of each kind with the responses of three models: whole, without its
retrieval heads, without as many others. Here the same three answer many prompts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config, digest
from rmutils.contrast.backends import Transformers
from rmutils.contrast.instructions import Instruction
from rmutils.contrast.responses import ResponseConfig, respond
from rmutils.corpora.world.failure_prompts import failure_prompts
from rmutils.evaluation.failure_checks import OUTCOMES
from rmutils.evaluation.failure_counts import WHOLE, FailureModes
from rmutils.heads.detection import DetectConfig, even_depths
from rmutils.heads.masking import choose
from rmutils.heads.scores import Head, HeadScores
from rmutils.heads.store import detect_stored
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of

FAILURE_MODES = Stage("failure-modes", version=1)
RESPONSES = "responses.parquet"
Masks = Mapping[str, Sequence[Sequence[Head]]]
"""What is masked, such as `retrieval` -> a set of heads for each draw."""


class FailureConfig(Config):
    """Which heads are masked and what is asked. The paper counts nothing here: the sizes are ours.
    """

    lengths: tuple[int, ...] = (256, 512, 768, 1024, 1536, 2048, 3072, 4096)
    """Detection that tells the retrieval heads: prompt lengths in tokens."""
    depths: Annotated[int, Field(ge=1)] = 10
    """Its needle depths, evenly from 0 to 1."""
    tau: float = 0.1
    """Lowest score of a retrieval head: "threshold tau = 0.1 for Llama-3.1" (section 4.1)."""
    draws: Annotated[int, Field(ge=1)] = 4
    """Sets of other heads that are masked in turn."""
    mask_seed: int = 42
    """Of the first of these sets; the next ones count on. 42 in the authors' scripts."""
    prompts: Annotated[int, Field(ge=1)] = 100
    """Of each kind."""
    seed: int = 0
    """Draws the prompts."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 64
    """Longest response. 2,048 in the authors' scripts, whose instructions ask for more."""

    @property
    def grid(self) -> DetectConfig:
        """The detection."""
        return DetectConfig(lengths=self.lengths, depths=even_depths(self.depths))

    def masks(self, scores: HeadScores) -> dict[str, list[list[Head]]]:
        """The retrieval heads, and as many others in each draw (section 4.1)."""
        seeds = range(self.mask_seed, self.mask_seed + self.draws)
        return {"retrieval": [choose(scores, "retrieval", tau=self.tau)],
                "non-retrieval": [choose(scores, "non-retrieval", tau=self.tau, seed=seed)
                                  for seed in seeds]}


def failure_modes(
    lm: LanguageModel, masks: Masks, config: FailureConfig, journals: Path | None = None
) -> FailureModes:
    """Ask the whole model and each masked one, and check what they say.

    Responses are greedy, so that nothing but the heads differs. Where the model can think, it does
    for reasoning chains and for nothing else.

    Parameters
    ----------
    masks : mapping
        `retrieval` and `non-retrieval`: the heads to mask, for each draw.
    config : FailureConfig
        Only `prompts`, `seed` and `max_new_tokens` are of use here.
    journals : Path, optional
        Folder that keeps each response as it comes; a run that was stopped goes on from there.
    """
    prompts = failure_prompts(config.prompts, config.seed, lm.corpus)
    backend, tables = Transformers(lm), []
    for masked, draw, heads in [(WHOLE, 0, ()), *((name, i, heads) for name, draws in masks.items()
                                                  for i, heads in enumerate(draws))]:
        for kind in OUTCOMES:
            asked = {i: prompt for i, prompt in enumerate(prompts) if prompt.kind == kind}
            settings = ResponseConfig(
                heads=tuple(heads), temperature=0, max_new_tokens=config.max_new_tokens,
                thinking=kind == "reasoning chain")
            said = respond(backend, [Instruction.of(p.text) for p in asked.values()], settings,
                           journals and journals / f".{masked}-{draw}.jsonl")
            tables.append(pd.DataFrame({
                "prompt": list(asked), "kind": kind, "form": [p.form for p in asked.values()],
                "masked": masked, "draw": draw, "text": said["text"],
                "finished": said["finished"]}))
    return FailureModes.of(prompts, pd.concat(tables, ignore_index=True))


def failure_modes_stored(
    name: str, config: FailureConfig = FailureConfig(), *, compute: Compute = "auto"
) -> tuple[FailureModes, Artifact]:
    """`failure_modes` of a model by its name or folder, but stored responses are read instead.

    Responses are kept, not what came out of them: they are checked when they are read. The
    detection of `config.grid` is looked up likewise, and run if it is not stored.

    Parameters
    ----------
    name : str
    config : FailureConfig
    compute : {"auto", "always", "never"}
        Of the responses; "never" holds for the detection, too.

    Raises
    ------
    UserError
        No head reaches `config.tau`, too few heads are left to mask others, or nothing is stored
        and `compute="never"`; with the command that makes it.
    """
    scores, _ = detect_stored(name, config.grid, compute="never" if compute == "never" else "auto")
    masks, prompts = config.masks(scores), failure_prompts(config.prompts, config.seed,
                                                           corpus_of(name))

    def make(folder: Path) -> dict:
        found = failure_modes(load_model(name), masks, config, folder)
        found.table.drop(columns=["outcome", "passed"]).to_parquet(folder / RESPONSES, index=False)
        return {"responses": len(found.table), "heads masked": len(masks["retrieval"][0])}

    inputs = {"model": identify(name), "heads": digest(masks),
              "prompts": digest([prompt.text for prompt in prompts])}
    artifact = FAILURE_MODES.obtain(config, inputs, make, compute=compute,
                                    command=command_of(name, config))
    return FailureModes.of(prompts, pd.read_parquet(artifact.path(RESPONSES))), artifact


def command_of(name: str, config: FailureConfig) -> str:
    """The chapter with these parameters makes this result."""
    changes = {"model": name, **config.differences(FailureConfig()), "compute": "auto"}
    return shlex.join(["rmutils", "run", "08_failure_modes",
                       *(word for item in changes.items() for word in ("-p", *item))])
