"""The whole method (sections 2 and 3): `RetMaskSteps`, in this process or in jobs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.core.config import Config, added, command_line
from rmutils.core.errors import UserError
from rmutils.core.extras import needed
from rmutils.core.files import sha256
from rmutils.core.journal import progress_bar
from rmutils.core.results import JOURNAL, Artifact, Compute, Stage
from rmutils.core.validation import Count
from rmutils.heads import DetectConfig, HeadScores, detect
from rmutils.heads.detection import detect_stored, inputs_of, load, save
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.known_models import tau_of
from rmutils.models.loading import corpus_of
from rmutils.preference.instructions import SOURCES, draw_stored
from rmutils.preference.pairs import Pairs
from rmutils.preference.responses import Backend, ResponseConfig, respond_stored
from rmutils.preference.strategies import STRATEGIES, Strategy, contrast
from rmutils.training.compute_backend import ComputeBackend
from rmutils.training.recipes import RECIPES, TrainRecipe
from rmutils.training.running import train_stored

RETMASK = Stage("retmask", version=1)


class RetMaskConfig(Config):
    """A run. Its seed takes the place of those in its parts."""

    strategy: Annotated[str, STRATEGIES] = "retmask"
    """Where the rejected responses come from."""
    source: Annotated[str, SOURCES] = "world"
    """Source of the instructions, by name, or a .jsonl file."""
    instructions: Count = 1000
    """Pairs before filters. Ours; Table 12 has some 294,000 of LMSYS-Chat-1M for Llama-3.1."""
    tau: float | None = None
    """Lowest score of a retrieval head; None: the model's own. Section 4.1: 0.1 for Llama-3.1,
    0.05 for Qwen3 and Olmo-3."""
    detect: DetectConfig = DetectConfig()
    """The same cases before and after."""
    responses: ResponseConfig = ResponseConfig(max_new_tokens=128)
    """128 new tokens are ours, for short answers."""
    recipe: TrainRecipe = RECIPES["embedded"]
    synthesizer: str | None = None
    """The model that answers, if it is not the one to be trained (appendix E)."""
    smaller: str | None = None
    """The model of the rejected responses, for Smaller-Model (section 4.1)."""
    seed: int = 0
    """Seed of all draws: instructions, random heads, answers, order of the pairs. The paper has a
    single run of each kind (appendix A)."""
    half: Annotated[str, Field(pattern=r"^\d{1,4}[ab]$")] | None = added(None)
    """Mask only this half of the strategy's heads, such as 3a or 3b: see `half_of`."""


@dataclass(frozen=True)
class RetMaskRun:
    """A stored run. What it gave is read when it is first asked for."""

    model: str
    config: RetMaskConfig
    compute: Compute  # whether the detection before it may be computed
    artifact: Artifact  # all but `before`, which is a stored detection

    @cached_property
    def before(self) -> HeadScores:
        return detect_stored(self.model, self.config.detect, compute=self.compute)[0]

    @cached_property
    def after(self) -> HeadScores:
        """Scores on the same cases as `before`."""
        return load(self.artifact.folder, f"{self.model}, trained", self.config.detect.score)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """As `rmutils.preference.pairs.Pairs.table`."""
        return pd.read_parquet(self.artifact.path("pairs.parquet"))

    @cached_property
    def curve(self) -> pd.DataFrame:
        """The training, step by step, as `rmutils.training.train` writes it."""
        return pd.read_csv(self.artifact.path("curve.csv"))

    @cached_property
    def _record(self) -> dict:
        return json.loads(self.artifact.path("run.json").read_text())

    @property
    def heads(self) -> list[Head]:
        """Heads that were masked on the rejected side; empty if none were."""
        return [tuple(head) for head in self._record["heads"]]

    @property
    def dropped(self) -> dict[str, int]:
        """Pairs left out, by reason."""
        return self._record["dropped"]

    @property
    def training(self) -> str:
        """Name of the stored training, with the weights."""
        return self._record["training"]


