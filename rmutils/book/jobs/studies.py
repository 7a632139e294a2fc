"""The studies that have a name: which models, training runs and evaluations they consist of."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rmutils.book.chapters.general_abilities import planned_abilities
from rmutils.book.chapters.main_tables.task_effects import EVALUATIONS, FEW, THINKING
from rmutils.book.chapters.score_distribution.designs import designs
from rmutils.book.experiments.planned_runs import BEFORE, MODELS, planned_runs
from rmutils.book.jobs import published_experiments as known
from rmutils.book.jobs.published_experiments import HelmetConfig
from rmutils.core.config import Config
from rmutils.core.errors import UserError, did_you_mean
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig
from rmutils.evaluation.abilities.harness import HarnessConfig
from rmutils.evaluation.abilities.mt_bench import MTBenchRun, read_questions
from rmutils.evaluation.helmet import EvaluateConfig
from rmutils.heads import DetectConfig
from rmutils.heads.detection import even_depths
from rmutils.models.loading import corpus_of
from rmutils.pipeline.retmask import RetMaskConfig
from rmutils.preference.responses import ResponseConfig
from rmutils.preference.strategies import STRATEGIES
from rmutils.training.compute_backend import ComputeBackend, Launch
from rmutils.training.recipes import RECIPES

Asked = EvaluateConfig | GeneralConfig | HelmetConfig | HarnessConfig | MTBenchRun


@dataclass(frozen=True)
class Evaluation:
    """Questions to a model before and after its training runs."""

    config: Asked
    # After these only, and before, if `before` is among them. None: always.
    strategies: Collection[str] | None = None
    # After these only, and before, if None is among them. None: always.
    runs: Collection[RetMaskConfig | None] | None = None

    def asks(self, run: RetMaskConfig | None) -> bool:
        """True if it is asked after a run; None: before any."""
        return (self.runs is None or run in self.runs) and (
            self.strategies is None or (run.strategy if run else BEFORE) in self.strategies)


@dataclass(frozen=True)
class Study:
    """Models with their runs and evaluations, by name, and designs."""

    runs: dict[str, list[RetMaskConfig]]
    evaluations: dict[str, list[Evaluation]]
    designs: tuple[str, ...] = ()
    compute_backends: Mapping[str, ComputeBackend] = field(default_factory=dict)


def smoke() -> Study:
    """Only shows that everything runs: about two minutes of one core."""
    run = RetMaskConfig(recipe=RECIPES["smoke"]).changed({
        "instructions": 24, "responses.max_new_tokens": 32, "detect.lengths": (256,),
        "detect.depths": even_depths(2)})
    asked = EvaluateConfig(datasets=("key_value", "document_qa"), lengths=(256,), samples=2)
    return Study({"tiny-llama": [run.changed({"strategy": s}) for s in ("retmask", "sft")]},
                 {"tiny-llama": [Evaluation(asked)]})


def embedded() -> Study:
    """The training runs that the book shows, and how they are evaluated."""
    runs, asked = {}, {}
    for model in MODELS:
        runs[model] = planned_runs(model)
        asked[model] = [Evaluation(EVALUATIONS[corpus_of(model)]),
                        Evaluation(planned_abilities(model))]
        thoughtless = {run.strategy for run in runs[model]
                       if STRATEGIES[run.strategy].reasoning != "kept"}
        if thoughtless:
            asked[model].append(Evaluation(THINKING, (BEFORE, "retmask", *sorted(thoughtless))))
    few = [run.changed({"instructions": FEW}) for run in runs["tiny-llama"]
           if run.strategy == "retmask"]
    runs["tiny-llama"] = [*runs["tiny-llama"], *few]
    return Study(runs, asked, tuple(designs()))


STUDIES: dict[str, Callable[..., Study]] = {
    "smoke": smoke, "embedded": embedded,
    "paper": lambda changes: paper(PaperConfig().changed(changes))}
"""By the name of the profile, in which the notebooks run, too."""
CHANGEABLE = ("paper",)  # those of them that have parameters


def study_of(profile: str, changes: Mapping[str, str] | None = None) -> Study:
    """The study of a profile."""
    if profile not in STUDIES:
        raise UserError(f"there is no study {profile!r}.{did_you_mean(profile, STUDIES)} "
                        f"Studies: {', '.join(STUDIES)}.")
    if profile in CHANGEABLE:
        return STUDIES[profile](changes or {})
    if changes:
        raise UserError(f"the study {profile} has no parameters; {', '.join(CHANGEABLE)} has.")
    return STUDIES[profile]()


GRID = DetectConfig(definition="wu", lengths=tuple(round(5000 * i / 19) for i in range(20)),
                    depths=tuple(round(i / 9, 2) for i in range(10)))
"""Section 4.1: "20 different context lengths uniformly distributed between 0 and 5K, with the
needle inserted at 10 depth positions for each length", by "the script provided by Wu et al."."""
SEED = 42  # the paper is silent; 42 in the authors' scripts
RESPONSES = {known.QWEN: ResponseConfig(max_new_tokens=4096)}
"""Others have the defaults, which are those of the authors' scripts, too."""
THOUGHTS = 32768
"""Longest response of a reasoning model to the questions of Table 6. The paper is silent; as many
tokens as HELMET leaves for thoughts."""

PlaceName = Literal[tuple(dict.fromkeys(e.place for e in known.EXPERIMENTS))]


class PaperConfig(Config):
    """Which part of the study, and what computes it. The defaults are all of it."""

    models: Annotated[tuple[Literal[tuple(known.PRINTED)], ...], Field(min_length=1)] = tuple(
        known.PRINTED)
    """Models of section 4.1."""
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
    compute_backend: ComputeBackend = ComputeBackend(engine="vllm", launch=Launch())
    """The trainings of Qwen3 have ZeRO-2 where others have ZeRO-1, as in the authors' scripts."""

    def copy_of(self, name: str) -> str:
        """Return the name that `load_model` takes; a folder's path is absolute, as jobs need it."""
        place = self.copies.get(name, name)
        return str(Path(place).absolute()) if Path(place).exists() else place


def paper(config: PaperConfig = PaperConfig()) -> Study:
    """The plan's content."""
    runs: dict[str, list[RetMaskConfig]] = {}
    evaluations: dict[str, list[Evaluation]] = {}
    backends: dict[str, ComputeBackend] = {}
    for model in config.models:
        name = config.copy_of(model)
        found = {run: experiment.lengths for experiment in known.EXPERIMENTS
                 if experiment.model == model and experiment.place in config.places
                 for run in _runs(experiment, config)}
        runs[name], backends[name] = list(found), _compute_backend(model, config)
        evaluations[name] = list(_evaluations(model, config, found))
    for checkpoint, model in config.checkpoints.items():
        if model in config.models:
            name = config.copy_of(checkpoint)
            runs[name], evaluations[name] = [], list(_evaluations(model, config, {}))
    return Study(runs, evaluations, compute_backends=backends)


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
        smaller = config.copy_of(known.SMALLER[model]) if STRATEGIES[strategy].smaller else None
        yield run.changed({"strategy": strategy, "tau": tau, "smaller": smaller})


def _compute_backend(model: str, config: PaperConfig) -> ComputeBackend:
    launch = config.compute_backend.launch
    if model == known.QWEN and launch and launch.settings == "zero1":
        return config.compute_backend.changed({"launch.settings": "zero2"})
    return config.compute_backend


def _evaluations(model: str, config: PaperConfig,
                 runs: dict[RetMaskConfig, tuple[int, ...]]) -> Iterator[Evaluation]:
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
