"""The steps of a run up to its pairs: which heads are masked, and who answers what.

One whole run of the method (sections 2 and 3): detect, mask, contrast, prefer, detect again.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from rmutils.core.config import Config, command_line
from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.core.progress import progress_bar
from rmutils.core.results import JOURNAL, Artifact, Compute, Stage
from rmutils.heads import DetectConfig, HeadScores, choose, detect
from rmutils.heads.detection import detect_stored, inputs_of, load, save
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.loading import corpus_of
from rmutils.models.registry import tau_of
from rmutils.preference.instructions import draw_stored
from rmutils.preference.pairs import Pairs, longreward_pairs
from rmutils.preference.responses import ResponseConfig
from rmutils.preference.strategies import RELEASED, STRATEGIES, contrast, strategy_of
from rmutils.training.launching import Means
from rmutils.training.recipes import RECIPES, TrainRecipe
from rmutils.training.running import train_stored


def masked_heads(author: LanguageModel | str, config: RetMaskConfig) -> list[Head]:
    """The heads that are masked on the rejected side; none for some strategies.

    Parameters
    ----------
    author : LanguageModel or str
        The model that answers.
    """
    if not strategy_of(config.strategy).policy:
        return []
    return heads_of(detect_stored(author, config.detect)[0], config)


def heads_of(scores: HeadScores, config: RetMaskConfig) -> list[Head]:
    """The same from scores that are at hand."""
    return choose(scores, strategy_of(config.strategy).policy, tau=config.tau, seed=config.seed)


def contrasted(
    author: str, writer: LanguageModel, config: RetMaskConfig, heads: list[Head], *,
    compute: Compute, workers: int, command: str, means: Means = Means(),
) -> tuple[Pairs, tuple[Artifact, ...]]:
    """The pairs of a run, and the stored results that they were made from.

    Parameters
    ----------
    author, writer : str, LanguageModel
        The model that answers: its name, and it.
    """
    if config.strategy == RELEASED:
        return longreward_pairs(writer, config.instructions, seed=config.seed), ()
    kept = {"compute": compute, "command": command}
    drawn, written = draw_stored(config.source, config.instructions, seed=config.seed, lm=writer)
    other = config.smaller and means.backend(load_model(config.smaller), config.smaller, workers)
    judge, device = means.judging(writer, config.responses.thinking), writer.model.device
    backend = means.backend(writer, author, workers)
    made = contrast(
        config.strategy, backend, drawn.instructions,
        config.responses.changed({"seed": config.seed}), heads=heads, other=other,
        judge=judge, **kept)
    for engine in filter(None, (backend, other)):
        engine.close()
    writer.model.to(device)
    return made.pairs, (*written, *made.artifacts)


RETMASK = Stage("retmask", version=1)


class RetMaskConfig(Config):
    """A run. Its seed takes the place of those in its parts."""

    strategy: Literal[(*STRATEGIES, RELEASED)] = "retmask"
    source: str = "world"
    """Of the instructions, as for `rmutils.preference.draw`."""
    instructions: Annotated[int, Field(ge=1)] = 1000
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
    """Of everything drawn: instructions, random heads, answers, order of the pairs. The paper has
    a single run of each kind (appendix A)."""


@dataclass(frozen=True)
class RetMaskRun:
    """What a run gave.

    Attributes
    ----------
    before, after : HeadScores
        On the same cases.
    heads : list of (layer, head)
        Masked on the rejected side; empty if none were.
    pairs : DataFrame
        As `rmutils.preference.pairs.Pairs.table`.
    dropped : dict of str to int
        Pairs left out, by reason.
    curve : DataFrame
        The training, step by step, as `rmutils.training.train` writes it.
    training : str
        Name of the stored training, with the weights.
    artifact : Artifact
        All of this but `before`, which is a stored detection.
    """

    before: HeadScores
    after: HeadScores
    heads: list[Head]
    pairs: pd.DataFrame
    dropped: dict[str, int]
    curve: pd.DataFrame
    training: str
    artifact: Artifact


def run_retmask(
    model: str, config: RetMaskConfig = RetMaskConfig(), *, compute: Compute = "auto",
    workers: int = 1, means: Means = Means(),
) -> RetMaskRun:
    """Do all steps, or read them where they are stored. A stopped run goes on.

    Parameters
    ----------
    model : str
        Name, folder or hub id of the model to be trained.
    workers : int
        Processes that answer side by side (see `rmutils.preference.backends.Transformers`).
    means : Means
        Who answers, and how the training is shared.

    Raises
    ------
    UserError
        As of the steps.
    """
    config = resolved(model, config)
    inputs = inputs_of(identify(model), config.detect, corpus_of(model))
    inputs |= {role: identify(name) for role in ("synthesizer", "smaller")
               if (name := getattr(config, role))}
    if config.source.endswith(".jsonl"):
        if not (file := Path(config.source)).is_file():
            raise UserError(f"{file}: no such file of instructions.")
        inputs["source"] = sha256(file)
    inputs |= means.inputs()
    artifact = RETMASK.obtain_folder(
        config, inputs, lambda folder: _run(model, config, folder, compute, workers, means),
        compute=compute, command=run_command(model, config, means), model=model,
        label=label_of(config))
    record = json.loads(artifact.path("run.json").read_text())
    before, _ = detect_stored(model, config.detect,
                              compute="never" if compute == "never" else "auto")
    return RetMaskRun(
        before, load(artifact.folder, f"{before.model}, trained"),
        [tuple(head) for head in record["heads"]], pd.read_parquet(artifact.path("pairs.parquet")),
        record["dropped"], pd.read_csv(artifact.path("curve.csv")), record["training"], artifact)


def resolved(model: str, config: RetMaskConfig) -> RetMaskConfig:
    """A configuration with the threshold of the model whose heads are masked."""
    if config.tau is not None:
        return config
    return config.changed({"tau": tau_of(config.synthesizer or model)})


def _run(
    model: str, config: RetMaskConfig, folder: Path, compute: Compute, workers: int, means: Means
) -> dict:
    """Do the steps, each of which keeps its own result, and write down what they gave."""
    strategy, author = strategy_of(config.strategy), config.synthesizer or model
    command = run_command(model, config, means)
    lm = load_model(model)
    writer = lm if author == model else load_model(author)
    with progress_bar(f"{strategy.name} for {model}", 4, unit="steps") as advance:
        _, before = detect_stored(lm, config.detect, named=model)
        heads = masked_heads(writer, config)
        advance(1)
        pairs, made = contrasted(author, writer, config, heads, compute=compute, workers=workers,
                                 command=command, means=means)
        pairs.table.to_parquet(folder / "pairs.parquet", index=False, compression="zstd")
        advance(1)
        trained, training = train_stored(lm, pairs.table, recipe_of(config), compute=compute,
                                         command=command, named=model, means=means.launch,
                                         label=label_of(config))
        shutil.copy(training.path("curve.csv"), folder)
        advance(1)
        save(detect(trained, config.detect, journal=folder / JOURNAL), folder)
        advance(1)
    artifacts = (before, *made, training)
    (folder / "run.json").write_text(json.dumps({
        "heads": heads, "dropped": pairs.dropped, "training": training.key,
        "artifacts": [artifact.key for artifact in artifacts]}, indent=1) + "\n")
    return {"pairs": len(pairs.table),
            "step_seconds": {a.key: a.manifest["seconds"] for a in artifacts}}


def recipe_of(config: RetMaskConfig) -> TrainRecipe:
    """How a run trains."""
    strategy = strategy_of(config.strategy)
    return config.recipe.changed({
        "seed": config.seed, "objective": strategy.objective,
        "thinking": config.recipe.thinking and strategy.reasoning == "kept"})


def label_of(config: RetMaskConfig) -> str:
    """Return how a folder's name tells a run from others: `retmask-seed3`."""
    return f"{config.strategy}-seed{config.seed}"


def run_command(model: str, config: RetMaskConfig, means: Means = Means()) -> str:
    """Return the command line of a run."""
    return command_line("retmask", model, config=config, means=means)
