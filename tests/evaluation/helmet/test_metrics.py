"""Every metric against cases worked out by hand, and against slow obvious counts."""

import itertools
import math
import random

import numpy as np
import pytest

from rmutils.corpora.world.facts import Fact
from rmutils.corpora.world.writing import Question
from rmutils.evaluation.helmet import metrics
from rmutils.evaluation.helmet import metrics as about
from rmutils.evaluation.helmet.evaluation import baselines
from rmutils.evaluation.helmet.metrics import METRICS, parse

HOME = Fact("Alan Abbeck", "home", "Foxmoor")
MAYOR = Fact("Foxmoor", "mayor", "Cor Ilbeck")
PET = Fact("Alan Abbeck", "pet", "golden owl")
BORN = Fact("Cor Ilbeck", "born", "1741")
RING = Fact("the Amcas ring", "kept", "Foxmoor")


def asked(*golds, **known):
    return Question("kind", "", "", golds=golds, **known)


DOCUMENTS = "\n\n".join(f"Document {n} (X): y." for n in range(1, 5))
CITED = asked("Foxmoor", "golden owl", context=DOCUMENTS, asked=(HOME, PET),
              after="\n\nWhere does Alan Abbeck live? Which animal does Alan Abbeck own?",
              told=((HOME, 1), (PET, 2), (MAYOR, 3), (BORN, 4), (RING, 4)))


@pytest.mark.parametrize(("response", "parsed"), [
    ("Answer: Foxmoor\nmore", "Foxmoor"), ("I think.\nanswer:  Foxmoor ", "Foxmoor"),
    ("Foxmoor\nand more", "Foxmoor"), ("Answer: Answer: Foxmoor", "Foxmoor"), ("", ""),
    ("\nFoxmoor\nmore", "Foxmoor"), ("Answer:\nFoxmoor", ""), ("Foxmoor\nb\nc", "Foxmoor"),
    ("Answer: ANSWER: Foxmoor", "Foxmoor")])
def test_parsed_is_what_follows_the_prefix_or_the_first_line(response, parsed):
    assert parse(response, "Answer:") == parsed


@pytest.mark.parametrize(("metric", "golds", "response", "expected"), [
    ("substring_exact_match", ("The Reed River",), "it is a REED, river.", 1),
    ("substring_exact_match", ("Reed",), "Deep River", 0),
    ("recall", ("Foxmoor", "golden owl"), "He lives in FOXMOOR.", 0.5),
    ("recall", ("a b",), "a, b", 0),  # no other form than the case, as in RULER
    ("label_accuracy", ("27",), "27.", 1),
    ("label_accuracy", ("27",), "27 or 28", 0),
    ("str_em", ("Foxmoor", "golden owl"), "In Foxmoor [1]; a golden [2] owl.", 1),
    ("str_em", ("Foxmoor", "golden owl"), "Foxmoor.", 0.5),
    ("recall_top5", ("A B", "C D"), "A B [1], X Y [2].", 0.5),
    ("recall_top5", ("A B", "C D"), "A B and C D", 0),  # items stand between commas
    ("recall_top5", tuple("abcdefgh"), "b, c, d, e, f", 1),  # five are enough
    ("recall_top5", tuple("bcdefghi"), "b, c, d", 3 / 5),
    ("choice_exact_match", ("A", "A. red silk"), "A", 1),
    ("choice_exact_match", ("A", "A. red silk"), "(a).", 1),
    ("choice_exact_match", ("A", "A. red silk"), "It is a. red silk, I think", 1),
    ("choice_exact_match", ("A", "A. red silk"), "red silk", 0),
    ("choice_exact_match", ("B", "B. red silk"), "A", 0),
    *(("choice_exact_match", ("B", "B. red silk"), said, 1)  # as HELMET reads them
      for said in ("B!", '"B"', "[B]", "B;", "B?", "B red silk", "**B**")),
    *(("choice_exact_match", ("B", "B. red silk"), said, 0) for said in ("B or C", "red silk")),
    ("rougeL_f1", ("golden owl",), "golden owl", 1),
    ("rougeL_f1", ("golden owl",), "golden mole", 0.5),
    ("rougeL_f1", ("Foxmoor",), "green mole", 0),
    ("rougeL_f1", ("golden owls",), "golden owl", 1),
    ("rougeL_f1", (), "golden owl", 0),
])
def test_by_hand(metric, golds, response, expected):
    assert METRICS[metric](response, asked(*golds)) == pytest.approx(expected)


