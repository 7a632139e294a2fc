"""Every task can be solved, none by saying always the same, and marks are right case by case."""

import re
from itertools import chain

import pytest
import yaml

from rmutils.core.errors import UserError
from rmutils.evaluation.abilities import short_tasks as coding_module
from rmutils.evaluation.abilities.ability_tasks import TASKS, ability, tasks_of
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig
from rmutils.evaluation.abilities.sandbox import Outcome, missing
from rmutils.evaluation.abilities.short_tasks import (
    Item,
    arithmetic,
    code_of,
    coding,
    formats,
    last_number,
    letter_of,
    reading,
)

SIZE = 140
ALL = [(corpus, name) for corpus in ("world", "book") for name in tasks_of(corpus)]


@pytest.fixture
def outside(monkeypatch):
    """Trusted code is run in this process, which is faster."""
    def call(code, function, calls):
        space = {}
        exec(code, space)
        return Outcome(tuple(space[function](*one) for one in calls))

    monkeypatch.setattr(coding_module, "call", call)


def mean(items, answer) -> float:
    return sum(item.score(answer(item)) for item in items) / len(items)


@pytest.mark.parametrize("corpus, name", ALL)
def test_a_right_answer_scores_100_and_a_constant_one_near_chance(corpus, name, outside):
    """The constants: every right answer to another question, every option, and empty words."""
    task = tasks_of(corpus)[name]
    items = task.make(SIZE, 0)
    assert mean(items, lambda item: item.right) == 100
    assert len({item.prompt for item in items}) == len(items) <= SIZE
    if name == "code":
        return  # see below
    constants = {item.right for item in items[:60]} | {"", "I do not know.", "A", "7", "{}"}
    constants |= set(chain.from_iterable(item.options for item in items[:20]))
    best = max(mean(items, lambda item, c=c: c) for c in constants)
    assert best <= task.chance + 6
    if items[0].options:
        assert all(len(set(item.options)) == 4 and item.right in item.options for item in items)
        for place in range(4):
            chosen = mean(items, lambda item, p=place: item.options[p])
            assert chosen == pytest.approx(task.chance, abs=6)


@pytest.mark.parametrize("corpus, name", ALL)
def test_questions_come_from_the_seed(corpus, name):
    make = tasks_of(corpus)[name].make
    first, same, other = ([(i.prompt, i.right, i.options) for i in make(12, s)] for s in (0, 0, 1))
    assert first == same and first == [(i.prompt, i.right, i.options) for i in make(30, 0)][:12]
    assert (first == other) == (name == "code")


def test_a_task_from_outside(monkeypatch):
    """It is asked if it is named; the default stays what it was."""
    monkeypatch.setattr(TASKS, "_known", {**TASKS._known})
    before = tasks_of("book")

    @ability("echo", "book", max_new_tokens=8)
    def echo(count, seed):
        return [Item("word", f"Say {i}.", str(i), lambda answer: 100.0) for i in range(count)]

    assert tasks_of("book", ["echo"])["echo"].make is echo and tasks_of("book") == before
    assert len(GeneralConfig(tasks=("echo",), samples=3).items("book")["echo"][1]) == 3


def test_unknown_task():
    assert list(tasks_of("book", ["code", "formats"])) == ["code", "formats"]
    with pytest.raises(UserError, match="no task 'code' for .*short instructions, multiple choice"):
        tasks_of("world", ["code"])


@pytest.mark.parametrize("text, number", [
    ("12", 12), ("It is 12.", 12), ("3 + 4 = 7", 7), ("1,234", 1234), ("-5", -5), ("2.5 left", 2.5),
    ("7, I think", 7), ("seven", None), ("", None)])
def test_last_number(text, number):
    assert last_number(text) == number


def test_arithmetic_by_hand():
    """Each question is solved anew from its own words."""
    for item in arithmetic(SIZE, 3):
        a, b, *rest = map(int, re.findall(r"\d+", item.prompt))
        value = {"sum": a + b, "difference": a - b, "product": a * b, "quotient": a / b,
                 "two steps": a * b - (rest or [0])[0]}[item.kind]
        assert float(item.right) == value >= 0
        assert item.score(f"I say {item.right}.") == 100 and item.score(f"{value + 1:g}") == 0


FORMS = {item.kind: item for item in reversed(formats(SIZE, 0))}


