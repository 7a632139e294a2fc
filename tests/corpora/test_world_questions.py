"""Questions to shared texts, against a reader that knows the words of the relations and no fact."""

import re

import pytest

from rmutils.corpora.world import document_questions as documents
from rmutils.corpora.world import document_questions as labels
from rmutils.corpora.world import text_questions as texts
from rmutils.corpora.world.facts import Fact
from rmutils.corpora.world.lexicon import RELATIONS
from rmutils.corpora.world.samples import TooShort
from rmutils.corpora.world.writing import Chronicle
from tests.corpora.reader import fact_of, facts_in, low, questions_in
from tests.corpora.test_world_tasks import chase, count, table

LOOK_UPS = (texts.needles_among_rivals, texts.several_values, texts.free_answers, texts.choices)
MAKERS = (*LOOK_UPS, texts.chains, texts.summaries, texts.codes, documents.document_questions,
          documents.document_hops, documents.document_citations, documents.listings,
          documents.rankings, labels.coarse_labels, labels.fine_labels,
          labels.name_labels)
LABELS = labels.coarse_labels, labels.fine_labels, labels.name_labels
LENGTHS = 500, 900
NUMBERED = re.compile(r"Document (\d+) \((.+?)\): ")


def drawn(maker, seeds=range(4)):
    for seed in seeds:
        questions = maker(Chronicle(seed), LENGTHS[seed % 2], count, 4)
        assert len(questions) == 4
        yield from ((question, LENGTHS[seed % 2]) for question in questions)


def as_facts(found):
    return {Fact(*triple) for triple in found}


def in_documents(context):
    """(fact, number of its document), as the text alone has them."""
    told = set()
    for block in context.split("\n\n"):
        number, subject = NUMBERED.match(block).groups()
        facts = as_facts(facts_in(NUMBERED.sub("", block)))
        assert facts and {fact.subject for fact in facts} == {low(subject)}
        told |= {(fact, int(number)) for fact in facts}
    return told


@pytest.mark.parametrize("maker", MAKERS)
def test_texts_are_shared_and_filled(maker):
    for seed in range(2):
        questions = maker(Chronicle(seed), 700, count, 4)
        assert len({(q.before, q.context) for q in questions}) == 1
        assert len({q.after for q in questions}) > 1
        sizes = [count(question.prompt) for question in questions]
        assert max(sizes) <= 700 and (max(sizes) > 560 or maker is labels.fine_labels)
        again = maker(Chronicle(seed), 700, count, 4)
        assert again == questions
        for question in questions:
            assert all(line in question.context for line in question.support)


@pytest.mark.parametrize("maker", [m for m in MAKERS if m not in (texts.codes, *LABELS)])
def test_told_is_what_a_reader_finds(maker):
    for question, _ in drawn(maker):
        numbered = question.context.startswith("Document 1 ")
        found = in_documents(question.context) if numbered else {
            (fact, 0) for fact in as_facts(facts_in(question.context))}
        assert set(question.told) == found
        assert question.documents == len({n for _, n in found}) * numbered
        for fact, number in found:
            assert number in question.sources(fact)


@pytest.mark.parametrize("maker", [*LOOK_UPS, documents.document_questions,
                                   documents.document_citations])
def test_the_text_has_the_answer(maker):
    for question, _ in drawn(maker):
        values = table([fact.__dict__.values() for fact, _ in question.told])
        asked = questions_in(question.after.split("\nOptions:")[0])
        found = [values[key] for key in asked]
        assert [fact.value for fact in question.asked] == found
        if maker is texts.choices:
            options = dict(re.findall(r"^([A-D])\. (.+)$", question.after, re.MULTILINE))
            right, = (letter for letter, value in options.items() if value == found[0])
            assert question.golds == (right, f"{right}. {found[0]}") and question.answer == right
            assert len(set(options.values())) == 4
        else:
            assert list(question.golds) == found
        if maker is documents.document_citations:
            assert [int(n) for n in re.findall(r"\[(\d+)\]", question.answer)] == [
                question.sources(fact)[0] for fact in question.asked]


def test_citations_are_asked_for_one_to_three_facts():
    assert {len(question.asked) for question, _ in drawn(documents.document_citations)} == {1, 2, 3}