def test_empty_responses_have_no_score():
    """Also where the right letter is A, which SQuAD's form makes an empty text."""
    golds = {"ndcg@10": ("1:2",), "choice_exact_match": ("A", "A. x")}
    for name, metric in METRICS.items():
        sample = asked(*golds.get(name, ("Foxmoor",)), asked=(HOME,), told=((HOME, 0),))
        assert metric("", sample) == metric(" \n", sample) == metric(".", sample) == 0, name


def test_whole_sentences_count_by_what_they_add_to_the_question():
    sample = asked("Cor Ilbeck", after="\n\nWho is the mayor of the town where Alan Abbeck lives?")
    said = "The mayor of the town where Alan Abbeck lives is {}."
    assert metrics.rouge_l_f1(said.format("Cor Ilbeck"), sample) == 1
    assert metrics.rouge_l_f1(said.format("Cor Tolbane"), sample) == 0.5
    assert metrics.rouge_l_f1(said.format("Ulmir Tolbane"), sample) == 0
    assert metrics.rouge_l_f1("Cor Ilbeck", sample) == 1


@pytest.mark.parametrize(("response", "ranks"), [
    ("Ranking: [3] > [1] > [2]", ["3", "1", "2"]), ("ID3 > ID1", ["3", "1"]),
    ("First 12, then 4 > 7 > 4", ["4", "7"]), ("none of them", []), ("[10]", ["10"]),
    ("1 > 2\n5 > 6 > 7", ["5", "6", "7"]), ("", [])])
def test_rankings_are_the_longest_chain(response, ranks):
    found = metrics.ranking(response)
    assert sorted(found, key=found.get, reverse=True) == ranks


def test_ndcg_is_that_of_its_formula():
    rng = random.Random(0)
    for _ in range(60):
        grades = {str(n): rng.choice((1, 1, 2)) for n in rng.sample(range(1, 30), 5)}
        said = [str(n) for n in rng.sample(range(1, 30), 14)]
        gain = sum(grades.get(n, 0) / math.log2(i + 2) for i, n in enumerate(said[:10]))
        best = sum(g / math.log2(i + 2)
                   for i, g in enumerate(sorted(grades.values(), reverse=True)))
        sample = asked(*(f"{n}:{g}" for n, g in grades.items()))
        found = metrics.ndcg(" > ".join(f"[{n}]" for n in said), sample)
        assert found == pytest.approx(gain / best)


@pytest.mark.parametrize(("sentence", "facts"), [
    ("Alan Abbeck lives in Foxmoor.", {HOME}),
    ("He lives in Foxmoor.", {HOME}),  # it is asked for, and nobody is named
    ("The mayor of Foxmoor is Cor Ilbeck.", {MAYOR}),
    ("Foxmoor.", {HOME}),
    ("The Amcas ring is in Foxmoor.", {RING}), ("An Amcas ring: Foxmoor.", {RING}),
    ("Alan Abbeck, whose owl is golden, has a golden owl in Foxmoor.", {HOME, PET}),
    ("Cor Ilbeck lives in Foxmoor.", {MAYOR}),  # which relation is meant is not looked at
    ("Cor Ilbeck was born in 1741.", {BORN}), ("She was born in 1741.", set()),
    ("Alan Abbeck lives in Foxmoorside.", set()), ("", set())])
def test_facts_that_a_sentence_states(sentence, facts):
    assert set(about.facts_in(sentence, CITED)) == facts


