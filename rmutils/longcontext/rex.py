"""Rewriting Expressions (REX): all that a long text says about something, retold in another form.

As in the Olmo 3 recipe: a phrase that marks the text (TF-IDF), up to eight snippets of the text in
which it stands, and one of twelve forms in which these are retold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rmutils.corpora.world.facts import Fact, sentence, values
from rmutils.corpora.world.questions import Chronicle
from rmutils.corpora.world.relations import OF_KIND
from rmutils.corpora.world.samples import Sample
from rmutils.longcontext.phrases import TfIdf, name_counts, places
from rmutils.longcontext.rex_formats import FORMATS, Format
from rmutils.longcontext.wording import Wording, as_it_is

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
    """What is not true: the same with another value of its kind; the fact itself if there is
    none."""
    kind = fact.spec.value
    others = [value for value in (
        [name for name, own in world.kinds.items() if own == kind] if kind in OF_KIND
        else values(kind, world.split)) if value not in (fact.value, fact.subject)]
    return Fact(fact.subject, fact.relation, world.random.choice(others or [fact.value]))
