"""The paper's own study: its models, strategies, data sets and benchmarks as a plan.

Nothing of it fits a laptop. What can be looked at there is the plan (`rmutils study --profile paper
--list`) and its cost (`rmutils estimate --profile paper`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rmutils.config import Config
from rmutils.contrast.responses import ResponseConfig
from rmutils.evaluation.general.harness import HarnessConfig
from rmutils.evaluation.general.mt_bench import MTBenchRun, read_questions
from rmutils.evaluation.official import HelmetConfig
from rmutils.heads import DetectConfig
from rmutils.study import published as known
from rmutils.study.studies import Evaluation, Study
from rmutils.training.means import Launch, Means
from rmutils.training.recipes import RECIPES
from rmutils.training.retmask import RetMaskConfig

GRID = DetectConfig(
    definition="wu", lengths=tuple(round(5000 * i / 19) for i in range(20)),
    depths=tuple(round(i / 9, 2) for i in range(10)))
"""Section 4.1: "20 different context lengths uniformly distributed between 0 and 5K, with the
needle inserted at 10 depth positions for each length", by "the script provided by Wu et al."."""
SEED = 42
"""The paper is silent; 42 in the authors' scripts."""
RESPONSES = {known.QWEN: ResponseConfig(max_new_tokens=4096)}
"""Others have the defaults, which are those of the authors' scripts, too."""
THOUGHTS = 32768
"""Longest response of a reasoning model to the questions of Table 6. The paper is silent; as many
tokens as HELMET leaves for thoughts."""

PlaceName = Literal[tuple(dict.fromkeys(e.place for e in known.EXPERIMENTS))]


class PaperConfig(Config):
    """Which part of the study, and by what means. The defaults are all of it."""

    models: Annotated[tuple[Literal[tuple(known.PRINTED)], ...], Field(min_length=1)] = tuple(
        known.PRINTED)
    """Of section 4.1."""
    places: tuple[PlaceName, ...] = tuple(dict.fromkeys(e.place for e in known.EXPERIMENTS))
    """Tables and figures whose trainings are made. None: no training, only evaluations."""
    checkpoints: dict[str, Literal[tuple(known.PRINTED)]] = {
        hub: model for model, hub in known.CHECKPOINTS.items()}
    """Trained models that are only evaluated: hub id or folder -> the model that each was trained
    from. The default are those that the authors published."""
    copies: dict[str, str] = {}
    """Where a model of section 4.1, a smaller one or a published checkpoint lies on this machine:
    name or hub id -> folder."""
    abilities: bool = True
    """Table 6: the benchmarks of lm-evaluation-harness, before and after RetMask."""
    mt_bench: MTBenchRun = MTBenchRun()
    """Table 6's other benchmark. Its questions and its judge do not come with this project: without
    `mt_bench.questions` and `mt_bench.judge` it is left out."""
    instructions: Annotated[int, Field(ge=1)] | None = None
    """So many for each training, for a trial. None: as in Table 12."""
    detect: DetectConfig = GRID
    """With `detect.haystack` and `detect.needle_file` the texts of Wu et al. Without, those that
    ship with this project."""
    means: Means = Means(engine="vllm", launch=Launch())
    """The trainings of Qwen3 have ZeRO-2 where others have ZeRO-1, as in the authors' scripts."""

    def copy_of(self, name: str) -> str:
        """What `load_model` takes for a model; a folder's path is absolute, as jobs need it."""
        place = self.copies.get(name, name)
        return str(Path(place).absolute()) if Path(place).exists() else place


def paper(config: PaperConfig = PaperConfig()) -> Study:
    """The plan's content."""
    runs: dict[str, list[RetMaskConfig]] = {}
    evaluations: dict[str, list[Evaluation]] = {}
    means: dict[str, Means] = {}
    for model in config.models:
        name = config.copy_of(model)
        found = {run: experiment.lengths for experiment in known.EXPERIMENTS
                 if experiment.model == model and experiment.place in config.places
                 for run in _runs(experiment, config)}
        runs[name], means[name] = list(found), _means(model, config)
        evaluations[name] = list(_evaluations(model, config, found))
    for checkpoint, model in config.checkpoints.items():
        if model in config.models:
            name = config.copy_of(checkpoint)
            runs[name], evaluations[name] = [], list(_evaluations(model, config, {}))
    return Study(runs, evaluations, means=means)


def _runs(experiment: known.Experiment, config: PaperConfig) -> Iterator[RetMaskConfig]:
    model = experiment.model
    count = round(known.training_data(model, experiment.source)["Samples"])
    author = experiment.changes.get("synthesizer")
    run = RetMaskConfig(
        source=experiment.source, instructions=count, detect=config.detect,
        responses=RESPONSES.get(author or model, ResponseConfig()), recipe=RECIPES["paper"],
        seed=SEED).changed(experiment.changes)
    if config.instructions:
        run = run.changed({"instructions": config.instructions})
    if author:
        run = run.changed({"synthesizer": config.copy_of(author)})
    # A folder's name does not tell tau.
    tau = run.tau if run.tau is not None else known.TAU[author or model]
    for strategy in experiment.strategies:
        smaller = config.copy_of(known.SMALLER[model]) if strategy == "smaller-model" else None
        yield run.changed({"strategy": strategy, "tau": tau, "smaller": smaller})


def _means(model: str, config: PaperConfig) -> Means:
    launch = config.means.launch
    if model == known.QWEN and launch and launch.settings == "zero1":
        return config.means.changed({"launch.settings": "zero2"})
    return config.means


def _evaluations(
    model: str, config: PaperConfig, runs: dict[RetMaskConfig, tuple[int, ...]]
) -> Iterator[Evaluation]:
    """A job for each length, so that a cluster can share them."""
    thinks = model in known.REASONING
    for length in known.ALL:
        if length <= known.LONGEST[model]:
            asked = [None, *(run for run, lengths in runs.items() if length in lengths)]
            yield Evaluation(HelmetConfig(lengths=(length,), thinking=thinks,
                                          vllm=model != known.LLAMA), runs=asked)
    asked = [None, *(run for run in runs if run.strategy == "retmask")][:2]
    limit = {"max_new_tokens": THOUGHTS, "thinking": True} if thinks else {}
    if config.abilities:
        yield Evaluation(HarnessConfig(
            backend="hf" if model == known.LLAMA else "vllm").changed(limit), runs=asked)
    if config.abilities and (path := config.mt_bench.questions):
        read_questions(path)  # what is wrong with it is told before anything runs
        answers = config.mt_bench.answers.changed(limit)
        yield Evaluation(config.mt_bench.changed({"questions": path.absolute(),
                                                  "answers": answers}), runs=asked)
