"""Rewriting Expressions (REX): all that a long text says about something, retold in another form.

As in the Olmo 3 recipe: a phrase that marks the text (TF-IDF), up to eight snippets of the text in
which it stands, and one of twelve forms in which these are retold. The recipe names the forms; the
words are ours, and those of a world of few words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rmutils.corpora.world.facts import Fact, sentence, values
from rmutils.corpora.world.lexicon import OF_KIND
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.writing import Chronicle
from rmutils.longcontext.cwe import TfIdf, Wording, as_it_is, name_counts, places


@dataclass(frozen=True)
class Format:
    """One form: what is asked for, and the lines of the answer.

    Attributes
    ----------
    request : str
        With `{p}`, the phrase.
    each : str
        What is written for each snippet, with any of `{fact}` (the fact in plain words),
        `{question}` (after it), `{value}`, `{told}` (the snippet as it stands), `{n}` (number from
        1), `{claim}` (the fact, or one that is not true) and `{verdict}` (`True` or `False`).
    opening, closing : str
        What stands before and after; with `{p}`.
    joint : str
        What stands between the parts.
    """

    request: str
    each: str
    opening: str = ""
    closing: str = ""
    joint: str = "\n"


FORMATS = {
    "short summary": Format(
        "Write a short summary of what the text says about {p}.", "{fact}", joint=" "),
    "professor and student": Format(
        "Write a talk between a professor and a student about {p}.",
        "Student: {question}\nProfessor: {fact}"),
    "high school": Format(
        "Explain {p} in simple words to children at school.", "{n}. {fact}",
        "Here is what you need to know about {p}."),
    "flashcards": Format(
        "Make flashcards about {p}.", "Front: {question}\nBack: {value}"),
    "school quiz": Format(
        "Make a school quiz about {p}.", "Question {n}: {question}\nAnswer {n}: {value}"),
    "game show": Format(
        "Write a game show about {p}.", "Host: {question}\nGuest: {value}!\nHost: True. {fact}",
        closing="Host: The winner knows all about {p}."),
    "dinner party": Format(
        "Write what guests say about {p} at a dinner party.",
        '"{question}" one guest asks. "{fact}" another guest says.'),
    "debate": Format(
        "Write a debate about {p}.",
        "First: {fact}\nSecond: Who says this?\nFirst: The text says: {told}"),
    "true or false": Format(
        "Write true and false sentences about {p}, and say which is which.",
        "{claim} {verdict}."),
    "movie scene": Format(
        "Write a scene of a movie about {p}.",
        "The judge asks: {question}\nThe clerk opens the book and reads: {told}",
        "A court, in the evening.", "The lamps are lit. The end."),
    "encyclopedia": Format(
        "Write about {p} as in an encyclopedia.", "{fact}", "{p}:", joint=" "),
    "explain like I am five": Format(
        "Explain {p} to me as if I were five years old.", "{fact}",
        "Listen, this is about {p}.", "Now you know.", joint=" "),
}
"""By name, in the order of the recipe."""


SNIPPETS = 8
"""Most snippets of a phrase. The Olmo 3 recipe: k = 8."""
FEWEST = 2
"""Ours: what stands in one snippet only needs no bringing together."""


@dataclass(frozen=True)
class Snippet:
    """A sentence of a text, and the fact that it tells."""

    told: str
    fact: Fact


def snippets(world: Chronicle, phrase: str, text: str) -> list[Snippet]:
    """The sentences of a text in which a phrase stands, in their order; of more than eight, as many
    drawn at random."""
    found = [Snippet(line, fact) for line, (fact, _) in world.lines_in(text).items()
             if places(phrase, line)]
    kept = sorted(world.random.sample(range(len(found)), min(len(found), SNIPPETS)))
    return [found[i] for i in kept]


def rex(
    world: Chronicle, text: str, marks: TfIdf, form: str | None = None, say: Wording = as_it_is
) -> Sample | None:
    """A request to retell what a text says about a phrase, with the right answer.

    Parameters
    ----------
    world : Chronicle
        The world that wrote the text. What is left open is drawn from its generator.
    marks : TfIdf
        Of other texts, by `name_counts`.
    form : str, optional
        A key of `FORMATS`; default: one at random.
    say : callable
        Words request and facts otherwise.

    Returns
    -------
    Sample or None
        Without the text. `support` has the snippets, `key_points` the facts, `golds` their values.
        None if no name stands in two sentences.
    """
    counts = Counter({name: n for name, n in name_counts(text).items() if n >= FEWEST})
    if not counts:
        return None
    phrase, = marks.top(counts, 1)
    found = snippets(world, phrase, text)
    form = form or world.random.choice(list(FORMATS))
    return Sample(
        "rex", say(FORMATS[form].request.format(p=phrase), (phrase,)),
        write(world, FORMATS[form], phrase, found, say),
        golds=tuple(dict.fromkeys(one.fact.value for one in found)),
        support=tuple(one.told for one in found),
        key_points=tuple(one.fact.answer for one in found))


def write(
    world: Chronicle, form: Format, phrase: str, found: Sequence[Snippet], say: Wording = as_it_is
) -> str:
    """The answer in a form."""
    lines = [sentence(form.opening.format(p=phrase))] if form.opening else []
    for n, one in enumerate(found, 1):
        fact = one.fact
        claim = _other(world, fact) if world.random.random() < 0.5 else fact
        lines.append(form.each.format(
            n=n, told=one.told, value=fact.value, verdict=claim == fact, claim=claim.answer,
            question=sentence(world.random.choice(fact.spec.questions).format(s=fact.subject)),
            fact=say(fact.answer, (fact.subject, fact.value)) if "{fact}" in form.each else ""))
    if form.closing:
        lines.append(form.closing.format(p=phrase))
    return form.joint.join(lines)


def _other(world: Chronicle, fact: Fact) -> Fact:
    """Return the fact with another value of its kind; the fact itself if there is none."""
    kind = fact.spec.value
    others = [value for value in (
        [name for name, own in world.kinds.items() if own == kind] if kind in OF_KIND
        else values(kind, world.split)) if value not in (fact.value, fact.subject)]
    return Fact(fact.subject, fact.relation, world.random.choice(others or [fact.value]))
