"""Each strategy against what its two sides must be."""

import dataclasses
from dataclasses import dataclass
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils.core.errors import NotStored, UserError
from rmutils.heads import HeadScores
from rmutils.heads.masking import choose
from rmutils.preference import strategies
from rmutils.preference.instructions import Instruction
from rmutils.preference.pairs import longreward_pairs
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from rmutils.preference.strategies import STRATEGIES, ChosenHeads, contrast, register_strategy
from tests.clock import PATIENCE
from tests.conftest import make_lm

ASKED = [Instruction.of(text) for text in ("Who is she?", "Sing.", "Why not?", "Name a town.")]
CONFIG = ResponseConfig(max_new_tokens=6)
HEADS = [(1, 0), (3, 2)]


@dataclass
class Longest:
    """A judge by length, which has no word for texts that hold an e; it counts what it is asked."""

    name, identity, at_once, asked = "longest", "longest", 1, 0

    def score(self, instruction, responses):
        self.asked += 1
        return [None if "e" in text else float(len(text)) for text in responses]


def test_what_strategies_differ_in_is_that_of_the_paper():
    """Sections 4.3 and 4.5: which train without preferences, think otherwise, take responses of a
    smaller model, ratings, or pairs of others."""
    usual = {"objective": "dpo", "reasoning": "kept", "smaller": False, "judged": False}
    told = {name: {field: value for field, known in usual.items()
                   if (value := getattr(strategy, field)) != known}
            for name, strategy in STRATEGIES.items()}
    assert {name: other for name, other in told.items() if other} == {
        "sft": {"objective": "sft"}, "rc-removed": {"reasoning": "removed"},
        "rc-un-generated": {"reasoning": "un-generated"}, "smaller-model": {"smaller": True},
        "win-lose-pair": {"judged": True}}
    assert {name: strategy.policy for name, strategy in STRATEGIES.items() if strategy.policy} == {
        "non-retrieval-mask": "non-retrieval", "random-mask": "random",
        "layer-matched-non-retrieval-mask": "layer-matched-non-retrieval",
        "layer-matched-random-mask": "layer-matched-random",
        **dict.fromkeys(("retmask", "sft", "rc-removed", "rc-un-generated"), "retrieval")}
    assert {name: strategy.released for name, strategy in STRATEGIES.items()
            if strategy.released} == {"longreward": longreward_pairs}


def test_masked_strategies(cache, llama):
    """The rejected side is that of the masked model; the chosen one is the whole model's."""
    for name, strategy in STRATEGIES.items():
        if not strategy.policy or strategy.reasoning != "kept":
            continue
        made = contrast(name, Transformers(llama), ASKED, CONFIG, heads=HEADS)
        whole = respond(Transformers(llama), ASKED, CONFIG)
        seeds = CONFIG.model_copy(update={"heads": tuple(HEADS)})
        masked = respond(Transformers(llama), ASKED, seeds)
        assert made.pairs.table["chosen"].tolist() == whole["text"].tolist()
        assert made.pairs.table["rejected"].tolist() == masked["text"].tolist()
        assert [a.manifest["facts"]["responses"] for a in made.artifacts] == [4, 4]


def test_heads_are_chosen_by_each_policy():
    scores = HeadScores(np.random.default_rng(0).random((1, 4, 8)), "a model")
    for asked in ({"tau": 0.8}, {"top_k": 3}):
        for strategy in STRATEGIES.values():
            expected = strategy.policy and choose(scores, strategy.policy, **asked, seed=7)
            assert strategy.choose_heads(scores, **asked, seed=7) == (expected or [])
            usual = strategy.policy and choose(scores, strategy.policy, **asked, seed=42)
            assert strategy.choose_heads(scores, **asked) == (usual or [])
    own = ChosenHeads("Own", function=lambda *given, **named: (given, named))
    assert own.policy, "or its heads would not be masked"
    assert own.choose_heads(scores, tau=0.5, top_k=3, seed=7) == (
        (scores,), {"tau": 0.5, "top_k": 3, "seed": 7})
    assert own.choose_heads(scores)[1] == {"tau": None, "top_k": None, "seed": 42}
    assert STRATEGIES["longreward"].sides(CONFIG) == ()  # nothing is generated


def test_a_choice_of_ones_own_becomes_a_strategy(monkeypatch):
    monkeypatch.setattr(STRATEGIES, "_known", {**STRATEGIES})

    def second(scores, *, tau, top_k, seed):
        return [(1, seed)]

    assert register_strategy("second", objective="sft")(second) is second
    register_strategy("third", "The third")(second)
    assert (STRATEGIES["second"].name, STRATEGIES["third"].name) == ("second", "The third")
    assert STRATEGIES["second"].objective == "sft"
    assert STRATEGIES["second"].choose_heads(None, seed=5) == [(1, 5)]


def test_reasoning_is_removed_or_never_asked_for(cache, monkeypatch):
    """The same answers without their thoughts; or others, to prompts that rule thoughts out."""
    asked = []

    def said(backend, instructions, config, **_):
        asked.append((config.thinking, config.heads))
        who = "masked" if config.heads else "whole"
        texts = [f"<think>\nSo {i}.\n</think>\n\n{who} {i}." for i in range(3)]
        return pd.DataFrame({"id": [i.id for i in instructions],
                             "instruction": [i.text for i in instructions],
                             "text": [*texts, "<think>\nEndless"],
                             "tokens": 9, "finished": True}), None

    monkeypatch.setattr(strategies, "respond_stored", said)
    removed = contrast("rc-removed", None, ASKED, CONFIG, heads=HEADS).pairs
    assert removed.table["chosen"].tolist() == [f"whole {i}." for i in range(3)]
    assert removed.table["rejected"].tolist() == [f"masked {i}." for i in range(3)]
    assert removed.dropped == {"empty": 1}
    contrast("rc-un-generated", None, ASKED, CONFIG, heads=HEADS)
    assert asked == [(True, ()), (True, tuple(sorted(HEADS))),
                     (False, ()), (False, tuple(sorted(HEADS)))]