@pytest.mark.parametrize(("response", "recall", "precision"), [
    ("Alan Abbeck lives in Foxmoor [1]. He owns a golden owl [2].", 1, 1),
    ("Alan Abbeck lives in Foxmoor [1]. He owns a golden owl.", 1 / 2, 1),
    ("Alan Abbeck lives in Foxmoor [2].", 0, 0),
    ("Alan Abbeck lives in Foxmoor [9].", 0, 0),  # there is no such document
    ("Alan Abbeck lives in Foxmoor [1][3].", 1, 1 / 2),  # one citation too many
    ("Alan Abbeck has a golden owl in Foxmoor [1] [2].", 1, 1),  # both are needed
    ("Alan Abbeck has a golden owl in Foxmoor [1].", 0, 0),
    ("Foxmoor is governed by Cor Ilbeck [3].", 1, 1),  # true, if not asked for
    ("Alan Abbeck lives in Foxmoor [4][3][2][1].", 0, 0),  # the fourth citation does not count
    ("Alan Abbeck lives in Oakham [1].", 0, 0),
    ("[1].", 0, 0), ("", 0, 0)])
def test_citations(response, recall, precision):
    assert about.citation_recall(response, CITED) == pytest.approx(recall)
    assert about.citation_precision(response, CITED) == pytest.approx(precision)


def slow_citations(claims, told, documents):
    """ALCE's algorithm step by step, over claims given as (facts, cited numbers)."""
    def entails(numbers, facts):
        known = [fact for fact, number in told for n in numbers if n == number]
        return facts != [] and all(fact in known for fact in facts)

    recall, precision, cited = 0, 0, 0
    for facts, numbers in claims:
        joint = None
        if numbers == [] or [n for n in numbers if n < 1 or n > documents]:
            joint = 0
        else:
            numbers = numbers[:3]
            cited += len(numbers)
            joint = int(entails(numbers, facts))
        recall += joint
        if joint and len(numbers) > 1:
            for i in range(len(numbers)):
                rest = numbers[:i] + numbers[i + 1:]
                if entails([numbers[i]], facts) or not entails(rest, facts):
                    precision += 1
        else:
            precision += joint
    return recall / len(claims), precision / cited if cited else 0


def test_citations_are_those_of_the_slow_algorithm():
    rng, facts = random.Random(1), [HOME, PET, BORN]
    told = tuple((fact, number) for fact in facts for number in rng.sample(range(1, 5), 2))
    sample = asked("x", context=DOCUMENTS, told=told, asked=(HOME,))
    for _ in range(300):
        claims, text = [], []
        for _ in range(rng.randint(1, 3)):
            stated = rng.sample(facts, rng.randint(0, 2))
            numbers = [rng.randint(0, 5) for _ in range(rng.randint(0, 4))]
            claims.append((stated, numbers))
            words = [f"{f.subject} and {f.value}" for f in stated] or ["nothing at all"]
            text.append(f"{'; '.join(words)} {''.join(f'[{n}]' for n in numbers)}.")
        response = " ".join(text)
        # PET and HOME share their subject, which must not make one out of the other
        expected = slow_citations(claims, told, 4)
        assert (about.citation_recall(response, sample),
                about.citation_precision(response, sample)) == pytest.approx(expected), response


def test_items_of_a_list_answer_the_question():
    question = asked("Alan Abbeck", "Cor Ilbeck", context=DOCUMENTS, after="Who lives in Foxmoor?",
                     told=((HOME, 1), (Fact("Cor Ilbeck", "home", "Foxmoor"), 2), (PET, 3)))
    for response, recall, precision in (
            ("Alan Abbeck [1], Cor Ilbeck [2].", 1, 1), ("Alan Abbeck [1], Cor Ilbeck.", 1 / 2, 1),
            ("Alan Abbeck [3], Cor Ilbeck [2]", 1 / 2, 1 / 2), ("Ulmir Tolbane [1]", 0, 0),
            ("Alan Abbeck [1][2]", 1, 1 / 2)):
        assert about.list_citation_recall(response, question) == pytest.approx(recall)
        assert about.list_citation_precision(response, question) == pytest.approx(precision)


