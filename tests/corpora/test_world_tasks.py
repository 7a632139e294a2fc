"""Long tasks against a solver that knows the words of the relations and reads only the prompt."""

import re

import pytest

from rmutils.core.errors import UserError
from rmutils.corpora.world import World
from rmutils.corpora.world.lexicon import FILLERS, OF_KIND, RELATIONS
from rmutils.corpora.world.lookups import gold_positions
from rmutils.corpora.world.tasks import TASKS, task
from tests.corpora.reader import STARTS, fact_of, low, questions_in, sentences

SAMPLES, LENGTHS = 12, (128, 256, 512, 900)
SPLITS = ("train", "held_out")


def count(text):
    """Words, signs, single digits and line breaks, as in a small tokenizer."""
    return len(re.findall(r"\n|[A-Za-z]+|\d|[^\w\s]", text))


NOUNS = [(r.name, re.compile(re.escape(r.noun).replace(r"\{s\}", "(.+)")))
         for r in RELATIONS.values()]


def triples(text):
    """The facts of a text, of which all else must be fillers."""
    found = [fact_of(line) for line in sentences(text) if line not in FILLERS]
    assert all(found), text
    return found


def table(facts):
    """(subject, relation) -> the one value; nothing may be told twice in two ways."""
    values = {}
    for s, r, v in facts:
        assert values.setdefault((s, r), v) == v
    return values


def documents(text):
    """Number -> (subject, facts)."""
    found = {}
    for number, block in enumerate(text.split("\n\n"), 1):
        m = re.fullmatch(r"Document (\d+) \((.+?)\): (.+)", block)
        assert int(m[1]) == number
        facts = triples(m[3])
        assert facts and {s for s, _, _ in facts} == {low(m[2])}
        found[number] = low(m[2]), facts
    return found


def chase(name, values):
    """The value of "mayor of the town where X lives"."""
    for relation, p in NOUNS:
        if m := p.fullmatch(name):
            inner = m[1]
            known = chase(inner.removeprefix("the "), values) if inner.startswith("the ") else None
            return values[known or inner, relation]
    return None


def solve_look_up(sample):
    values = table(triples(sample.context))
    return [values[key] for key in questions_in(sample.after)]


def solve_key_value(sample):
    lines = dict(line.split(": ") for line in sample.context.split("\n"))
    assert len(lines) == sample.context.count("\n") + 1
    key, = re.findall(r"[A-Z]\d{4}", sample.after)
    return [lines[key]]


def solve_documents(sample):
    """Values, each with the number of its document."""
    told = [(s, r, (v, n)) for n, (_, facts) in documents(sample.context).items()
            for s, r, v in facts]
    values = table(told)
    return [values[key] for key in questions_in(sample.after)]


def solve_rerank(sample):
    (subject, relation), = questions_in(sample.after)
    grades = {}
    for number, (about, facts) in documents(sample.context).items():
        if any(fact[:2] == (subject, relation) for fact in facts):
            grades[number] = 2
        elif about == subject or any(r == relation for _, r, _ in facts):
            grades[number] = 1
        else:
            assert all(v != subject for _, _, v in facts)
    return sorted(grades.items(), key=lambda item: (-item[1], item[0]))


def solve_classify(sample):
    """By the relation if an example has it, else by the kind of subject."""
    examples = [re.fullmatch(r"Text: (.+) Label: (\w+)", line).groups()
                for line in sample.context.split("\n")]
    asked = fact_of(re.search(r"(?:Text:|text:) ([^.]+\.)", sample.after)[1])[1]
    for group in ([asked], [r.name for r in OF_KIND[RELATIONS[asked].subject]]):
        labels = {label for text, label in examples if fact_of(text)[1] in group}
        if labels:
            label, = labels
            return [label]
    return []


def solve_summary(sample):
    about = re.search(r"text says? about (.+?)[.?]", sample.after)[1]
    facts = triples(sample.context)
    assert all(v != about for _, _, v in facts)
    return [fact for fact in facts if fact[0] == about]


