"""What two pages, or a page and a claim, say of one quantity is one number with one interval."""

import pytest

from rmutils.book.chapters.essay import findings as essay
from rmutils.book.chapters.main_tables.task_effects import lead, task_change
from rmutils.book.chapters.masking_sweep import findings as masking_sweep
from rmutils.book.chapters.training_effect import findings as training_effect
from rmutils.book.chapters.training_effect.findings import (
    needles_found_change,
    retrieval_heads_change,
    retrieval_heads_change_beyond,
)
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK
from rmutils.book.findings import FINDINGS, finding

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
    ("larger-scores-rise", (MATCHED,), retrieval_heads_change_beyond,
     (LARGER, MATCHED), 100),
    ("larger-answers-change", ("tasks", BEFORE), task_change,
     (LARGER, RETMASK, BEFORE), 1),
    ("larger-answers-change", ("tasks", MATCHED), lead, (LARGER, MATCHED), 1),
    ("masked-heads-rise", (SMOL,), retrieval_heads_change, (SMOL,), 100),
    ("needles-change", (SMOL,), needles_found_change, (SMOL,), 100)])
def test_a_chapter_and_a_claim_agree(name, of, effect, given, scale):
    found = finding(name, *of)
    assert [found.value, found.low, found.high] == ends(effect(*given), scale)


def test_no_two_names_stand_for_one_measurement():
    measures = [declared.measure for declared in map(FINDINGS.get, FINDINGS)]
    assert len({*measures}) == len(measures)
