"""Questions about undivided texts: facts, chains of facts, choices, summaries, codes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from rmutils.corpora.world import lookups
from rmutils.corpora.world.facts import Fact, sentence
from rmutils.corpora.world.lexicon import OF_KIND
from rmutils.corpora.world.samples import Count, Piece, weave, woven
from rmutils.corpora.world.writing import Chronicle, Question, ask_all, with_answer

LETTERS = "ABCD"


def look_ups(world: Chronicle, kind: str, frames: str, groups: Sequence[Sequence[Fact]],
             more: Iterator[Piece], length: int, count: Count) -> list[Question]:
    """Questions about facts, each about a group of them."""
    before, after = world.wording(lookups.FRAMES[frames])
    lines = [world.tell(fact) for fact in dict.fromkeys(f for group in groups for f in group)]
    afters = [after.format(q=" ".join(map(world.ask, group))) for group in groups]
    found = ask_all(world, kind, before, afters, woven(world, lines), more, length, count)
    return [with_answer(world, question, group, " ".join(fact.answer for fact in group))
            for question, group in zip(found, groups, strict=True)]


def some(world: Chronicle, number: int) -> list[Fact]:
    """Facts about new subjects of any kinds."""
    return [world.new_fact(world.random.choice(OF_KIND[world.random.choice(list(OF_KIND))]).name,
                           reuse=0) for _ in range(number)]


def needles_among_rivals(world: Chronicle, length: int, count: Count,
                         questions: int) -> list[Question]:
    """One fact each, among facts easily taken for them and others, in equal parts."""
    facts = some(world, questions)
    return look_ups(world, "needle", "one", [[fact] for fact in facts],
                    lookups.mixed(world, lookups.rivals(world, facts)), length, count)


def several_values(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Two to four facts each, about one subject."""
    groups = []
    for _ in range(questions):
        kind = world.random.choice(list(OF_KIND))
        number = min(world.random.randint(2, 4), len(OF_KIND[kind]))
        subject = world.entity(kind)
        groups.append([world.fact(subject, relation.name)
                       for relation in world.random.sample(OF_KIND[kind], number)])
    return look_ups(world, "needles", "several", groups, lookups.told(world), length, count)


def free_answers(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """One fact each, in a text without any fact of the same relation."""
    facts = some(world, questions)
    return look_ups(world, "needle", "one", [[fact] for fact in facts],
                    lookups.told(world, avoid={fact.relation for fact in facts}), length, count)


def chains(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Two or three facts each, where the value of one is the subject of the next."""
    paths = [lookups.hop_path(world) for _ in range(questions)]
    groups = [lookups.chain(world, path) for path in paths]
    asked = [lookups.hop_name(path, group[0].subject) for path,
             group in zip(paths, groups, strict=True)]
    before, after = world.wording(lookups.FRAMES["one"])
    afters = [after.format(q=lookups.ask_hop(world, path, name))
              for path, name in zip(paths, asked, strict=True)]
    lines = [world.tell(fact) for fact in dict.fromkeys(f for group in groups for f in group)]
    more = lookups.mixed(world, lookups.rival_chains(world, world.random.choice(paths)))
    found = ask_all(world, "hops", before, afters, woven(world, lines), more, length, count)
    return [with_answer(world, question, group, lookups.answer_hop(path, name, group[-1].value),
                        golds=(group[-1].value,), asked=(group[-1],))
            for question, path, name, group in zip(found, paths, asked, groups, strict=True)]


def choices(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """One fact each, with four values to choose from, of its kind and mostly told of others."""
    facts = some(world, questions)
    wrong = [_others(world, fact, len(LETTERS) - 1) for fact in facts]
    listed = [world.random.sample([fact.value, *(other.value for other in others)], len(LETTERS))
              for fact, others in zip(facts, wrong, strict=True)]
    before, after = world.wording(lookups.FRAMES["one"])
    options = ["\n".join(f"{letter}. {value}" for letter, value in zip(LETTERS, row, strict=True))
               for row in listed]
    afters = [f"{after.format(q=world.ask(fact))}\nOptions:\n{rows}"
              for fact, rows in zip(facts, options, strict=True)]
    lines = [world.tell(fact) for fact in facts]
    more = itertools.chain(([world.tell(other)] for others in wrong for other in others),
                           lookups.mixed(world, lookups.rivals(world, facts)))
    found = ask_all(world, "choice", before, afters, woven(world, lines), more, length, count)
    letters = [LETTERS[row.index(fact.value)] for row, fact in zip(listed, facts, strict=True)]
    return [with_answer(world, question, [fact], letter, golds=(letter, f"{letter}. {fact.value}"))
            for question, fact, letter in zip(found, facts, letters, strict=True)]


def _others(world: Chronicle, fact: Fact, number: int) -> list[Fact]:
    """Facts of the same relation about other subjects, with other values."""
    found = {fact.value: fact}
    while len(found) <= number:
        other = world.new_fact(fact.relation)
        found.setdefault(other.value, other)
    return list(found.values())[1:]


def summaries(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Questions about all that the text says of a subject; the key points are these facts."""
    subjects = [world.entity(world.random.choice(list(OF_KIND))) for _ in range(questions)]
    lines = []
    for subject in subjects:
        relations = OF_KIND[world.kinds[subject]]
        facts = (world.fact(subject, relation.name)
                 for relation in world.random.sample(relations, len(relations)))
        apart = [fact for fact in facts if fact.value not in subjects]
        lines += [world.tell(fact) for fact in apart[: world.random.randint(3, 5)]]
    more = (piece for piece in lookups.told(world) if not any(
        subject in line for line in piece for subject in (*subjects, *map(sentence, subjects))))
    before, after = world.wording(lookups.FRAMES["summary"])
    found = ask_all(world, "summary", before, [after.format(s=s) for s in subjects],
                    woven(world, lines), more, length, count)
    answered = []
    for question, subject in zip(found, subjects, strict=True):
        facts = [fact for fact, _ in question.told if fact.subject == subject]
        points = tuple(fact.answer for fact in facts)
        answered.append(with_answer(world, question, facts, " ".join(points), key_points=points))
    return answered


def codes(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
    """Lines of a code and a phrase; the phrase of one code each."""
    lines = lookups.code_lines(world)
    asked = [next(lines)[0] for _ in range(questions)]
    before, after = world.wording(lookups.FRAMES["list"])
    keys = [line.split(": ") for line in asked]
    found = ask_all(
        world, "key_value", before, [after.format(q=key) for key, _ in keys],
        lambda pieces: "\n".join(
            piece[0] for piece in weave(world, [[line] for line in asked], pieces)),
        lines, length, count, "\n")
    return [with_answer(world, question, [], f"The value of {key} is {value}.", golds=(value,),
                        support=(line,))
            for question, (key, value), line in zip(found, keys, asked, strict=True)]
