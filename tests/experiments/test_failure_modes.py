"""What counts as a lost name, format or chain, and that it is counted right for every mask."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import failure_modes as _findings  # noqa: F401
from rmutils.book.chapters import failure_modes as module
from rmutils.book.chapters.failure_modes import (
    WHOLE,
    FailureConfig,
    FailureModes,
    failure_modes,
    failure_modes_stored,
)
from rmutils.book.findings import finding
from rmutils.core.errors import UserError
from rmutils.core.results import stored
from rmutils.evaluation.answers import answer
from rmutils.evaluation.failure_prompts import OUTCOMES, FailurePrompt, failure_prompts, outcome
from rmutils.heads import HeadScores, mask_heads
from rmutils.heads.masking import MATCHED
from rmutils.models import load_model
from rmutils.preference.responses import Response, Transformers
from tests.conftest import two_families

NAME, FORMAT, CHAIN = OUTCOMES
SMALL = FailureConfig(lengths=(240,), depths=1, draws=2, prompts=2, max_new_tokens=4)


@pytest.mark.parametrize("names, response, expected", [
    (["Alvin Erbeck"], "Welcome, Alvin Erbeck, to Dunmere!", "copied"),
    (["Alvin Erbeck"], "Alvin Erbecks is here.", "near miss"),
    (["Alvin Erbeck"], "Hello alvin Erbek.", "near miss"),
    (["Alvin Erbeck"], "Alvin, welcome!", "in part"),
    (["Alvin Erbeck"], "Welcome, friend!", "missing"),
    (["Saltmouth"], "It is in Saltmoth.", "near miss"),
    # Figure 7: the company's name, and its address
    (["Chengdu Push Bio-technology Co., Ltd"], "Chengdu is a company.", "in part"),
    (["Abbeck & Tolden Co., Ltd"], "A Co. in Larkfell", "missing"),  # Co. alone tells nothing
    # the worst of several names counts
    (["Alvin Erbeck", "Dunmere"], "Alvin Erbeck comes to Dunmere.", "copied"),
    (["Alvin Erbeck", "Dunmere"], "Alvin Erbeck comes to Dunmore.", "near miss"),
])
def test_names(names, response, expected):
    assert outcome(FailurePrompt(NAME, "any", "?", tuple(names)), response) == expected


JSON = '{"name": "Isva Ursul", "job": "mason"}'


@pytest.mark.parametrize("form, right, response, expected", [
    ("record", JSON, '{\n "job": "", "name": "x"\n}\n', "kept"),
    ("record", JSON, '```json\n{"name": "a", "job": "b"}\n```', "kept"),
    ("record", JSON, '{"name": "a", "job": 7}', "another shape"),
    ("record", JSON, '{"name": "a", "job": "b", "town": "c"}', "another shape"),
    ("record", JSON, 'Here it is: {"name": "a", "job": "b"}', "does not parse"),
    ("score", '{"score": 5}', '{"score": 90}', "kept"),  # the format of Figure 8, not the score
    ("score", '{"score": 5}', '{"score": "9"}', "another shape"),
    ("numbered list", "1. a\n2. b", "1. Lion\n\n2) Tiger\n", "kept"),
    ("numbered list", "1. a\n2. b", "1. Lion\n2. Tiger\n3. Hare", "another shape"),
    ("numbered list", "1. a\n2. b", "Here are two:\n1. Lion\n2. Hare", "does not parse"),
    ("reversed list", "red cat, blue dog", "red cat, blue dog", "kept"),
    ("reversed list", "red cat, blue dog", "blue dog, red cat.", "another shape"),
    ("listing", "Cat, dog and owl are animals.", "Fox, hare and duck are animals.", "kept"),
    ("listing", "Cat and dog are animals.", "Fox, hare and duck are animals.", "another shape"),
    ("listing", "Cat and dog are animals.", "Pear and plum are foods.", "another shape"),
    ("listing", "Cat and dog are animals.", "The fox hunts hens.", "does not parse"),
    ("three sentences", "A. B. C.", "A cat is one. It runs! Where?", "kept"),
    ("three sentences", "A. B. C.", "A cat is one. It runs.", "another shape"),
])
def test_formats(form, right, response, expected):
    assert outcome(FailurePrompt(FORMAT, form, "?", (right,)), response) == expected


STEPS = ("Fenvin Ollane", "1788")


@pytest.mark.parametrize("steps, response, expected", [
    (STEPS, "Keldra was taught by Fenvin Ollane. Fenvin Ollane was born in 1788.", "right"),
    (STEPS, "Her teacher was born in 1788.", "a step lost"),
    (STEPS, "1788 it is, says Fenvin Ollane. Yes, 1788.", "right"),
    (STEPS, "She was born in 17881, says Fenvin Ollane.", "wrong"),
    (("A", "B", "C"), "B, A, C", "a step lost"),
    (("A", "B", "C"), "A, B, C, and finally A", "taken back"),
    (("A", "B", "C"), "C, A, B", "wrong"),
    # thoughts name steps, but give no answer
    (STEPS, "<think>\nFenvin Ollane taught her: 1788.\n</think>\nIt is 1788.", "right"),
    (STEPS, "<think>\nFenvin Ollane taught her, so 1788.\n</think>\nI forgot.", "taken back"),
    (STEPS, "<think>\nFenvin Ollane taught her. So it is 1788", "taken back"),
    (STEPS, "<think>\nNothing.\n</think>\nIt is 1788.", "a step lost"),
])
def test_chains(steps, response, expected):
    assert outcome(FailurePrompt(CHAIN, "any", "?", steps), response) == expected


def counted(passes: dict[str, list[list[bool]]], kind: str = NAME) -> FailureModes:
    """By hand: what is masked -> prompts x draws."""
    rows = [{"prompt": i, "kind": kind, "form": "any", "masked": masked, "draw": draw,
             "text": "Alvin" if passed else "Alvan", "finished": True}
            for masked, of in passes.items() for i, row in enumerate(of)
            for draw, passed in enumerate(row)]
    prompts = [FailurePrompt(kind, "any", "?", ("Alvin",))] * len(passes[WHOLE])
    return FailureModes.of(prompts, pd.DataFrame(rows))


def test_intervals_hold_prompts_and_draws():
    """Draws that differ where no prompt does, prompts that differ where no draw does, and a mask
    that loses on half of the prompts just what the whole model has."""
    half = [[True]] * 20 + [[False]] * 20
    modes = counted({WHOLE: half, "retrieval": half,
                     "non-retrieval": [[True, False]] * 40})
    rows = modes.shares().set_index("masked")
    assert (rows["value"] == 0.5).all() and (rows["prompts"] == 40).all()
    low, high = rows.loc[WHOLE, ["low", "high"]]
    # a share of one half of 40 prompts: 1.96 standard errors
    assert [low, high] == pytest.approx([0.5 - 0.155, 0.5 + 0.155], abs=0.03)
    assert rows.loc["non-retrieval", ["low", "high"]].tolist() == [0, 1]
    losses = modes.losses().set_index(["more", "less"])
    # the same prompts fail: up to 3 / 40 may be lost elsewhere, though each share is uncertain
    assert losses.loc[(WHOLE, "retrieval"), ["value", "low", "high"]].tolist() == [
        0, -0.075, 0.075]
    value, low, high = losses.loc[("non-retrieval", "retrieval"), ["value", "low", "high"]]
    assert value == 0 and low < -0.5 and high > 0.5
    near = modes.shares("near miss").set_index("masked")
    np.testing.assert_allclose(near["value"], 1 - rows["value"])


def test_examples_follow_the_rule():
    """Prompt 0 is right everywhere, 1 nowhere, 2 is lost by other heads alone, 3 by the retrieval
    heads, 4 only in the second draw of the others."""
    modes = counted({
        WHOLE: [[True], [False], [True], [True], [True]],
        "retrieval": [[True], [False], [True], [False], [False]],
        "non-retrieval": [[True] * 2, [False] * 2, [False, True], [True] * 2, [True, False]]})
    assert modes.example(NAME, "retrieval") == 3
    assert modes.example(NAME, "non-retrieval") == 2
    shown = modes.responses(3).set_index("masked")
    assert len(shown) == 3 and (shown["draw"] == 0).all()
    assert shown["outcome"].to_dict() == {
        WHOLE: "copied", "retrieval": "near miss", "non-retrieval": "copied"}
    fine = counted({WHOLE: [[True]], "retrieval": [[True]], "non-retrieval": [[True]]})
    assert fine.example(NAME, "retrieval") is None


MASKS = {"retrieval": [[(0, 1), (2, 3)]], "non-retrieval": [[(1, 0), (3, 3)], [(0, 0), (1, 1)]]}


@two_families
def test_every_mask_answers_every_prompt(lm):
    """Row by row what the model says greedily under that mask."""
    modes = failure_modes(lm, MASKS, SMALL)
    prompts = failure_prompts(2, 0, "book")
    assert modes.prompts == tuple(prompts) and len(modes.table) == 6 * 4
    sets = {(WHOLE, 0): [], **{(name, i): heads for name, of in MASKS.items()
                               for i, heads in enumerate(of)}}
    table = modes.table.set_index(["masked", "draw", "prompt"])
    for ((masked, draw), heads), (i, prompt) in product(sets.items(), enumerate(prompts)):
        with mask_heads(lm, heads):
            said, = answer(lm, [lm.render(prompt.text)], max_new_tokens=4)
        row = table.loc[(masked, draw, i)]
        assert (row["text"], row["kind"], row["form"]) == (said, prompt.kind, prompt.form)
        assert row["outcome"] == outcome(prompt, said)
    assert table["text"].nunique() > 6


def test_only_chains_may_think(llama, monkeypatch):
    asked = []

    def say(self, instructions, config, done):
        for instruction in instructions:
            asked.append((instruction.text, config.thinking))
            done(Response(instruction.id, "", 0, True))

    monkeypatch.setattr(Transformers, "respond", say)
    failure_modes(llama, {"retrieval": [[(0, 0)]]}, SMALL)
    chains = {p.text for p in failure_prompts(2) if p.kind == CHAIN}
    assert len(asked) == 12 and all(think == (text in chains) for text, think in asked)


def test_stored_responses_are_checked_when_they_are_read(tiny, monkeypatch):
    """The detection is asked for first; then two of 16 heads are masked, and two others twice."""
    with pytest.raises(UserError, match="Make it: `rmutils detect"):
        failure_modes_stored(str(tiny), SMALL, compute="never")
    runs = np.zeros((1, 4, 4))
    runs[0, 1, 2], runs[0, 3, 0] = 0.4, 0.1
    monkeypatch.setattr(module, "detect_stored", lambda *_, **__: (HeadScores(runs, "tiny"), None))
    first, artifact = failure_modes_stored(str(tiny), SMALL)
    facts = {"responses": 24}
    assert not artifact.problems() and artifact.manifest["facts"] == facts
    assert not list(artifact.folder.glob(".*"))
    lm = load_model(str(tiny))
    direct = failure_modes(lm, SMALL.masks(HeadScores(runs, "tiny")), SMALL)
    pd.testing.assert_frame_equal(first.table, direct.table)
    monkeypatch.setattr(module, "load_model", None)
    again, same = failure_modes_stored(str(tiny), SMALL, compute="never")
    assert same == artifact
    pd.testing.assert_frame_equal(again.table, first.table)
    # other heads or other prompts are another result, with the command that makes it
    for change in ({"draws": 1}, {"seed": 3}):
        field, value = *change, *change.values()
        with pytest.raises(UserError, match=f"rmutils run 08_failure_modes .*-p {field} {value}"):
            failure_modes_stored(str(tiny), SMALL.model_copy(update=change), compute="never")
    runs[0, 2, 2] = 0.2
    with pytest.raises(UserError, match="rmutils run 08_failure_modes"):
        failure_modes_stored(str(tiny), SMALL, compute="never")


def test_a_failure_is_shown_only_where_it_could_show():
    """What repeats the prompt passes these chains: failing them shows nothing of reasoning."""
    def lost(kind, *of):
        names = [(f"A{letter}ne Bok", f"B{letter}t Ahl") for letter in "abcdefghijklmnopqrst"]
        prompts = tuple(FailurePrompt(kind, "any", f"From {a} to {b}", (a, b)) for a, b in names)
        rows = [{"prompt": i, "kind": kind, "form": "any", "masked": masked, "draw": 0,
                 "text": f"{a}, then {b}" if i < passed else "", "finished": True}
                for masked, passed in ((WHOLE, 15), ("retrieval", 0), ("non-retrieval", 10))
                for i, (a, b) in enumerate(names)]
        modes = FailureModes.of(prompts, pd.DataFrame(rows))
        return finding(of[0], modes, "m", ["a"], kind, of[1])

    names, chains = (lost(kind, "prompts-failed", "retrieval") for kind in (NAME, CHAIN))
    assert (names.value, names.verdict) == (75, "shown")
    assert (chains.value, chains.verdict) == (75, "undecided")
    assert lost(NAME, "prompts-failed-beyond", "non-retrieval").value == 50
    assert "No prompts" in lost(NAME, "prompts-failed", MATCHED).missing


def test_what_ships_names_a_command_that_asks_all_that_is_planned():
    """The chapter takes no other settings for further sets of heads, or for its second model."""
    commands = {one.manifest["command"] for one in stored("failure-modes") if one.shipped}
    assert {module.PLANNED} <= commands <= {
        module.PLANNED, module.chapter_command("smollm2-135m", FailureConfig())}


def test_a_rerun_names_what_the_chapter_would_be_given():
    command = module.chapter_command("m", FailureConfig(draws=2), matched_kinds=[NAME],
                                     more_draws=3)
    assert command == ("rmutils run 08_failure_modes -p model m -p compute auto -p draws 2 "
                       "-p matched_kinds '[\"entity name\"]' -p more_draws 3")
