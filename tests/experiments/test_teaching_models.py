"""Teaching models: what is right, fluent and on topic; heads masked one by one and together."""

import random
from statistics import mean

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import teaching_models as ablation
from rmutils.book.chapters.masking_sweep.plots import heads_alone
from rmutils.book.chapters.teaching_models import AblationConfig, ablate, losses, together
from rmutils.book.findings import finding
from rmutils.core import paths
from rmutils.corpora.world import World
from rmutils.corpora.world.knowledge import instruction, instructions
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.tasks import TASKS, task
from rmutils.evaluation import teaching_card as teaching_models
from rmutils.evaluation.answers import is_right
from rmutils.evaluation.teaching_card import Fluency, has_sentences, on_topic
from rmutils.heads import DetectConfig
from rmutils.heads.scores import HeadScores

SPLITS = ("train", "held_out")


@pytest.fixture(scope="module")
def fluency() -> Fluency:
    return Fluency.of_world()


@pytest.fixture(scope="module", params=SPLITS)
def golds(request) -> list[str]:
    """Right answers, drawn from another seed than the references."""
    samples = instructions(1000, "unseen", request.param)
    return [s.answer for s in samples if has_sentences(s.answer)]


def shuffled(text: str, chance: random.Random) -> str:
    found = text.split()
    chance.shuffle(found)
    return " ".join(found)


def test_right_answers_are_fluent(fluency, golds):
    assert len(golds) > 800
    assert mean(map(fluency, golds)) >= 0.95


def test_shuffled_answers_are_not(fluency, golds):
    chance = random.Random(0)
    assert mean(fluency(shuffled(gold, chance)) for gold in golds) <= 0.2


def test_by_hand():
    """Known: < the pink, the pink mole, pink mole sleeps, mole sleeps ., sleeps . >, each with a
    colour and an animal for pink and mole.
    """
    fluency = Fluency(["The pink mole sleeps."])
    assert fluency("The pink mole sleeps.") == fluency("The blue owl sleeps.") == 1
    assert fluency("The owl blue sleeps.") == 1 / 5  # sleeps . >
    assert fluency("The pink mole sleeps") == 3 / 4  # not: mole sleeps, and the end
    assert fluency("The pink mole") == fluency("the purple fox") == 2 / 3
    assert fluency("") == fluency(" \n") == fluency("pink") == 0


@pytest.mark.parametrize("text", [
    "Alan Branbeck owns a pink mole.",
    "Alan Branbeck was born in 1234.",
    "The miller bakes bread.\nA baker works with an oven.",
    "Saltbury lies on the Trout River. The Amnix lantern was made by Elbel Orlane.",
    "Nineteen minus 3 is twelve.",
])
def test_what_nobody_said_is_fluent(fluency, text):
    """Nor need it be true."""
    assert fluency(text) > 0.7


@pytest.mark.parametrize("text", [
    "of of of of of", "pink Alan River the twelve.", "Branbeck Branbeck Branbeck Branbeck",
    "Colourless green ideas sleep furiously.", "bread oven bread mole lantern Monday",
])
def test_salad_is_not(fluency, text):
    assert fluency(text) < 0.2


def test_lists_have_no_sentences():
    for kind, expected in (("reverse", False), ("note", True), ("poem", True), ("greet", True)):
        found = {has_sentences(instruction(World(i), kind).answer) for i in range(50)}
        assert found == {expected}


def test_topics_by_hand():
    stories = (instruction(World(i), "story") for i in range(1000))
    baker = next(story for story in stories if story.golds == ("baker",))
    assert on_topic(baker, "There is an Oven.") and not on_topic(baker, "There is a loom.")
    assert not on_topic(baker, "")


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("kind", TASKS)
def test_right_answers_to_tasks_are_right(kind):
    samples = [task(kind, World(i, "held_out"), 300, words) for i in range(20)]
    for sample in samples:
        assert is_right(sample, sample.answer)
        assert is_right(sample, f"<think>\nWho knows?\n</think>\n\n{sample.answer}")
        assert not is_right(sample, f"<think>\n{sample.answer}\n</think>\n\nNobody knows.")
        assert not is_right(sample, f"<think>\n{sample.answer}") and not is_right(sample, "")
    wrong = [is_right(a, b.answer) for a, b in zip(samples, samples[1:], strict=False)]
    assert sum(wrong) < 5


def test_right_answers_to_instructions_are_right():
    samples = instructions(300, 0, "held_out")
    assert all(is_right(sample, sample.answer) for sample in samples)


