"""Keys hold what changes a result's value, so what is stored stays found when the code grows."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmutils.book.chapters.data_and_training.pair_statistics import MATCHED_PAIRS, MatchedConfig
from rmutils.book.chapters.failure_modes import FAILURE_MODES, FailureConfig
from rmutils.book.chapters.is_it_causal.experiment import (
    IS_IT_CAUSAL,
    LEADERS,
    IsItCausalConfig,
    LeadersConfig,
)
from rmutils.book.chapters.masking_sweep.experiment import SWEEP, SweepConfig
from rmutils.book.chapters.olmo3_recipe.experiment import EXTENSION
from rmutils.book.chapters.retrieval_heads_under_change.experiment import HEADS, HeadsConfig
from rmutils.book.chapters.score_distribution.designs import DESIGN, DesignConfig
from rmutils.book.chapters.share_attention.savings_curves import MEASUREMENTS
from rmutils.book.chapters.teaching_models import ABLATION, AblationConfig
from rmutils.book.chapters.training_effect.layer_matched_training import REPEATED
from rmutils.book.chapters.which_heads.experiment import WHICH_HEADS, WhichHeadsConfig
from rmutils.book.experiments.masked_needles import MASKED_NEEDLES, MaskedNeedlesConfig
from rmutils.book.experiments.under_variants import VARIANT, VariantConfig
from rmutils.book.jobs.notebook_costs import EXPERIMENTS
from rmutils.core.config import Config, NoConfig, added
from rmutils.core.results import Stage, stored
from rmutils.evaluation.abilities.evaluate_abilities import GENERAL, GeneralConfig
from rmutils.evaluation.answers import LIKELIHOODS
from rmutils.evaluation.formation import FORMATION, FormationConfig
from rmutils.evaluation.helmet import EvaluateConfig, evaluate_stored
from rmutils.evaluation.helmet.evaluation import BASELINES, EVALUATION
from rmutils.evaluation.helmet.suite import DATASETS, SUITES
from rmutils.heads.detection import DETECT, TOGETHER, DetectConfig
from rmutils.longcontext.extension import ExtensionConfig
from rmutils.models.trained import TRAIN
from rmutils.pipeline.retmask import RETMASK, RetMaskConfig
from rmutils.preference.instructions import INSTRUCTIONS, DrawConfig
from rmutils.preference.responses import RESPONSES, ResponseConfig
from rmutils.training.recipes import TrainRecipe

STAGES = {stage.name: (stage, config) for stage, config in (
    (ABLATION, AblationConfig), (BASELINES, EvaluateConfig),
    (DESIGN, DesignConfig), (DETECT, DetectConfig),
    (EVALUATION, EvaluateConfig), (EXTENSION, ExtensionConfig), (FAILURE_MODES, FailureConfig),
    (FORMATION, FormationConfig), (GENERAL, GeneralConfig),
    (HEADS, HeadsConfig), (INSTRUCTIONS, DrawConfig), (IS_IT_CAUSAL, IsItCausalConfig),
    (LEADERS, LeadersConfig), (LIKELIHOODS, NoConfig),
    (MASKED_NEEDLES, MaskedNeedlesConfig), (MATCHED_PAIRS, MatchedConfig),
    (REPEATED, RetMaskConfig),
    (RESPONSES, ResponseConfig), (RETMASK, RetMaskConfig),
    (SWEEP, SweepConfig), (TOGETHER, DetectConfig),
    (TRAIN, TrainRecipe), (VARIANT, VariantConfig), (WHICH_HEADS, WhichHeadsConfig),
    *((one.stage, one.config) for one in (
        *MEASUREMENTS.values(), *(one for one in EXPERIMENTS if one.make))))}


@pytest.fixture(scope="module")
def shipped():
    return [artifact for artifact in stored() if artifact.shipped]


@pytest.mark.parametrize("name", STAGES)
def test_every_shipped_result_is_found_from_its_configuration(name, shipped):
    stage, kind = STAGES[name]
    of_stage = [artifact for artifact in shipped if artifact.stage == name]
    assert of_stage
    for artifact in of_stage:
        config = kind.from_identity(artifact.manifest["config"])
        key = stage.key(config, artifact.manifest["inputs"])
        assert key == artifact.key, (
            f"{artifact.name} is orphaned. A new field of {kind.__name__} is declared with `added` "
            "(rmutils/core/config.py), or its default; what else changes the value of results "
            "raises the version of the stage, and the results are computed and shipped again.")
        assert artifact.folder.name.endswith(key[-16:-8])


def test_all_that_ship_are_of_known_stages(shipped):
    assert {artifact.stage for artifact in shipped} == {*STAGES} and len(shipped) >= 400


class Before(Config):
    size: int = 3


class Within(Config):
    part: Before = Before()


class After(Config):
    size: int = 3
    colour: str = added("grey")


class AfterWithin(Config):
    part: After = After()


class Later(Config):
    size: int = 3
    colour: str = added("red", before="grey")


def test_a_new_field_leaves_results_where_they_are():
    assert After().identity() == Before().identity() == {"size": 3}
    assert AfterWithin().digest() == Within().digest()
    assert After(colour="red").digest() != Before().digest()


def test_its_default_may_change_later():
    """The new default is not the old result, and the old value still finds it."""
    assert Later().digest() == After(colour="red").digest() != Before().digest()
    assert Later(colour="grey").digest() == Before().digest()
    assert Later.from_identity({"size": 3}).colour == "grey"
    assert AfterWithin.from_identity({"part": {"size": 5}}).part == After(size=5)


def test_a_new_data_set_leaves_evaluations_where_they_are(monkeypatch):
    before = EvaluateConfig().digest()
    config = EvaluateConfig(lengths=(256, 512, 1024, 2048), samples=20)
    _, artifact = evaluate_stored("tiny-llama", config, compute="never")
    assert artifact.shipped and artifact.name.startswith("evaluation/tiny-llama/base-")
    monkeypatch.setitem(DATASETS._known, "new", replace(DATASETS["summary"], name="new"))
    assert EvaluateConfig().digest() == before
    assert EvaluateConfig(datasets=("helmet",)) == EvaluateConfig()
    assert EvaluateConfig(datasets=("helmet", "new")).datasets == (*SUITES["helmet"], "new")


class OtherDefault(Config):
    size: int = 4


def test_another_default_is_another_result():
    assert OtherDefault().digest() != Before().digest() == OtherDefault(size=3).digest()


def test_caches_of_earlier_states_are_read(cache):
    def make(folder: Path) -> dict:
        (folder / "answer").write_text("42")
        return {}

    stage = Stage("asked", 1)
    made = stage.obtain_folder(Before(), {}, make, command="x")
    made.folder.rename(cache / "artifacts" / made.key)
    old = stage.obtain_folder(Before(), {}, make, command="x", compute="never")
    assert old.name == old.key == made.key and [*stored("asked")] == [old]
