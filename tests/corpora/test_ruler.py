"""RULER's tasks: answers follow from the text, by readers that know nothing of how it was made."""

import re
from collections import Counter
from random import Random

import pytest

from rmutils.corpora.ruler import (
    COMMON,
    LEAST_CODED,
    LONG,
    TASKS,
    essay,
    filled,
    frequent_words,
    words,
)
from rmutils.corpora.world.samples import TooShort
from rmutils.corpora.world.writing import Chronicle, Question
from rmutils.evaluation.helmet.evaluation import score
from rmutils.evaluation.helmet.prompts import EvaluateConfig
from rmutils.evaluation.helmet.suite import DATASETS

BY_NAME = {task.name: task for task in TASKS}
NEEDLE = re.compile(r"One of the special magic (\w+) for (\S+) is: (\S+)\.")


def count(text):
    return len(re.findall(r"\w+|[^\w\s]", text))


def made(name, length, seed=0, split="held_out"):
    question, = BY_NAME[name].make(Chronicle(seed, split), length, count, 1)
    return question


def interpreted(program):
    """Run assignments one after the other; the value of each variable."""
    values = {}
    for target, source in re.findall(r"VAR ([A-Z]+) = (?:VAR )?([A-Z]+|\d+)", program):
        values[target] = values.get(source, source)
    return values


# RULER's own scores, as in scripts/eval/synthetic/constants.py, for one answer.
def string_match_all(said, golds):
    return 100 * sum(1.0 if gold.lower() in said.lower() else 0.0 for gold in golds) / len(golds)


def string_match_part(said, golds):
    return 100 * max(1.0 if gold.lower() in said.lower() else 0.0 for gold in golds)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("length", [700, 1500])
def test_as_long_as_fits_and_always_the_same(name, length):
    found = made(name, length)
    whole = count(f"{found.prompt} {found.prefix}")
    assert 0.85 * length < whole <= length
    assert found == made(name, length) != made(name, length, seed=1)
    assert found.golds and len({*found.golds}) == len(found.golds)


@pytest.mark.parametrize("name, kinds, keys, values, asked", [
    ("niah_single_1", "word number", 1, 1, 1), ("niah_single_2", "word number", 1, 1, 1),
    ("niah_single_3", "word uuid", 1, 1, 1), ("niah_multikey_1", "word number", 4, 1, 1),
    ("niah_multikey_2", "word number", None, 1, 1), ("niah_multikey_3", "uuid uuid", None, 1, 1),
    ("niah_multivalue", "word number", 1, 4, 1), ("niah_multiquery", "word number", 4, 1, 4)])
def test_needles(name, kinds, keys, values, asked):
    forms = {"word": r"[a-z]+-[a-z]+", "number": r"\d{7}", "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}"
                                                                   r"-[0-9a-f]{12}"}
    key_form, value_form = (forms[kind] for kind in kinds.split())
    for seed in range(10):
        found = made(name, 1200, seed)
        told = {}
        for kind, key, value in NEEDLE.findall(found.context):
            assert kind == kinds.split()[1] + "s"
            assert re.fullmatch(key_form, key) and re.fullmatch(value_form, value)
            told.setdefault(key, []).append(value)
        names = re.search(r"for (.+) mentioned", found.after)[1]
        named = re.split(r", and |, ", names)
        assert {*found.golds} == {value for key in named for value in told[key]}
        assert len(named) == asked and len(found.golds) == asked * values
        assert (len(told) == keys) if keys else (len(told) > 10)
        assert {len(found) for found in told.values()} == {values}
        one = "is" if len(found.golds) == 1 else "are"
        assert found.prefix.endswith(f"for {names} mentioned in the provided text {one}")
        rest = NEEDLE.sub("", found.context)
        if name == "niah_single_1":
            assert len({*rest.split("\n")} - {""}) == 1
        elif keys:  # essays from their first sentence on, nothing left out
            assert " ".join(" ".join(essay() * 2).split()).startswith(" ".join(rest.split()))
        else:
            assert not rest.strip()


def test_needles_are_at_all_depths():
    depths = [made("niah_single_2", 1200, seed).depth for seed in range(80)]
    assert min(depths) < 0.1 and max(depths) > 0.9
    assert 0.35 < sum(depths) / len(depths) < 0.65