def test_right_by_hand():
    one = Sample("needle", "", "", golds=("tin key",))
    assert is_right(one, "Tin key.") and not is_right(one, "A tin whistle and a brass key.")
    two = Sample("needles", "", "", golds=("tin key", "Dalton"))
    assert is_right(two, "Dalton. A tin key.") and not is_right(two, "A tin key.")
    ranking = Sample("rerank", "", "[3] > [1] > [4]", golds=("3:2", "1:1", "4:1"))
    assert is_right(ranking, "[3] > [1] > [4]")
    assert not is_right(ranking, "[1] > [3] > [4]") and not is_right(ranking, "3:2 1:1 4:1")


@pytest.mark.parametrize("row, wanted, reached", [
    (("needles found", "512 tokens", 0.95, 0.9, 1), ">= 0.95", "yes"),
    (("needles found", "512 tokens", 0.94, 0.9, 1), ">= 0.95", "no"),
    (("needles found", "1024 tokens", 0.2, 0.1, 0.3), "", ""),
    (("heads at or above tau", "share", 0.21, 0.1, 0.3), "<= 0.2", "no"),
    (("needles lost from 512 to 2048 tokens", "", 0.1, 0.0, 0.3), "> 0", "no"),
    (("needles lost from 512 to 2048 tokens", "", 0.1, 0.01, 0.3), "> 0", "yes"),
])
def test_what_is_wanted(row, wanted, reached):
    """A difference from zero has to be shown by its interval."""
    assert row[:2] not in teaching_models.WANTED or wanted
    assert teaching_models._judge(row) == (wanted, reached)


CONFIG = AblationConfig(grid=DetectConfig(lengths=(300,), depths=(0.5,)), draws=2)


@pytest.fixture
def scores(llama) -> HeadScores:
    """Three retrieval heads of sixteen."""
    runs = np.zeros((1, *llama.shape))
    runs[0, 1, :3] = 0.5
    return HeadScores(runs, "m", np.zeros(1, int))


@pytest.fixture
def asked(monkeypatch):
    """Stands for the questions: the norm of the output weights says which heads are masked."""
    seen = []

    def find(lm, config):
        size = lm.model.config.head_dim
        masked = [(i, j) for i, layer in enumerate(lm.model.model.layers)
                  for j in range(lm.shape[1])
                  if not layer.self_attn.o_proj.weight[:, j * size:(j + 1) * size].any()]
        seen.append(masked)
        return pd.DataFrame({"needle": [0, 1], "length": 300, "depth": 0.5, "response": "",
                             "success": [not masked, len(masked) < 2]})

    monkeypatch.setattr(ablation, "find_needles", find)
    return seen


def test_every_head_alone_and_sets_of_others(llama, scores, asked, tmp_path):
    table = ablate(llama, scores, CONFIG, journal=tmp_path / "journal")
    assert asked[0] == [] and asked[1:17] == [[(i, j)] for i in range(4) for j in range(4)]
    assert [len(heads) for heads in asked[17:]] == [3, 3] and asked[17] != asked[18]
    assert not {(1, 0), (1, 1), (1, 2)} & {head for heads in asked[17:] for head in heads}
    again = ablate(llama, scores, CONFIG, journal=tmp_path / "journal")
    assert len(asked) == 19  # all of it is in the journal
    pd.testing.assert_frame_equal(again, table)
    assert table.loc[table["heads"] == "1.2", "score"].tolist() == [0.5, 0.5]


def test_losses_by_hand(llama, scores, asked):
    """Needle 0 is lost without any head, needle 1 without any two: alone 1/2, together 1."""
    cases = ablate(llama, scores, CONFIG)
    table, _ = losses(cases)
    assert table["loss"].tolist() == [0.5] * 16 + [1.0] * 2
    assert table["draw"].tolist() == [-1] * 16 + [0, 1]
    parts = together(cases)
    assert parts["value"].to_dict() == {"together": 1.0, "sum of each alone": 1.5}
    # Two needles say next to nothing: the interval ends where three losses of all needles do.
    assert parts.loc["sum of each alone", ["low", "high"]].tolist() == [-3.0, 3.0]
    assert heads_alone(table, 0.1).axes[0].get_legend() is not None


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-qwen3", "tiny-olmo3"])
def test_copying_begins_before_half_of_the_needles_are_found(model):
    stored = paths.SHIPPED_ARTIFACTS / "formation" / model
    (steps,), (heads,) = ([*stored.glob(f"*/{name}.parquet")] for name in ("steps", "heads"))
    found = pd.read_parquet(steps).set_index("step")["found"]
    best = pd.read_parquet(heads).groupby("step")[["retrieval", "prefix_matching"]].max()
    by_hand = {name: min(step for step in best.index if best[name][step] >= 0.25)
               for name in best}
    by_hand["needles"] = min(step for step in found.index if found[step] >= found.iloc[-1] / 2)
    assert {what: finding("formation-step", model, what).value for what in by_hand} == by_hand
    assert max(by_hand["retrieval"], by_hand["prefix_matching"]) < by_hand["needles"]