@pytest.mark.parametrize("kind, answer, score", [
    ("capitals", "THE {T} IS OLD.", 100), ("capitals", "The {t} is old.", 0),
    ("capitals", "IT IS OLD.", 0), ("capitals", "{T}", 0),
    ("quotation", '"The {t} is old."', 100), ("quotation", "“The {t} is old.”", 100),
    ("quotation", "The {t} is old.", 0), ("quotation", 'Here: "The {t} is old."', 0),
    ("ending", "The {t} is old, that is all I know.", 100), ("ending", "that is all I know", 0),
    ("ending", "The {t}: that is all I know. Bye.", 0), ("ending", "The {t} is very old.", 0),
    ("few words", "The {t} is old and never goes out.", 100),
    ("few words", "The {t} is old and it never goes out.", 0), ("few words", "It is very old.", 0),
    ("twice", "The {t} met a {t}.", 100), ("twice", "The {t} is old.", 0),
    ("twice", "A {t}, a {t}, a {t}.", 0), ("twice", "{t} {t}", 0),
])
def test_written_formats(kind, answer, score):
    item = FORMS[kind]
    topic = re.search(r"This (\w+(?: \w+)*?) is old", item.right, re.IGNORECASE)[1].lower()
    assert item.score(answer.format(t=topic, T=topic.upper())) == score


def test_shared_formats():
    """A record has to hold what was given; a list as many lines as were asked for."""
    record, listed = FORMS["record"], FORMS["numbered list"]
    assert record.score(f"```json\n{record.right}\n```") == 100
    assert record.score('{"name": "a", "job": "b", "town": "c"}') == 0
    assert record.score(record.right[:-1]) == 0
    lines = listed.right.splitlines()
    assert listed.score("\n".join(f"{i + 1}) thing" for i in range(len(lines)))) == 100
    assert listed.score("\n".join(lines[1:])) == 0


@pytest.mark.parametrize("answer, letter", [
    ("B", "B"), ("B.", "B"), ("(B)", "B"), ("**B**", "B"), ("B. red cat", "B"), ("B) because", "B"),
    ("The answer is C.", "C"), ("I think the answer is: (D)", "D"), ("It is the red cat.", "B"),
    ("A red cat", "B"), ("Between red cat and black mole", None), ("Beyond doubt", None),
    ("E", None), ("", None), ("An owl", None)])
def test_letters(answer, letter):
    assert letter_of(answer, ("white owl", "red cat", "black mole", "grey fox")) == letter


def test_reading_is_about_the_passage():
    """All four values stand in it, and the forms ask the same in three ways."""
    forms = [reading(60, 1, form=form) for form in ("values", "letters", "written")]
    for values, letters, written in zip(*forms, strict=True):
        passage, question = values.prompt.split("\n\n")
        assert all(value in passage and value not in question for value in values.options)
        listed = re.findall(r"^([A-D])\. (.+)$", letters.prompt, re.MULTILINE)
        assert tuple(value for _, value in listed) == values.options
        assert dict(listed)[letters.right] == values.right and letters.options == tuple("ABCD")
        assert written.prompt == letters.prompt and not written.options
        assert written.score(f"{letters.right}. {values.right}") == 100
    assert [item.right for item in forms[1][:8]] == list("ABCDABCD")


def test_code_is_found_in_an_answer():
    plain, fenced = "def f(x):\n    return 1\n", "Sure!\n\n```python\n{}```\nThis returns one."
    assert code_of(plain, "f") == plain
    assert code_of(fenced.format(plain), "f") == plain
    both = fenced.format("print(1)\n") + "\n" + fenced.format(plain)
    assert code_of(both, "f") == plain
    assert code_of("```\n" + plain, "f") == plain  # cut before the fence was closed
    assert code_of("```python\nprint(1)\n```", "f") == "```python\nprint(1)\n```"


def test_problems_have_no_shortcut(outside):
    """No constant and no unchanged argument passes; the example is right, and no test."""
    problems = yaml.safe_load(coding_module.PROBLEMS.read_text(encoding="utf-8"))
    items = coding(99, 0)
    assert 20 <= len(problems) == len(items) <= 40
    for problem, item in zip(problems, items, strict=True):
        name, tests, example = problem["function"], problem["tests"], problem["example"]
        for constant in [wanted for _, wanted in tests]:
            assert item.score(f"def {name}(*args):\n    return {constant!r}") == 0, name
        assert item.score(f"def {name}(*args):\n    return args[0]") == 0, name
        assert problem["begins"].startswith(f"def {name}(") and problem["begins"] in item.right
        space = {}
        exec(problem["solution"], space)
        assert space[name](*example[0]) == example[1] and example[0] not in [t[0] for t in tests]


@pytest.mark.skipif(bool(missing()), reason="this system has no sandbox")
def test_code_is_really_run():
    """Once in the sandbox: a right function, a wrong one, and one that prints what is expected."""
    first, *_ = coding(1, 0)
    assert first.score(first.right) == 100
    assert first.score("def add_three(a, b, c):\n    return a + b") == 0
    assert first.score("print(15, 0, 6, 123)") == 0