@pytest.mark.parametrize(("response", "grade"), [
    ("Alan Abbeck lives in Foxmoor. He owns a golden owl.", 3), ("Foxmoor, golden owl", 3),
    ("He lives in Foxmoor and owns a golden owl. The lamps were lit early.", 2),
    ("He lives in Foxmoor.", 1), ("He lives in Foxmoor. The lamps were lit early.", 1),
    ("He lives in Oakham.", 0), ("The mayor of Foxmoor is Cor Ilbeck.", 0),
    ("Foxmoor golden owl " * 6, 0)])  # right, but not fluent
def test_grades_of_free_answers(response, grade):
    assert about.answer_score(response, CITED) == pytest.approx(grade / 3)


def test_a_year_is_an_answer():
    sample = asked("1741", asked=(BORN,), told=((BORN, 0),))
    assert about.answer_score("1741", sample) == 1


@pytest.mark.parametrize(("response", "score"), [
    ("Alan Abbeck lives in Foxmoor. Alan Abbeck owns a golden owl.", 1),
    ("Alan Abbeck lives in Foxmoor, and owns a golden owl.", 1),
    ("Alan Abbeck lives in Foxmoor.", 2 * 1 * 0.5 / 1.5),
    ("Alan Abbeck lives in Foxmoor. The lamps were lit early.", 2 * 0.5 * 0.5 / 1),
    ("Alan Abbeck lives in Foxmoor. Alan Abbeck lives in Foxmoor.", 0),  # repeats itself
    ("The lamps were lit early.", 0)])
def test_summaries(response, score):
    assert about.key_point_f1(response, CITED) == pytest.approx(score)


def test_f1_of_key_points_is_that_of_its_counts():
    """Any choice of right and wrong sentences, in any order."""
    right = {HOME: "Alan Abbeck lives in Foxmoor.", PET: "Alan Abbeck owns a golden owl."}
    wrong = ["The bread was still warm.", "Cor Ilbeck was born in 1741."]
    for said in itertools.chain.from_iterable(
            itertools.permutations([*right.values(), *wrong], k) for k in range(1, 5)):
        good = sum(line in said for line in right.values())
        p, r = good / len(said), good / 2
        expected = 2 * p * r / (p + r) if good else 0
        assert about.f1_of_key_points(" ".join(said), CITED) == pytest.approx(expected)


def test_what_answers_one_question_may_be_the_subject_of_another_fact():
    sample = asked("Foxmoor", asked=(HOME,), told=((HOME, 1), (MAYOR, 2)))
    assert about.facts_in("Foxmoor.", sample) == [HOME]


def test_sentences_of_less_than_five_characters_are_none():
    """As in ALCE."""
    for short, recall in (("abc.", 1), ("abcd.", 1 / 2)):
        assert about.citation_recall(f"Alan Abbeck lives in Foxmoor [1]. {short}", CITED) == recall


@pytest.mark.parametrize(("reply", "grade"), [
    ('It is {"fluency": 0}, no: {"fluency": 1}.', 1), ('{"fluency": 1} or {so it is}', 1),
    ('{"fluency": 1} {"fluency": 9}', None), ("{so it is}", None)])
def test_the_last_grades_of_a_reply_count(reply, grade):
    """What is no JSON is passed over, what is no grade is not."""
    assert about.read_grades(reply, "fluency") == (grade and {"fluency": grade})


def test_against_loops():
    rng = np.random.default_rng(0)
    scores, texts = rng.uniform(0, 100, (7, 7)), np.array([0, 0, 1, 1, 1, 2, 3])
    shuffled = [scores[q, a] for q in range(7) for a in range(7) if texts[q] != texts[a]]
    constant = [np.mean([scores[q, a] for q in range(7) if q != a]) for a in range(7)]
    assert baselines(scores, texts) == pytest.approx((np.mean(shuffled), max(constant)))


def test_known_answers():
    """A constant answer is as good as itself; one that fits its own question alone is worth
    nothing elsewhere."""
    constant = np.tile([[30.0], [0.0], [60.0]], 3)
    assert baselines(constant, np.arange(3)) == (30, pytest.approx(45))
    assert baselines(100 * np.eye(4), np.arange(4)) == (0, 0)
    assert np.isnan(baselines(np.ones((2, 2)), np.zeros(2))[0])