@pytest.mark.parametrize("split, letters", [("held_out", 5), ("train", 3)])
def test_variables_get_the_value_along_the_chain(split, letters):
    for seed in range(20):
        found = made("vt", 700, seed, split)
        values = interpreted(found.context)
        value = re.search(r"assigned the value (\d{5}) in", found.after)[1]
        assert [name for name, held in values.items() if held == value] == [*found.golds]
        assert len(values) == 5 and all(len(name) == letters for name in values)
        assert f"5 variables are assgined the value {value}" in found.prefix
        assert found.answer.split() == [*found.golds]


@pytest.mark.parametrize("length, split, often, seldom", [
    (900, "held_out", 6, 1), (LONG - 1, "held_out", 6, 1), (LONG, "held_out", 30, 3),
    (6000, "held_out", 30, 3), (600, "train", 3, 1), (6000, "train", 3, 1)])
def test_common_words_are_as_frequent_as_in_ruler(length, split, often, seldom):
    found = made("cwe", length, split=split)
    numbers, listed = zip(*re.findall(r"(\d+)\. (\w+)", found.context), strict=True)
    assert [*map(int, numbers)] == [*range(1, len(listed) + 1)]
    times = Counter(listed)
    assert Counter(times.values())[often] == COMMON == len(found.golds)
    assert {word for word, n in times.items() if n == often} == {*found.golds}
    assert {*times.values()} == {often, seldom}
    if split == "train":
        assert len(times) == 20
    assert found.answer == " ".join(f"{i}. {w}" for i, w in enumerate(found.golds, 1))


def test_no_more_words_than_there_are():
    found = made("cwe", 10**6)
    assert {*re.findall(r"[a-z]+", found.context)} == {*words()}


def test_frequent_words_are_those_after_the_dots():
    for length in (180, 250, 700, 2000):
        found = made("fwe", length)
        times = Counter(found.context.split())
        ranked = [word for word, _ in times.most_common()]
        assert ranked[0] == "..." and {*ranked[1:4]} == {*found.golds}
        share = times["..."] / times[ranked[1]]
        assert share == pytest.approx(4, rel=0.2), "the zeta distribution of alpha 2"
        assert all(re.fullmatch("[a-z]{6}", word) for word in ranked[1:])


def test_third_and_fourth_frequent_word_are_never_tied():
    for units in range(LEAST_CODED, 400):
        found = frequent_words(Random(units), units, 500, False)
        times = sorted(Counter(found.context.split()).values(), reverse=True)
        assert times[3] > (times[4] if len(times) > 4 else 0), units


@pytest.mark.parametrize("name", BY_NAME)
def test_scores_are_those_of_ruler(name):
    """Right, half right, wrong and other answers; one right answer where the best counts."""
    dataset, found = DATASETS[name], made(name, 1000)
    assert dataset.metrics == ("recall",) and dataset.questions == 1
    others = [made(name, 1000, seed).answer for seed in range(1, 5)]
    half = " ".join(found.golds[: len(found.golds) // 2]).upper()
    for said in (found.answer, half, "", *others, f"I think: {found.golds[-1]}?"):
        right = (string_match_part if name.startswith("qa") else string_match_all)
        assert score(dataset, "recall", said, found) == pytest.approx(right(said, found.golds))
    if name.startswith("qa"):
        assert len(found.golds) == 1


def test_answers_of_documents_are_told():
    for name, sentences in (("qa_1", 1), ("qa_2", 2)):
        found = made(name, 900)
        assert len(found.support) == sentences
        assert all(line in found.context for line in found.support)
        assert found.golds[0] in found.support[-1]
        assert found.before.startswith("Answer the question based on the given documents.")


def test_too_short_a_length_is_refused_with_one_that_is_not():
    for name in BY_NAME:
        with pytest.raises(TooShort, match="does not fit in 20 tokens") as refused:
            made(name, 20)
        assert made(name, refused.value.least)


def test_filled_stops_where_one_more_unit_would_not_fit():
    def write(draw, units, length, example):
        return Question("x", "", "", "w " * units)

    for length in range(3, 70):
        assert count(filled(write, 2, length, count, 0.5).context) == length


def test_category_asks_all_13():
    assert EvaluateConfig(datasets=("RULER",)).datasets == tuple(BY_NAME) and len(BY_NAME) == 13
    assert not {*EvaluateConfig().datasets} & {*BY_NAME}
