"""Scores of one answer: by hand, and against Python's sets."""

import warnings

import numpy as np
import pandas as pd
import pytest
from tokenizers import processors

from rmutils.attention.decoding import Answer
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import Needle, NiahCase, load_haystacks, load_needles
from rmutils.heads import DetectConfig, detection
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall, rouge_recall, unit_of
from rmutils.heads.copy_score import CopyScore, PublishedCopyScore, copy_counts, wu_span
from tests.corpora.test_niah import TOKENIZERS, as_lm


@pytest.mark.parametrize("prompt, needle, span", [
    ([1, 2, 3, 4, 5], [3, 4], (2, 4)),
    ([4, 3, 9, 3, 4], [3, 4], (0, 2)),  # a set has no order
    ([3, 3, 3, 4], [3, 4], (2, 4)),
    ([1, 2, 3], [3, 4], (-1, -1)),
    (list(range(1, 11)) + [99], [*range(2, 11), 50], (-1, -1)),  # 9 of 10 is not above 90 %
    ([0, *range(1, 11), 99], [*range(1, 11), 50], (0, 11)),  # 10 of 11 is
    ([7, 7, 5], [5, 5, 5], (0, 3)),  # all of the needle's one token, and the earliest window
])
def test_wu_span_by_hand(prompt, needle, span):
    assert wu_span(prompt, needle) == span


def test_published_definition_says_where_it_can_only_give_zeros():
    """A tokenizer that writes a space before the first word splits the needle otherwise when it
    stands alone, and a short needle then has too few tokens in common with its sentence."""
    short = Needle("Ida has green shoes.", "What has Ida?", "Ida has green shoes.")
    kinds = {name: PublishedCopyScore(as_lm(TOKENIZERS[name]()), DetectConfig(
        lengths=(400,), depths=(0.0, 1.0), definition="wu")) for name in ("words", "metaspace")}
    with warnings.catch_warnings(action="error"):
        assert len(kinds["words"].cases(load_haystacks(), [short])) == 2
    wanted = "score of no model is 0 .* none of the 2 prompts.*--definition paper"
    with pytest.warns(match=wanted) as told:
        assert len(kinds["metaspace"].cases(load_haystacks(), [short])) == 2
    assert told[0].filename == __file__, "the line that asked is shown"


def test_published_score_by_hand():
    """Of a needle in the window that the script finds, copies count each time; none elsewhere."""
    lm = as_lm(TOKENIZERS["words"]())
    needle = Needle("It is so.", "What?", "Ida has green shoes and a hat.")
    own = lm.tokenizer(needle.real_needle)["input_ids"]
    kind, at = PublishedCopyScore(lm, DetectConfig(definition="wu")), 3
    case = NiahCase("id", 0, 20, 0.5, "part1", "", (0, 0, 0, *own, 0), (0, 2), (0, 3), (0, 3),
                    needle)
    positions = np.array([at, at, at + 1, 0, at + 2])
    answer = Answer(np.array([own[0], own[0], own[1], 0, own[1] + 1]), positions[:, None, None])
    assert kind.score(case, answer) == pytest.approx(3 / len(own))
    assert kind.needle_tokens(case) == len(own)
    lm.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", 0)])  # as Llama's, which opens a text
    assert lm.tokenizer(needle.real_needle)["input_ids"] == [0, *own]
    assert kind.score(case, answer) == pytest.approx(3 / len(own))
    assert kind.stop_ids() == {144}
    assert kind.recall("青い缶の中", "中の缶い青") == (0.0, "ROUGE-1")
    lm.tokenizer.add_tokens("<0x0A>")
    assert kind.stop_ids() == {144, lm.tokenizer.convert_tokens_to_ids("<0x0A>")}


def test_copies_at_other_depths_are_told():
    """Two needles at two depths: one of them stands at one place only."""
    table = pd.DataFrame({"needle": [0, 0, 1, 1], "length": 400, "needle_start": [3, 9, 5, 5]})
    said = PublishedCopyScore.told(table)
    assert "(a full stop: 29889 or 869)" in said
    assert "the 4 cases have 3 different places" in said
    assert PublishedCopyScore.told(table.assign(needle_start=range(4))) == ""
    assert PublishedCopyScore.told(table.assign(needle=range(4), needle_start=0)) == ""


def test_copies_against_sets():
    """Random answers over three tokens, so that hits are frequent."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        length, steps = rng.integers(4, 12), rng.integers(0, 8)
        prompt = rng.integers(0, 3, length).tolist()
        start = int(rng.integers(0, length - 1))
        span = (start, int(rng.integers(start + 1, length + 1)))
        answer = Answer(rng.integers(0, 3, steps), rng.integers(0, length + steps, (steps, 2, 3)))
        once, repeated = (copy_counts(answer, prompt, span, repeats=r) for r in (False, True))
        for layer, head in np.ndindex(2, 3):
            looked = answer.positions[:, layer, head]
            copied = [j for y, j in zip(answer.tokens, looked, strict=True)
                      if j in range(*span) and prompt[j] == y]
            assert once[layer, head] == len(set(copied)) <= span[1] - span[0]
            assert repeated[layer, head] == len(copied)


def test_success_is_recall_above_half():
    """Half of the answer's words is not enough; word endings and case do not matter."""
    assert SUCCESS_ROUGE == 0.5
    assert rouge_recall("one two three four", "two, and four!") == 0.5
    assert rouge_recall("teaching crows to sort coins", "He Teaches a crow to SORT coins.") == 1
    assert rouge_recall("one two", "") == 0


@pytest.mark.parametrize("answer, response, unit, recall", [
    ("one two three four", "two, and four!", "ROUGE-1", 0.5),
    ("one\u2019s two \u2013 three", "Two threes.", "ROUGE-1", 0.5),  # punctuation is no script
    ("青い缶の中", "鍵は青い缶に入っています。", "character pairs", 0.5),
    ("青い缶の中", "中の缶い青", "character pairs", 0),
    ("ﾐﾙｸ", "ミルク", "character pairs", 1),  # in either width
    ("三", "全部で三つ", "character pairs", 1),
    ("семь медных ключей", "Здесь МЕДНЫХ, два ключей.", "words", 2 / 3),
    ("café noir", "un café", "words", 0.5)])
def test_recall_counts_what_the_script_has(answer, response, unit, recall):
    assert unit_of(answer) == unit and answer_recall(answer, response) == recall
    assert answer_recall(answer, answer) == 1 and answer_recall(answer, "") == 0


def test_of_shipped_answers_in_english_nothing_changes():
    for corpus in ("book", "world"):
        for needle in load_needles(CORPORA[corpus] / "needles"):
            for said in (needle.needle, needle.question, needle.real_needle[3:]):
                assert answer_recall(needle.real_needle, said) == rouge_recall(
                    needle.real_needle, said)


@pytest.mark.parametrize("response, success", [("red blue", False), ("Red, blue and green", True)])
def test_a_record_says_whether_it_counts(llama, response, success):
    ids = llama.tokenizer(response)["input_ids"]
    case = NiahCase("id", 0, 20, 0.5, "part1", "", (1, 2, 3), (1, 3), (0, 3), (0, 3),
                    Needle("n", "q", "red blue green gold"))
    answer = Answer(np.array(ids), np.zeros((len(ids), 4, 4), dtype=int))
    record = detection._record({"copy": CopyScore(llama, DetectConfig())}, case, answer, 0.5)
    assert record["success"] is success and record["response"] == response
    assert record["needle_tokens"] == 2 and record["scores"] == {"copy": {}}
