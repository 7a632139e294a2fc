"""What two pages, or a page and a claim, say of one quantity is one number with one interval."""

import ast
import json
import math
from functools import cache
from importlib import import_module
from itertools import combinations, product
from pkgutil import walk_packages

import pytest

from rmutils.book import chapters
from rmutils.book.chapters.main_tables.task_effects import lead, task_change
from rmutils.book.chapters.masking_sweep.findings import real_masking, when_and_how_many
from rmutils.book.chapters.training_effect.findings import (
    needles_found_change,
    retrieval_heads_change,
    retrieval_heads_change_beyond,
)
from rmutils.book.claims.claim_list import Judged, judge, load_claims, part_table
from rmutils.book.experiments.masked_needles import MATCHED as SAME_LAYERS
from rmutils.book.experiments.masked_needles import TOP
from rmutils.book.experiments.planned_runs import BEFORE, MATCHED, RETMASK
from rmutils.book.findings import AGAINST, FINDINGS, SHOWN, UNDECIDED, finding
from rmutils.book.site.pages.coverage import CLAIMS, read_coverage
from rmutils.book.verdicts import AGAINST as OPPOSITE
from rmutils.book.verdicts import BLIND, EXCLUDED, NOT_RUN, QUANTITIES, THERE, UNTESTABLE
from rmutils.core import paths

DECLARED = [import_module(found.name) for found in walk_packages(
                chapters.__path__, "rmutils.book.chapters.")
            if found.name.endswith((".findings", ".contribution")) or found.name.count(".") == 3]
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


def test_both_trained_on_one_machine_give_a_lead_of_their_own():
    lead = finding("beyond-layers-on-one-machine")
    assert lead.verdict == SHOWN
    assert lead.value != pytest.approx(finding("masked-heads-beyond-layers").value)


def test_the_table_of_when_and_how_many_is_counted_from_the_answers():
    table = when_and_how_many().set_index(["heads off", "when"])
    answers = real_masking().answers.query("model == 'gemma3-270m' and length == 1024")
    for (position, when), count in product(
            (("newest", "while it answers"), ("every", "from the first word on")), (4, 9)):
        asked = answers.query("position == @position and count == @count and score == 'copy'")
        top, control = (f"{100 * asked.loc[asked['policy'] == policy, 'success'].mean():.0f}"
                        for policy in (TOP, SAME_LAYERS))
        cell = table.loc["12 %" if count == 9 else "4; in the Qwen models 17"].loc[when, "Gemma"]
        assert cell[:-2] == f"{top} / {control}"
        undecided = position == "every" and count == 9  # both found next to nothing
        assert cell[-1] == ("?" if undecided else "✓")


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


@pytest.mark.parametrize(("first", "second"), [
    *((("needles-lost-by-score", model, "copy"), ("needles-lost-top", model, count))
      for model, count in ((SMOL, 14), (LARGER, 17), ("qwen2.5-coder-1.5b", 17))),
    *((("needles-lost-by-kind", model, "facts-literal"), ("needles-lost-top", model, count))
      for model, count in ((SMOL, 14), ("gemma3-270m", 4))),
    (("literal-needles-lost", "tiny-llama", 8),
     ("ablation-difference", "tiny-llama", "heads by patching"))])
def test_two_plans_that_ask_the_same_agree(first, second):
    found, other = finding(*first), finding(*second)
    assert [found.value, found.low, found.high] == ends(other)
    assert found.verdict == other.verdict


@pytest.mark.parametrize(("difference", "more", "less"), [
    (("needles-lost-top", SMOL, 4), ("needles-found", SMOL, "same layers", 4),
     ("needles-found", SMOL, "top heads", 4)),
    (("half-difference",), ("half-rises", "masked half"), ("half-rises", "other half")),
    *((("larger-answers-change", "needles", other), ("larger-needles-found", RETMASK),
       ("larger-needles-found", other)) for other in (BEFORE, MATCHED)),
    (("abilities-masked", "same layers minus top heads"),
     ("abilities-masked", "same layers minus whole"),
     ("abilities-masked", "top heads minus whole"))])
def test_a_difference_is_that_of_its_parts(difference, more, less):
    assert finding(*difference).value == pytest.approx(finding(*more).value - finding(*less).value)