def test_smaller_model(cache, llama, tokenizer):
    other = Transformers(make_lm("llama", tokenizer, seed=1))
    def made(**how):
        return contrast("smaller-model", Transformers(llama), ASKED, CONFIG, other=other, **how)

    with pytest.raises(NotStored):
        made(compute="never")
    assert [one.manifest["command"] for one in made(command="rmutils x").artifacts] == [
        "rmutils x"] * 2
    made = made(compute="never")
    table = made.pairs.table
    assert table["chosen"].tolist() == respond(Transformers(llama), ASKED, CONFIG)["text"].tolist()
    assert table["rejected"].tolist() == respond(other, ASKED, CONFIG)["text"].tolist()
    assert made.artifacts[0].name != made.artifacts[1].name


def test_win_lose_pair(cache, llama, monkeypatch):
    """Two answers of the same model; the judge's favourite is chosen, and ties are dropped."""
    texts = {0: ["aaa", "b", "cc", "e"], 1: ["a", "bb", "dd", "f"]}

    def said(backend, instructions, config, **_):
        return pd.DataFrame({"id": [i.id for i in instructions],
                             "instruction": [i.text for i in instructions],
                             "text": texts[config.seed], "tokens": 2, "finished": True}), None

    monkeypatch.setattr(strategies, "respond_stored", said)
    judge, closed = Longest(), []
    engine = SimpleNamespace(close=lambda: closed.append(judge.asked))
    made = contrast("win-lose-pair", engine, ASKED, CONFIG, judge=judge, command="rmutils x")
    pairs, (*said, rated) = made.pairs, made.artifacts
    assert said == [None, None] and rated.manifest["command"] == "rmutils x"
    assert closed == [0], "before the judge, who may want the memory"
    assert pairs.table[["chosen", "rejected"]].to_numpy().tolist() == [["aaa", "a"], ["bb", "b"]]
    assert pairs.dropped == {"unscored": 1, "tie": 1}
    contrast("win-lose-pair", engine, ASKED, CONFIG, judge=judge)
    assert judge.asked == 4  # the second time its scores are read
    contrast("win-lose-pair", engine, ASKED, CONFIG, judge=judge, compute="always")
    assert judge.asked == 8


def test_judging_goes_on_after_a_stop(cache, monkeypatch):
    """Stopped at the third pair: what was scored before is kept, a NaN stays one."""
    first = pd.DataFrame({"id": list("abcd"), "instruction": "?", "text": ["x", "e", "xx", "y"]})
    judge = Longest()
    score = judge.score

    def stopping(instruction, responses):
        if judge.asked == 2:
            raise UserError("the judge is down")
        return score(instruction, responses)

    monkeypatch.setattr(judge, "score", stopping, raising=False)
    with pytest.raises(UserError, match="is down"):
        strategies.judge_stored(judge, first, first[::-1].assign(id=list("abcd")))
    monkeypatch.setattr(judge, "score", score, raising=False)
    table, artifact = strategies.judge_stored(judge, first, first[::-1].assign(id=list("abcd")))
    assert judge.asked == 4 and artifact.manifest["facts"] == {"pairs": 4, "unscored": 2}
    np.testing.assert_array_equal(table[["first", "second"]],
                                  [[1, 1], [np.nan, 2], [2, np.nan], [1, 1]])


def test_judge_that_answers_many_at_once(cache):
    """Four wait for one another: had they been asked one by one, nobody would have answered."""
    together = Barrier(4, timeout=PATIENCE)

    class Patient(Longest):
        at_once = 4

        def score(self, instruction, responses):
            together.wait()
            return [float(len(text)) for text in responses]

    first = pd.DataFrame({"id": list("abcd"), "instruction": "?", "text": ["x", "xx", "xxx", ""]})
    table, _ = strategies.judge_stored(Patient(), first, first)
    assert table["id"].tolist() == list("abcd") and table["first"].tolist() == [1, 2, 3, 0]


def test_first_engine_makes_room_for_the_second(cache, llama, tokenizer):
    events = []

    class Engine(Transformers):
        def respond(self, *args):
            events.append(self.name)
            super().respond(*args)

        def close(self):
            events.append(f"{self.name} closed")

    small = Engine(dataclasses.replace(make_lm("llama", tokenizer, seed=1), name="small"))
    contrast("smaller-model", Engine(llama), ASKED, CONFIG, other=small)
    assert events == [llama.name, f"{llama.name} closed", "small"]


@pytest.mark.parametrize(("strategy", "message"), [
    ("mask", "'mask' is no strategy.* There are: retmask, smaller-model"),
    ("retmask", "the strategy retmask needs heads to mask"),
    ("sft", "the strategy sft needs heads to mask"),
    ("smaller-model", "needs a smaller model"),
    ("win-lose-pair", "needs a judge"),
])
def test_what_is_missing(llama, strategy, message):
    with pytest.raises(UserError, match=message):
        contrast(strategy, Transformers(llama), ASKED, CONFIG)