def solve_hops(sample):
    name = re.search(r"\b(?:is|Name) the ([^.?]+)[.?]", sample.after)[1]
    return [chase(name, table(triples(sample.context)))]


def check(kind, sample):
    """Whether answer, golds and thinking are what the solver finds."""
    facts = [] if kind in ("key_value", "classify") else triples(re.sub(
        r"Document \d+ \(.+?\): ", "", sample.context))
    answer = sample.answer
    if kind in ("needle", "needles"):
        assert list(sample.golds) == solve_look_up(sample)
        assert [fact[2] for fact in triples(answer)] == list(sample.golds)
        assert sample.thinking == answer
    elif kind == "key_value":
        assert list(sample.golds) == solve_key_value(sample)
        assert answer.endswith(f" is {sample.golds[0]}.") and sample.thinking in sample.context
    elif kind in ("documents_qa", "citations"):
        found = solve_documents(sample)
        assert list(sample.golds) == [v for v, _ in found]
        assert gold_positions(sample)[0] == [n for _, n in found]
        if kind == "citations":
            assert re.findall(r" \[(\d+)\]\.", answer) == [str(n) for _, n in found]
            answer = re.sub(r" \[\d+\]", "", answer)
        assert answer == sample.thinking
    elif kind == "rerank":
        ranks = solve_rerank(sample)
        assert sample.golds == tuple(f"{n}:{grade}" for n, grade in ranks)
        assert answer == " > ".join(f"[{n}]" for n, _ in ranks) and len(ranks) > 1
        assert f" [{ranks[0][0]}]." in sample.thinking
    elif kind == "classify":
        assert list(sample.golds) == solve_classify(sample)
        assert answer == f"Label: {sample.golds[0]}"
    elif kind == "summary":
        assert triples(answer) == solve_summary(sample)
        assert answer == " ".join(sample.key_points) and 3 <= len(sample.key_points) <= 6
    else:
        assert list(sample.golds) == solve_hops(sample)
        chain = triples(sample.thinking)
        assert all(a[2] == b[0] for a, b in zip(chain, chain[1:], strict=False))
        assert chain[-1][2] == sample.golds[0] and sample.golds[0] in answer
    if facts:  # the chain of look-ups is in the text, word for word in `support`
        thought = triples(re.sub(r" \[\d+\]", "", sample.thinking))
        assert set(thought) <= set(facts)
        assert [fact_of(line) for line in sample.support] == (thought or triples(answer))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("kind", TASKS)
def test_text_alone_gives_the_answer(kind, split):
    other, = {*SPLITS} - {split}
    for seed in range(SAMPLES):
        length = LENGTHS[seed % len(LENGTHS)]
        sample = task(kind, World(seed, split), length, count)
        assert sample.kind == kind
        assert sample.support and all(line in sample.context for line in sample.support)
        check(kind, sample)
        assert not any(start in sample.prompt for start in STARTS[other])
        used = count(sample.prompt)
        assert used <= length
        assert used >= 0.85 * length or length < 256


@pytest.mark.parametrize("kind", TASKS)
def test_one_world_for_many_tasks(kind):
    """What earlier texts have told does not spoil later ones."""
    world = World("many")
    for _ in range(5):
        check(kind, task(kind, world, 300, count))


@pytest.mark.parametrize("kind", TASKS)
def test_texts_that_use_up_all_places(kind):
    """There are about a hundred held-out towns; the text goes on without new ones."""
    sample = task(kind, World(0, "held_out"), 6000, count)
    check(kind, sample)
    assert count(sample.prompt) >= 0.98 * 6000 or kind == "classify"


@pytest.mark.parametrize("kind", TASKS)
def test_too_short(kind):
    with pytest.raises(UserError, match=f"{kind}.*10 tokens") as raised:
        task(kind, World(1), 10, count)
    least = int(re.search(r"at least (\d+)", str(raised.value))[1])
    assert 15 < least < 150
    assert count(task(kind, World(1), least + 10, count).prompt) <= least + 10
