"""A computed sentence follows its numbers: with other results it says something else."""


import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import sentences
from rmutils.book.chapters.failure_modes.experiment import (
    WHOLE,
    FailureConfig,
    FailureModes,
    failure_modes_stored,
)
from rmutils.book.chapters.general_abilities.experiment import stored_abilities
from rmutils.book.figures import report
from rmutils.evaluation.failure_prompts import OUTCOMES, FailurePrompt
from rmutils.heads.masking import MATCHED
from rmutils.stats import Interval

NAME, FORMAT, CHAIN = OUTCOMES


def test_a_difference_within_rounding_has_no_sign():
    """Means of the same numbers in another order differ by -4e-16: no sign of a direction."""
    none = -4.4e-16
    assert report.by_sign(Interval(none, none, none), "above", "below", "open") == "open"
    assert report.by_sign(Interval(-1e-3, -1e-3, -1e-3), "above", "below", "open") == "below"


@pytest.mark.parametrize("low, high, said", [
    (0.1, 0.3, "these heads"), (-0.3, -0.1, "layers account"), (-0.1, 0.2, "layers account"),
    (-0.2, 0.6, "leaves open"), (-0.5, 0.3, "leaves open")])
def test_the_rule_of_the_plan(low, high, said):
    """Half of a cost of 0.8 is 0.4: an interval around zero decides only if it is narrower."""
    found = Interval((low + high) / 2, low, high)
    assert said in sentences.heads_or_layers(found, 0.8, 3)
    assert "single draw" in sentences.heads_or_layers(found, 0.8, 1)


def test_models_with_needles_left_to_find_are_named():
    told = sentences.little_left({"a": 1.0, "b": 0.9, "c": 0.855, "d": 0.32})
    assert told.startswith("2 of 4 find at least 90% of the needles")
    assert told.endswith("; not so c (86%) and d (32%).")
    assert "not so" not in sentences.little_left({"a": 0.9})
    assert sentences.little_left({"a": 0.1}).startswith("none of 1 ")


def test_tasks_that_could_not_fall_are_left_out():
    samples = stored_abilities("smollm2-135m").samples
    constant = {task: 25.0 if "letters" in task or "choice" in task else 0.0
                for task in samples["task"].unique()}
    out = sentences.at_a_constant(samples, constant)
    assert out == ["multiple choice", "letters", "written letters"]
    assert "3 of 6" in sentences.left_out("m", out, 6) and "letters" in sentences.left_out(
        "m", out, 6)
    assert "all 6" in sentences.left_out("m", [], 6)
    certain = samples.assign(score=100.0)
    assert not sentences.at_a_constant(certain, constant)


def modes(chain: str, passed: int, others: int = 0, matched: int = 0) -> FailureModes:
    prompts = (FailurePrompt(CHAIN, "any", chain, ("Anna", "Bo")),) * 40
    rows = [{"prompt": i, "kind": CHAIN, "form": "any", "masked": masked, "draw": draw,
             "text": "Anna, then Bo" if i < n else "", "finished": True}
            for masked, n, draws in ((WHOLE, passed, 1), ("retrieval", 0, 1),
                                     ("non-retrieval", others, 1), (MATCHED, matched, 2))
            for i in range(40) for draw in range(draws)]
    return FailureModes.of(prompts, pd.DataFrame(rows))


def test_what_a_parrot_passes():
    assert "copied, and nothing" in sentences.passed_by_repeating(modes("From Anna to Bo.", 30))
    assert "more than repeating" in sentences.passed_by_repeating(modes("From A to B.", 30))
    stored, _ = failure_modes_stored("smollm2-135m", FailureConfig(), compute="never")
    lines = dict(line.removeprefix("- **").split("**: ", 1) for line in
                 sentences.passed_by_repeating(stored).splitlines())
    assert "passes 100%" in lines[CHAIN] and "more than repeating" in lines[FORMAT]


def test_layer_matched_others_beside_the_heads():
    def said(matched):
        return sentences.matched_failures("m", modes("?", 36, 36, matched), 0)

    assert "it is these heads" in said(36) and "layers account for it" in said(0)
    assert "2 layer-matched draws" in said(0) and "another layer" not in said(0)
    partly = sentences.matched_failures("m", modes("?", 36, 36, 36), 2)
    assert "2 of these heads" in partly and "a hint that it is" in partly
    assert "so it is" not in partly
    unasked = modes("?", 36)
    table = unasked.table[unasked.table["masked"] != MATCHED]
    assert "but not run" in sentences.matched_failures("m", FailureModes(unasked.prompts, table), 0)


def test_what_is_missing_from_the_plan_is_said():
    said = sentences.missing_from_plan("02_masking_sweep", "tiny-llama", 1)
    assert said == " Of the 3 layer-matched draws that were planned for tiny-llama, 1 is stored."
    for model, draws in (("tiny-llama", 3), ("my-model", 0)):
        assert not sentences.missing_from_plan("02_masking_sweep", model, draws)


def test_pairs_are_compared_on_the_same_instructions():
    rng = np.random.default_rng(0)
    own = pd.DataFrame({"names_difference": rng.normal(0.3, 0.05, 60),
                        "gap_mean": rng.normal(0.3, 0.05, 60)})
    equal = own + np.resize([0.05, -0.05], (60, 1))
    fewer, larger = own - 0.2, own.assign(gap_mean=own["gap_mean"] + 0.6)

    def leads(**controls):
        said = sentences.pairs_beside_controls("m", own, {k: [v] for k, v in controls.items()})
        return [line.split("**")[1] for line in said.splitlines() if line.startswith("- ")]

    assert leads(A=fewer) == ["names: as expected", "likelihood: as expected"]
    assert leads(A=equal) == ["names: not what we expected", "likelihood: not what we expected"]
    assert leads(A=fewer, B=equal)[0] == "names: only in part as expected"
    assert leads(A=larger)[1] == "likelihood: the contrary of what we expected"
    elsewhere = fewer.set_axis(range(100, 160))
    assert leads(A=elsewhere) == []
    told = sentences.names_beyond_controls("m", own, {"A": [fewer, fewer], "B": [elsewhere]})
    assert "lose more names than those of A (20 [" in told and told.endswith("of 100, 2 draws).")
    told = sentences.names_beyond_controls("m", own, {"A": [fewer], "B": [equal]}, displaced=2)
    assert ", but no measurably other number than those of B (" in told and "2 of these" in told
