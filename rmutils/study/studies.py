"""The studies that have a name: models, trainings and evaluations, which others have fixed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from rmutils.errors import UserError
from rmutils.evaluation.designs import designs
from rmutils.evaluation.general.abilities import GeneralConfig
from rmutils.evaluation.general.harness import HarnessConfig
from rmutils.evaluation.general.mt_bench import MTBenchRun
from rmutils.evaluation.general.planned import planned_abilities
from rmutils.evaluation.longcontext import EvaluateConfig
from rmutils.evaluation.measured.sources import EVALUATIONS, FEW, THINKING
from rmutils.evaluation.official import HelmetConfig
from rmutils.heads.detection import even_depths
from rmutils.models.loading import corpus_of
from rmutils.training.means import Means
from rmutils.training.planned import BEFORE, LEFT_OUT, MODELS, planned
from rmutils.training.recipes import RECIPES
from rmutils.training.retmask import RetMaskConfig

Asked = EvaluateConfig | GeneralConfig | HelmetConfig | HarnessConfig | MTBenchRun


@dataclass(frozen=True)
class Evaluation:
    """What a model is asked before and after its trainings.

    Attributes
    ----------
    config : EvaluateConfig, GeneralConfig, HelmetConfig, HarnessConfig or MTBenchRun
    strategies : collection of str, optional
        After these only, and before, if `before` is among them. None: always.
    runs : collection of (RetMaskConfig or None), optional
        After these only, and before, if None is among them. None: always.
    """

    config: Asked
    strategies: Collection[str] | None = None
    runs: Collection[RetMaskConfig | None] | None = None

    def asks(self, run: RetMaskConfig | None) -> bool:
        """Whether it is asked after a run; None: before any."""
        return (self.runs is None or run in self.runs) and (
            self.strategies is None or (run.strategy if run else BEFORE) in self.strategies)


@dataclass(frozen=True)
class Study:
    """Models with their runs and evaluations, by name, and designs; and by what means the runs of a
    model are done, if not by those of one machine."""

    runs: dict[str, list[RetMaskConfig]]
    evaluations: dict[str, list[Evaluation]]
    designs: tuple[str, ...] = ()
    means: Mapping[str, Means] = field(default_factory=dict)


def smoke() -> Study:
    """Only shows that everything runs: about two minutes of one core."""
    run = RetMaskConfig(recipe=RECIPES["smoke"]).changed({
        "instructions": 24, "responses.max_new_tokens": 32, "detect.lengths": (256,),
        "detect.depths": even_depths(2)})
    asked = EvaluateConfig(datasets=("key_value", "document_qa"), lengths=(256,), samples=2)
    return Study({"tiny-llama": [run.changed({"strategy": s}) for s in ("retmask", "sft")]},
                 {"tiny-llama": [Evaluation(asked)]})


def embedded() -> Study:
    """The trainings that the book shows, and how they are evaluated.

    Sweeps, maps and other measurements of single chapters are made by their commands.
    """
    runs, asked = {}, {}
    for model in MODELS:
        runs[model] = planned(model)
        asked[model] = [Evaluation(EVALUATIONS[corpus_of(model)]),
                        Evaluation(planned_abilities(model))]
        if any(run.strategy in LEFT_OUT for run in runs[model]):
            asked[model].append(Evaluation(THINKING, (BEFORE, "retmask", *LEFT_OUT)))
    few = [run.changed({"instructions": FEW}) for run in runs["tiny-llama"]
           if run.strategy == "retmask"]
    runs["tiny-llama"] = [*runs["tiny-llama"], *few]
    return Study(runs, asked, tuple(designs()))


def _paper(changes: Mapping[str, str]) -> Study:
    from rmutils.study.paper import PaperConfig, paper

    return paper(PaperConfig().changed(changes))


STUDIES: dict[str, Callable[..., Study]] = {"smoke": smoke, "embedded": embedded, "paper": _paper}
"""By the name of the profile, in which the notebooks run, too."""
CHANGEABLE = ("paper",)
"""Of these, those that have parameters."""


def study_of(profile: str, changes: Mapping[str, str] | None = None) -> Study:
    """The study of a profile.

    Parameters
    ----------
    changes : mapping, optional
        Of the profile's parameters: see `rmutils.study.paper.PaperConfig`.

    Raises
    ------
    UserError
        It has none, or no such parameters.
    """
    if profile not in STUDIES:
        raise UserError(f"there is no study {profile!r}. Studies: {', '.join(STUDIES)}.")
    if profile in CHANGEABLE:
        return STUDIES[profile](changes or {})
    if changes:
        raise UserError(f"the study {profile} has no parameters; {', '.join(CHANGEABLE)} has.")
    return STUDIES[profile]()
