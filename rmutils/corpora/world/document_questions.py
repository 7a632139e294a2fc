"""Questions about numbered documents (after "Lost in the Middle", 2023) and labelled texts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from rmutils.corpora.world import lookups
from rmutils.corpora.world.facts import Fact
from rmutils.corpora.world.lexicon import HOPS, OF_KIND, RELATIONS
from rmutils.corpora.world.samples import Count, Piece, weave
from rmutils.corpora.world.tasks import labels
from rmutils.corpora.world.writing import Chronicle, Question, ask_all, with_answer

LIST_FRAME = ("Read the documents and answer the question.\n\n",
              "\n\n{q} Name all of them, each with the number of its document.")
SHARED = 6  # persons among whom the answers of `listings` are
MANY = 12  # classes of the finer labels


def shuffled(world: Chronicle, pieces: Sequence[Piece]) -> Callable[[list[Piece]], str]:
    """Documents at uniformly drawn places among the others."""
    order = world.random.sample(pieces, len(pieces))
    return lambda others: lookups.numbered(weave(world, order, others))


def right(world: Chronicle, number: int) -> tuple[list[Fact], list[Piece]]:
    """Facts to ask for, and the document of each."""
    facts, pieces = [], []
    for _ in range(number):
        subject = lookups.newcomer(world)
        known = lookups.some_facts(world, subject)
        facts.append(world.random.choice(known))
        pieces.append(lookups.document(world, subject, [world.tell(fact) for fact in known]))
    return facts, pieces


def document_questions(world: Chronicle, length: int, count: Count, questions: int,
                       frame: tuple[str, str] | None = None) -> list[Question]:
    """One fact each, of a document of its own."""
    facts, pieces = right(world, questions)
    before, after = frame or world.wording(lookups.FRAMES["documents_qa"])
    found = ask_all(world, "documents_qa", before,
                    [after.format(q=world.ask(fact)) for fact in facts],
                    shuffled(world, pieces), lookups.among(world, facts), length, count, "\n\n")
    return [with_answer(world, question, [fact], fact.answer)
            for question, fact in zip(found, facts, strict=True)]


def document_hops(world: Chronicle, length: int, count: Count, questions: int,
                  frame: tuple[str, str] | None = None) -> list[Question]:
    """Two facts each, of two documents: the value of the first is the subject of the second."""
    chains, known = [], {}
    while len(chains) < questions:
        one, two = world.random.choice(HOPS)
        first = world.new_fact(one.name, reuse=0)
        if first.value in known:  # one document for each subject
            continue
        chains.append((first, world.fact(first.value, two.name)))
        for fact in chains[-1]:
            known[fact.subject] = [fact, *(
                other for other in lookups.some_facts(world, fact.subject, fact.relation)
                if other != fact)][:2]
    pieces = [lookups.document(world, subject, [world.tell(fact) for fact in
                                        world.random.sample(facts, len(facts))])
              for subject, facts in known.items()]
    before, after = frame or world.wording(lookups.FRAMES["documents_qa"])
    paths = [(first.spec, last.spec) for first, last in chains]
    afters = [after.format(q=lookups.ask_hop(world, path, lookups.hop_name(path, first.subject)))
              for path, (first, _) in zip(paths, chains, strict=True)]
    found = ask_all(world, "documents_hops", before, afters, shuffled(world, pieces),
                    lookups.among(world, [last for _, last in chains]), length, count, "\n\n")
    return [with_answer(world, question, pair, pair[1].answer, golds=(pair[1].value,),
                        asked=(pair[1],))
            for question, pair in zip(found, chains, strict=True)]


def document_citations(world: Chronicle, length: int, count: Count,
                       questions: int) -> list[Question]:
    """One to three facts each, to be told with the numbers of their documents."""
    facts, pieces = right(world, questions)
    most = max(1, min(3, length // 120, questions))
    groups = [world.random.sample(facts, world.random.randint(1, most)) for _ in facts]
    before, after = world.wording(lookups.FRAMES["citations"])
    found = ask_all(world, "citations", before,
                    [after.format(q=" ".join(map(world.ask, group))) for group in groups],
                    shuffled(world, pieces), lookups.among(world, facts), length, count, "\n\n")
    return [with_answer(world, question, group, lookups.cited(
        group, [question.sources(fact)[0] for fact in group]))
        for question, group in zip(found, groups, strict=True)]


def listings(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """All persons of whom something is true, with the numbers of their documents."""
    persons = [world.entity("person") for _ in range(SHARED)]
    facts: dict[str, list[Fact]] = {person: [] for person in persons}
    asked = []
    for relation in world.random.sample(OF_KIND["person"], questions):
        value = persons[0]
        while value in persons:  # nobody teaches himself
            value = world.new_fact(relation.name, reuse=0).value
        asked.append((relation, value))
        for person in world.random.sample(persons, world.random.randint(2, 3)):
            facts[person].append(Fact(person, relation.name, value))
            world.facts[person, relation.name] = facts[person][-1]
    pieces = [lookups.document(world, person, [world.tell(fact) for fact in told])
              for person, told in facts.items() if told]
    before, after = LIST_FRAME
    afters = [after.format(q=_who(Fact(persons[0], relation.name, value)))
              for relation, value in asked]
    found = ask_all(world, "listings", before, afters, shuffled(world, pieces),
                    lookups.unlike(world), length, count, "\n\n")
    return [_listed(world, question, relation.name, value)
            for question, (relation, value) in zip(found, asked, strict=True)]


def _who(fact: Fact) -> str:
    return f"Who {fact.answer.removeprefix(fact.subject)[1:-1]}?"


def _listed(world: Chronicle, question: Question, relation: str, value: str) -> Question:
    right = [(fact, number) for fact, number in question.told
             if (fact.relation, fact.value) == (relation, value)]
    answer = ", ".join(f"{fact.subject} [{number}]" for fact, number in right) + "."
    return with_answer(world, question, [fact for fact, _ in right], answer,
                       golds=tuple(fact.subject for fact, _ in right))


def rankings(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Documents to be ranked by how well they answer one question each: grades 0 to 2."""
    asked, pieces = right(world, questions)
    near = [lookups.alike(world, fact.relation) for fact in asked]
    before, after = world.wording(lookups.FRAMES["rerank"])
    found = ask_all(world, "rerank", before, [after.format(q=world.ask(fact)) for fact in asked],
                    shuffled(world, [*pieces, *near]),
                    lookups.unlike(world, {fact.relation for fact in asked}), length, count, "\n\n")
    return [_ranked(world, question, fact) for question, fact in zip(found, asked, strict=True)]


