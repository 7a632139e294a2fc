"""A computed sentence follows its numbers: with other results it says something else."""

from dataclasses import replace

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
from rmutils.book.chapters.score_distribution.designs import design_stored, designs, points
from rmutils.book.figures import report
from rmutils.evaluation.failure_prompts import OUTCOMES, FailurePrompt
from rmutils.heads import HeadScores
from rmutils.heads.detection import DetectConfig, detect_stored, even_depths
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


def scores(short: float, long: float) -> HeadScores:
    """Head 0-0 has these means at 256 and 512 tokens, head 0-1 always 0.6; eight needles each."""
    cases = pd.DataFrame({"needle": [*range(8)] * 2, "length": [256] * 8 + [512] * 8,
                          "success": True})
    runs = np.zeros((16, 1, 3))
    runs[:8, 0, 0], runs[8:, 0, 0] = short, long
    runs[:, 0, 1] = 0.6
    return HeadScores(runs, "m", cases["needle"].to_numpy(), cases)


def test_leader_by_length():
    changed = sentences.leader_by_length(scores(0.9, 0.4), 2)
    assert "The leader changes" in changed and "lower by more than chance" in changed
    assert "at 512 it drops to second place" in changed
    assert "0.50 [" not in changed.split("scores")[0]
    assert "leads at every length" in sentences.leader_by_length(scores(0.9, 0.8), 2)


def test_rank_at_the_longest_prompts_whose_needle_was_found():
    found = scores(0.9, 0.4)
    assert sentences.rank_at_longest(found) == "At 512 tokens it drops to second place."
    assert sentences.rank_at_longest(scores(0.9, 0.8)) == "At 512 tokens it still leads."
    missed = found.cases.tail(1).assign(length=1024, success=False)
    more = replace(found, cases=pd.concat([found.cases, missed], ignore_index=True))
    assert sentences.rank_at_longest(more) == sentences.rank_at_longest(found)


def test_leader_by_length_of_the_chapter():
    grid = DetectConfig(lengths=(256, 512, 768, 1024, 1536, 2048, 3072, 4096),
                        depths=even_depths(10))
    large = detect_stored("smollm2-135m", grid, compute="never")[0]
    tops = {n: large.where((large.cases["length"] == n).to_numpy()).ranking()[0]
            for n in grid.lengths}
    said = sentences.leader_by_length(large, 10)
    assert ("The leader changes" in said) == (len({*tops.values()}) > 1)


def gains(values, error, sparsity) -> pd.DataFrame:
    values = np.array(values, dtype=float)
    return pd.DataFrame({"gain": values, "gain_low": values - error, "gain_high": values + error,
                         "sparsity": sparsity, "heads": range(len(values))})


def test_models_with_needles_left_to_find_are_named():
    told = sentences.little_left({"a": 1.0, "b": 0.9, "c": 0.855, "d": 0.32})
    assert told.startswith("2 of 4 find at least 90% of the needles")
    assert told.endswith("; not so c (86%) and d (32%).")
    assert "not so" not in sentences.little_left({"a": 0.9})
    assert sentences.little_left({"a": 0.1}).startswith("none of 1 ")


def test_designs_can_tell_only_what_exceeds_chance():
    rising, x = np.arange(12), np.linspace(0.5, 0.9, 12)
    assert "cannot tell" in sentences.designs_can_tell(gains(rising, 40, x))
    assert "show it" in sentences.designs_can_tell(gains(rising, 1, x))
    assert "the contrary" in sentences.designs_can_tell(gains(-rising, 1, x))
    flat = sentences.designs_can_tell(gains([0, 5] * 6, 1, x))
    assert "do not settle it" in flat and "number of heads or of weights" in flat
    table = points({name: design_stored(config, compute="never")
                    for name, config in designs().items()})
    said = sentences.designs_can_tell(table)  # Q = 11.5: every interval holds the common mean
    assert "cannot tell" in said and "no more from each other than chance" in said


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