class RetMaskSteps:
    """The steps of one run. Each keeps its own result and reads it where it is stored."""

    def __init__(self, model: str, config: RetMaskConfig, compute_backend: ComputeBackend, *,
                 compute: Compute = "auto", workers: int = 1):
        self.model, self.config = model, resolved(model, config)
        self.compute_backend, self.workers = compute_backend, workers
        self.author = config.synthesizer or model
        self.strategy: Strategy = STRATEGIES[config.strategy]
        self._kept = {"compute": compute, "command": run_command(model, config, compute_backend)}

    @cached_property
    def lm(self) -> LanguageModel:
        """The model to be trained."""
        return load_model(self.model)

    @cached_property
    def writer(self) -> LanguageModel:
        """The model that answers."""
        return self.lm if self.author == self.model else load_model(self.author)

    def detect(self) -> tuple[HeadScores, Artifact]:
        """Score the heads of the model before training."""
        return detect_stored(self.lm, self.config.detect, named=self.model)

    def mask(self, scores: HeadScores | None = None) -> list[Head]:
        """Choose the heads that are masked on the rejected side; none for some strategies."""
        if self.strategy.policy is None:
            return []
        if scores is None:
            scores, _ = detect_stored(self.author, self.config.detect)
        heads = self.strategy.choose_heads(scores, tau=self.config.tau, seed=self.config.seed)
        return half_of(heads, self.config.half) if self.config.half else heads

    def generate(self, side: int, heads: Iterable[Head]) -> tuple[pd.DataFrame, Artifact]:
        """Sample the responses of the chosen (0) or the rejected (1) side alone."""
        drawn, _ = self._instructions()
        if smaller := self._smaller(side):
            self.writer.model.to("cpu")  # the one that answers wants the GPU
        sides = self.strategy.sides(self._sampling(), [*heads])
        return respond_stored(self._backend(smaller or self.author), drawn.instructions,
                              sides[side], **self._kept)

    def pair(self, heads: list[Head]) -> tuple[Pairs, tuple[Artifact, ...]]:
        """Make the pairs, from responses of both sides; return what they were made from, too."""
        if self.strategy.released:
            count, seed = self.config.instructions, self.config.seed
            return self.strategy.released(self.writer, count, seed), ()
        drawn, written = self._instructions()
        smaller, device = self._smaller(1), self.writer.model.device
        other = self._backend(smaller) if smaller else None
        backend = self._backend(self.author)
        judge = self.compute_backend.judging(self.writer, self.config.responses.thinking)
        made = contrast(self.config.strategy, backend, drawn.instructions, self._sampling(),
                        heads=heads, other=other, judge=judge, **self._kept)
        for engine in filter(None, (backend, other)):
            engine.close()
        self.writer.model.to(device)
        return made.pairs, (*written, *made.artifacts)

    def train(self, pairs: pd.DataFrame) -> tuple[LanguageModel, Artifact]:
        return train_stored(self.lm, pairs, self.recipe, named=self.model,
                            means=self.compute_backend.launch,
                            at_once=self.compute_backend.pairs_at_once,
                            label=label_of(self.config), **self._kept)

    @property
    def recipe(self) -> TrainRecipe:
        """How the run trains."""
        return self.config.recipe.changed({
            "seed": self.config.seed, "objective": self.strategy.objective,
            "thinking": self.config.recipe.thinking and self.strategy.reasoning == "kept"})

    def _instructions(self):
        return draw_stored(self.config.source, self.config.instructions, seed=self.config.seed,
                           lm=self.writer)

    def _sampling(self) -> ResponseConfig:
        return self.config.responses.changed({"seed": self.config.seed})

    def _smaller(self, side: int) -> str | None:
        """The smaller model, if it answers on this side."""
        return self.config.smaller if side and self.strategy.smaller else None

    def _backend(self, name: str) -> Backend:
        lm = self.writer if name == self.author else load_model(name)
        return self.compute_backend.backend(lm, name, self.workers)


def run_retmask(model: str, config: RetMaskConfig = RetMaskConfig(), *, compute: Compute = "auto",
                workers: int = 1, compute_backend: ComputeBackend = ComputeBackend()) -> RetMaskRun:
    """Do all steps, or read them where they are stored. A stopped run goes on."""
    config = resolved(model, config)
    inputs = inputs_of(identify(model), config.detect, corpus_of(model))
    inputs |= {role: identify(name) for role in ("synthesizer", "smaller")
               if (name := getattr(config, role))}
    if config.source.endswith(".jsonl"):
        if not (file := Path(config.source)).is_file():
            raise UserError(f"{file}: no such file of instructions.")
        inputs["source"] = sha256(file)
    inputs |= compute_backend.inputs()
    steps = RetMaskSteps(model, config, compute_backend, compute=compute, workers=workers)
    artifact = RETMASK.obtain_folder(
        config, inputs, lambda folder: _run(steps, folder), compute=compute,
        command=run_command(model, config, compute_backend), model=model, label=label_of(config))
    return RetMaskRun(model, config, "never" if compute == "never" else "auto", artifact)


def _run(steps: RetMaskSteps, folder: Path) -> dict:
    """Do the steps and write down what they gave."""
    needed("rmutils.training.trainers")  # before responses, which may take hours
    with progress_bar(f"{steps.strategy.name} for {steps.model}", 4, unit="steps") as advance:
        _, before = steps.detect()
        heads = steps.mask()
        advance(1)
        pairs, made = steps.pair(heads)
        pairs.table.to_parquet(folder / "pairs.parquet", index=False, compression="zstd")
        advance(1)
        trained, training = steps.train(pairs.table)
        shutil.copy(training.path("curve.csv"), folder)
        advance(1)
        save(detect(trained, steps.config.detect, journal=folder / JOURNAL), folder)
        advance(1)
    artifacts = (before, *made, training)
    (folder / "run.json").write_text(json.dumps({
        "heads": heads, "dropped": pairs.dropped, "training": training.key,
        "artifacts": [artifact.key for artifact in artifacts]}, indent=1) + "\n")
    return {"pairs": len(pairs.table),
            "step_seconds": {a.key: a.manifest["seconds"] for a in artifacts}}


def half_of(heads: Iterable[Head], half: str) -> list[Head]:
    """Return a random half of some heads, in order: those of seed 1 are `"1a"` and `"1b"`."""
    ordered = sorted(heads)
    order = np.random.default_rng(int(half[:-1])).permutation(len(ordered))
    larger = (len(ordered) + 1) // 2
    chosen = order[:larger] if half.endswith("a") else order[larger:]
    return [ordered[i] for i in sorted(chosen)]


def resolved(model: str, config: RetMaskConfig) -> RetMaskConfig:
    """A configuration with the threshold of the model whose heads are masked."""
    if config.tau is not None:
        return config
    return config.changed({"tau": tau_of(config.synthesizer or model)})


def label_of(config: RetMaskConfig) -> str:
    """Return a run's part of the folder's name: `retmask-seed3`, `retmask-half1a-seed3`."""
    half = f"-half{config.half}" if config.half else ""
    return f"{config.strategy}{half}-seed{config.seed}"


def run_command(model: str, config: RetMaskConfig,
                compute_backend: ComputeBackend = ComputeBackend()) -> str:
    return command_line("retmask", model, config=config, compute_backend=compute_backend)