def _ranked(world: Chronicle, question: Question, asked: Fact) -> Question:
    best, = question.sources(asked)
    near = {number for fact, number in question.told
            if asked.subject == fact.subject or asked.relation == fact.relation} - {best}
    ranks = [best, *sorted(near)]
    return replace(
        with_answer(world, question, [asked], " > ".join(f"[{n}]" for n in ranks)),
        golds=tuple(f"{n}:{2 if n == best else 1}" for n in ranks))


class LabelForm(NamedTuple):
    """How examples and question of a labelling task are written."""

    example: str = "Text: {text} Label: {label}"  # with `{text}` and `{label}`
    before: str | None = None
    after: str | None = None


ASKED = LabelForm()  # the question asks for the label in words, which teaching models need
AS_EXAMPLE = LabelForm("Text: {text}\nLabel: {label}\n", "", "\nText: {q}")
"""The question is one more example without its label, as in HELMET."""


def coarse_labels(world: Chronicle, length: int, count: Count, questions: int,
                  form: LabelForm = ASKED) -> list[Question]:
    """Four classes: whether a text is about a person, a place, an object or an event."""
    classes = [[relation.name for relation in of_kind] for of_kind in OF_KIND.values()]
    return _labelled(world, [_about_any(world, names) for names in classes], length, count,
                     questions, form)


def fine_labels(world: Chronicle, length: int, count: Count, questions: int,
                form: LabelForm = ASKED) -> list[Question]:
    """Twelve classes: which relation a text tells. Names for examples last for 16,000 tokens."""
    names = world.random.sample(list(RELATIONS), MANY)
    return _labelled(world, [_about_any(world, [name]) for name in names], length, count,
                     questions, form)


def name_labels(world: Chronicle, length: int, count: Count, questions: int,
                form: LabelForm = ASKED) -> list[Question]:
    """Twelve classes: which person a text is about. No text that is asked about is an example."""
    persons = [world.entity("person") for _ in range(MANY)]
    return _labelled(world, [_about(world, person) for person in persons], length, count,
                     questions, form)


def _about_any(world: Chronicle, relations: Sequence[str]) -> Iterator[str]:
    """Sentences in these relations about any subjects, as long as there are names."""
    with suppress(LookupError):
        while True:
            yield world.tell(world.new_fact(world.random.choice(relations)))


def _about(world: Chronicle, person: str) -> Iterator[str]:
    """Sentences about a person; the first ones are told only once."""
    relations = world.random.sample(OF_KIND["person"], len(OF_KIND["person"]))
    facts = [world.fact(person, relation.name) for relation in relations]
    yield from map(world.tell, facts[:4])
    while True:
        yield world.tell(world.random.choice(facts[4:]))


def _labelled(world: Chronicle, classes: Sequence[Iterator[str]], length: int, count: Count,
              questions: int, form: LabelForm) -> list[Question]:
    """Texts to be labelled, and rounds of one example of each class, as far as they fit."""
    text_of = dict(zip(labels(world, len(classes)), classes, strict=True))
    order = itertools.chain.from_iterable(
        world.random.sample(list(text_of), len(text_of)) for _ in itertools.count())
    asked = [(next(text_of[label]), label) for label in itertools.islice(order, questions)]

    def examples() -> Iterator[Piece]:
        for _ in itertools.count():
            for label in world.random.sample(list(text_of), len(text_of)):
                if (text := next(text_of[label], None)) is None:
                    return
                yield [form.example.format(text=text, label=label)]

    before, after = world.wording(lookups.FRAMES["classify"])
    before = before if form.before is None else form.before
    after = after if form.after is None else form.after
    found = ask_all(world, "classify", before, [after.format(q=told) for told, _ in asked],
                    lambda pieces: "\n".join(line for line, in pieces), examples(), length, count,
                    "\n")
    return [with_answer(world, question, [], f"Label: {label}", golds=(label,))
            for question, (_, label) in zip(found, asked, strict=True)]


def document_question_at(world: Chronicle, length: int, count: Count,
                         places: Sequence[float]) -> list[Question]:
    """One question to the same documents, but for the place of the one that holds the answer."""
    (fact,), (gold,) = right(world, 1)
    before, after = world.wording(lookups.FRAMES["documents_qa"])
    others: list[Piece] = []

    def build(pieces: list[Piece]) -> str:
        others[:] = pieces
        return lookups.numbered([gold, *pieces])

    question, = ask_all(world, "documents_qa", before, [after.format(q=world.ask(fact))], build,
                        lookups.among(world, [fact]), length, count, "\n\n")
    world.random.shuffle(others)  # the last ones that were made are short, so that they fit
    found = []
    for place in places:
        start = round(place * len(others))
        context = lookups.numbered([*others[:start], gold, *others[start:]])
        moved = replace(question, context=context, told=tuple(world.lines_in(context).values()))
        found.append(with_answer(world, moved, [fact], fact.answer))
    return found
