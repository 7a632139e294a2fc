"""What two pages, or a page and a claim, say of one quantity is one number with one interval."""

import pytest

from rmutils.book.claims.effects import head_effects, real_effects, task_effects
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK
from rmutils.book.findings import essay, finding, masking_sweep, training_effect
from rmutils.book.findings.registry import FINDINGS

DECLARED = essay, masking_sweep, training_effect
"""Importing them declares their findings."""
SMOL, LARGER = "smollm2-135m", "qwen2.5-coder-0.5b"


def ends(found, scale=1):
    return pytest.approx([scale * end for end in (found.value, found.low, found.high)])


@pytest.mark.parametrize("model", [SMOL, "gemma3-270m", LARGER, "qwen2.5-coder-1.5b"])
def test_the_planned_number_of_heads_is_one_of_those_tried(model):
    count = round(0.12 * finding("heads-in-all", model).value)
    planned = finding("needles-lost-12-percent", model)
    assert ends(planned) == [planned.value, planned.low, planned.high]
    one = finding("needles-lost-top", model, count)
    assert [one.value, one.low, one.high] == ends(planned)
    assert one.artifacts == planned.artifacts and one.p <= planned.p


@pytest.mark.parametrize(("name", "of", "effect", "given", "scale"), [
    ("larger-scores-rise", (MATCHED,), head_effects.retrieval_heads_change_beyond,
     (LARGER, MATCHED), 100),
    ("larger-answers-change", ("tasks", BEFORE), real_effects.task_change,
     (LARGER, RETMASK, BEFORE), 1),
    ("larger-answers-change", ("tasks", MATCHED), task_effects.lead, (LARGER, MATCHED), 1),
    ("masked-heads-rise", (SMOL,), head_effects.retrieval_heads_change, (SMOL,), 100),
    ("needles-change", (SMOL,), head_effects.needles_found_change, (SMOL,), 100)])
def test_a_chapter_and_a_claim_agree(name, of, effect, given, scale):
    found = finding(name, *of)
    assert [found.value, found.low, found.high] == ends(effect(*given), scale)


def test_no_two_names_stand_for_one_measurement():
    measures = [declared.measure for declared in map(FINDINGS.get, FINDINGS)]
    assert len({*measures}) == len(measures)