@pytest.mark.parametrize("maker", [texts.chains, documents.document_hops])
def test_hops_lead_to_the_answer(maker):
    for question, _ in drawn(maker):
        values = table([fact.__dict__.values() for fact, _ in question.told])
        name = re.search(r"\b(?:is|Name) the ([^.?]+)[.?]", question.after)[1]
        assert question.golds == (chase(name, values),)
        assert question.golds[0] in question.answer
        assert len(question.support) in (2, 3)
        facts = [fact_of(line) for line in question.support]
        assert all(a[2] == b[0] for a, b in zip(facts, facts[1:], strict=False))


def test_summaries_have_all_facts_about_their_subject():
    for question, _ in drawn(texts.summaries):
        subject = re.search(r"about (.+?)\?", question.after)[1]
        facts = [triple for triple in facts_in(question.context) if triple[0] == subject]
        assert len(facts) >= 2 and facts_in(question.answer) == facts
        assert question.answer == " ".join(question.key_points)
        assert all(subject != value for _, _, value in facts_in(question.context))


def test_listings_have_everyone():
    for question, _ in drawn(documents.listings):
        statement = re.search(r"(Who .+?)\?", question.after)[1].replace("Who", "Alan Abbeck") + "."
        _, relation, value = fact_of(statement)
        right = {(fact.subject, number) for fact, number in in_documents(question.context)
                 if (fact.relation, fact.value) == (relation, value)}
        assert len(right) >= 2 and value not in {subject for subject, _ in right}
        items = re.findall(r"([^,]+?) \[(\d+)\]", question.answer)
        assert {(name.strip(), int(number)) for name, number in items} == right
        assert set(question.golds) == {name for name, _ in right}


def test_rankings_by_subject_and_relation():
    grades = set()
    for question, _ in drawn(documents.rankings):
        (subject, relation), = questions_in(question.after)
        expected = {}
        for fact, number in in_documents(question.context):
            if (fact.subject, fact.relation) == (subject, relation):
                expected[number] = 2
            elif subject == fact.subject or relation == fact.relation:
                expected.setdefault(number, 1)
        assert dict(map(int, g.split(":")) for g in question.golds) == expected
        order = [int(n) for n in re.findall(r"\d+", question.answer)]
        assert [expected[n] for n in order] == sorted(expected.values(), reverse=True)
        grades.add(tuple(sorted(expected.values())))
    assert len(grades) > 1 and all(g.count(2) == 1 and 1 in g for g in grades)


@pytest.mark.parametrize(("maker", "classes", "class_of"), [
    (labels.coarse_labels, 4, lambda fact: RELATIONS[fact[1]].subject),
    (labels.fine_labels, 12, lambda fact: fact[1]), (labels.name_labels, 12, lambda fact: fact[0])])
def test_labels_follow_the_examples(maker, classes, class_of):
    """The class is the kind of subject, the relation, or the subject; in rounds of all classes."""
    right = 0
    for question, _ in drawn(maker):
        examples = re.findall(r"^Text: (.+) Label: (\w+)$", question.context, re.MULTILINE)
        assert len(examples) == question.context.count("\n") + 1
        asked = fact_of(re.search(r"Text: (.+?\.)", question.after)[1])
        assert asked not in [fact_of(text) for text, _ in examples]
        for start in range(0, len(examples), classes):
            part = [label for _, label in examples[start : start + classes]]
            assert len(set(part)) == len(part)
        known = {label for text, label in examples if class_of(fact_of(text)) == class_of(asked)}
        assert known <= {question.golds[0]} and question.answer == f"Label: {question.golds[0]}"
        right += bool(known)
    assert right > 12  # of 16; the first texts have room for one round or two


def test_codes_are_in_the_list():
    for question, _ in drawn(texts.codes):
        lines = dict(line.split(": ") for line in question.context.split("\n"))
        key, = re.findall(r"[A-Z]\d{4}", question.after)
        assert question.golds == (lines[key],) and question.depth < 1


@pytest.mark.parametrize("maker", MAKERS)
def test_too_short(maker):
    with pytest.raises(TooShort) as error:
        maker(Chronicle(1), 10, count, 1)
    assert 20 < error.value.least < 220
    assert len(maker(Chronicle(1), error.value.least + 10, count, 1)) == 1