def quoted() -> set[tuple]:
    """Findings that pages ask for by plain words; models may have short names."""
    asked = set()
    for page in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        cells = [ast.parse("".join(cell["source"]))
                 for cell in json.loads(page.read_text(encoding="utf-8"))["cells"]
                 if cell["cell_type"] == "code"]
        nodes = [node for cell in cells for node in ast.walk(cell)]
        short = {"BEFORE": BEFORE, "MATCHED": MATCHED, "RETMASK": RETMASK}
        for node in nodes:
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
                pairs = (zip(target.elts, value.elts, strict=False)
                         if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                         else [(target, value)])
                short |= {to.id: what.value for to, what in pairs
                          if isinstance(to, ast.Name) and isinstance(what, ast.Constant)}
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "finding":
                of = [short.get(one.id) if isinstance(one, ast.Name) else
                      one.value if isinstance(one, ast.Constant) else None for one in node.args]
                if None not in of:
                    asked.add(tuple(of))
    return asked


COINCIDENCE = {"middle-gain", "many-lead"}
"""Equal in tiny-olmo3: one ratio finds as many needles there as none."""


def test_all_findings_agree():
    """Two that have one value on the same from the same results have one interval; a verdict does
    not go beyond its interval and its p; nothing that prose quotes is missing."""
    found = {of: finding(*of) for of in quoted()}
    assert len(found) > 100 and not [of for of, one in found.items() if one.missing]
    with_ends = [(of, one) for of, one in found.items() if one.verdict and one.low == one.low]
    for (of, one), (other_of, other) in combinations(with_ends, 2):
        if (of[1:2] == other_of[1:2] and {*one.artifacts} & {*other.artifacts}
                and math.isclose(one.value, other.value)
                and {one.name, other.name} != COINCIDENCE):
            assert [one.low, one.high] == pytest.approx([other.low, other.high]), (of, other_of)
    for of, one in with_ends:
        if one.verdict in (SHOWN, AGAINST):
            assert not one.low <= 0 <= one.high and not one.p >= 0.05, of


@cache
def judged() -> list[Judged]:
    return judge(load_claims())


def test_no_stored_verdict_contradicts_its_interval():
    """What is shown excludes its bound, to the claimed side or the other; what could not have been
    shown has no p; and p is never below what so many clusters can give."""
    for j in judged():
        for part in j.parts:
            if (effect := part.effect) is None:
                continue
            answer, (lower, upper) = part.answer, part.measure.bounds
            inside = lower < effect.low and effect.high < upper
            outside = effect.high <= lower or effect.low >= upper
            if answer.verdict in THERE:
                assert inside and effect.p(lower if lower > -9e9 else upper) <= 0.05
            elif answer.verdict == OPPOSITE:
                assert outside
            elif answer.verdict == EXCLUDED:
                assert not effect.low <= part.measure.size <= effect.high
            assert (answer.verdict == BLIND) == bool(effect.blocked)
            if effect.clusters and not effect.blocked:
                assert 0.05 >= 2 ** (1 - effect.clusters) <= answer.p
    verdicts = {j.claim.id: j.verdict for j in judged()}
    left_out = {place.removeprefix("claim:") for paper in read_coverage()
                if paper["paper"] == CLAIMS for item in paper["items"]
                for place in item["where"] if item["state"] == "left out"}
    assert left_out == {name for name in verdicts if verdicts[name] in (NOT_RUN, UNTESTABLE)}
    words = {row.of: row.blocked for row in part_table(judged()).itertuples() if row.blocked}
    assert "'[2] > [1]'" in words["smollm2-135m, Re-rank"]
    assert "repeats the prompt" in words["smollm2-135m, reasoning chain"]
    assert verdicts["gain-follows-sparsity"] == BLIND  # four models, and ten that do not differ
    assert "could not have" not in verdicts["masked-heads-gain"]


CORRECTED = {("needles-change", "tiny-llama")}
"""Claims correct them for their parts, and the pages that quote them say that they do not."""


def test_a_claim_and_a_page_have_one_word():
    names = {declared.measure: name for name in FINDINGS if (declared := FINDINGS.get(name))}
    names[needles_found_change] = "needles-change"
    known = {name: names[asked.measure] for name in QUANTITIES
             if (asked := QUANTITIES.get(name)).measure in names}
    differ, compared = set(), 0
    for claim in judged():
        for part in claim.parts:
            if part.measure.quantity in known and part.measure.bounds == (0, math.inf):
                name = known[part.measure.quantity]
                word = dict.fromkeys(THERE, SHOWN) | {OPPOSITE: AGAINST}
                compared += 1
                if finding(name, *part.of).verdict != word.get(part.answer.verdict, UNDECIDED):
                    differ.add((name, *part.of))
    assert compared > 20 and differ & quoted() <= CORRECTED
