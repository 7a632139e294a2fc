"""The two kinds of synthetic questions of the Olmo 3 recipe about a long text: CWE and REX."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, sentence, values
from rmutils.corpora.world.lexicon import OF_KIND, names
from rmutils.corpora.world.samples import Sample
from rmutils.corpora.world.writing import Chronicle

NOUNS = frozenset((*words.THINGS, *words.CROPS, *words.DISHES, *words.ANIMALS, *words.TRADES,
                   *words.MATERIALS, *words.CLOTHS, *words.INSTRUMENTS, *words.SPOTS,
                   *words.SHOWS))
"""Noun phrases of one word."""

Counts = Callable[[str], Counter]  # how often each phrase occurs in a text


def noun_counts(text: str) -> Counter:
    """How often each of `NOUNS` occurs as a whole word, in any case; `keys` is not `key`."""
    return Counter(word for word in re.findall(r"\w+", text.lower()) if word in NOUNS)


def name_counts(text: str) -> Counter:
    """How often each name, a noun phrase of one to three words, occurs."""
    found: Counter = Counter()
    spoken = re.findall(r"\w+", text)
    for one, two, three in zip(spoken, [*spoken[1:], ""], [*spoken[2:], "", ""], strict=False):
        if one in _every("first") and two in _every("last"):
            found[f"{one} {two}"] += 1
        elif one in _every("place"):
            found[one] += 1
        elif one in ("the", "The") and two in _every("title") and three in _SHOWN:
            found[f"the {two} {three}"] += 1
    return found


def places(phrase: str, text: str) -> list[int]:
    """Where a phrase begins in a text, as whole words, in small or capital letters."""
    return [match.start() for match in
            re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE)]


class TfIdf:
    """How much a phrase marks a text: its count times the log of its inverse share (TF-IDF)."""

    def __init__(self, texts: Sequence[str], counts: Counts):
        self.texts = len(texts)
        self.having = Counter(phrase for text in texts for phrase in counts(text))

    def top(self, found: Counter, count: int) -> list[str]:
        """The phrases that mark a text most, given their counts there; ties alphabetically."""
        return sorted(found, key=lambda phrase: (-self.weight(phrase) * found[phrase], phrase)
                      )[:count]

    def weight(self, phrase: str) -> float:
        """The second factor."""
        return math.log((1 + self.texts) / (1 + self.having[phrase]))


_SHOWN = frozenset((*words.THINGS, *words.SHOWS))


@cache
def _every(kind: str) -> frozenset[str]:
    """Names of a kind in both splits."""
    return frozenset((*names(kind, "train"), *names(kind, "held_out")))


WORDS = 5  # Nouns of a section that are asked for. The Olmo 3 recipe: five.
SECTIONS = 8_000, 32_000  # fewest and most tokens of a section, as in the Olmo 3 recipe
LEAST_FREQUENT = 2  # ours: a word that occurs once is not frequent
QUESTIONS = (  # the last is held out
    "How many times does the word {w} occur in this text?",
    "How often does the text say {w}?",
    "Count how often the word {w} stands in the text.",
    "Tell me the number of times that you read the word {w} here.",
)
ANSWER = "The word {w} occurs exactly {n} times."


def sections(world: World, sentences: Sequence[str], count: Callable[[str], int],
             sizes: tuple[int, int] = SECTIONS) -> Iterator[list[str]]:
    """Cut a long document at ends of sentences, into parts of random sizes."""
    part: list[str] = []
    held, size = 0, world.random.randint(*sizes)
    for one in sentences:
        more = count(" " + one)
        if part and held + more > size:
            yield part
            part, held, size = [], 0, world.random.randint(*sizes)
        part.append(one)
        held += more
    if held >= sizes[0]:
        yield part


def common_words(text: str, marks: TfIdf, count: int = WORDS) -> dict[str, int]:
    """The nouns that mark a text most, each with how often it occurs there."""
    found = Counter({word: n for word, n in noun_counts(text).items() if n >= LEAST_FREQUENT})
    return {word: found[word] for word in marks.top(found, count)}


def cwe(world: World, text: str, marks: TfIdf) -> list[Sample]:
    """Questions about the words of a text, with exact answers."""
    samples = []
    for word, n in common_words(text, marks).items():
        question = world.wording(QUESTIONS).format(w=word)
        samples.append(Sample("cwe", question, ANSWER.format(w=word, n=n), golds=(str(n),)))
    return samples


@dataclass(frozen=True)
class Format:
    """One form: what is asked for, and the lines of the answer."""

    request: str  # with `{p}`, the phrase
    # What is written for each snippet, with any of `{fact}` (in plain words), `{question}` (after
    # it), `{value}`, `{told}` (the snippet as it stands), `{n}` (number from 1), `{claim}` (the
    # fact, or one that is not true) and `{verdict}` (`True` or `False`).
    each: str
    opening: str = ""  # what stands before, with `{p}`
    closing: str = ""  # what stands after
    joint: str = "\n"  # between the parts


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


SNIPPETS = 8  # Most snippets of a phrase. The Olmo 3 recipe: k = 8.
FEWEST_SNIPPETS = 2  # ours: what stands in one snippet only needs no bringing together


@dataclass(frozen=True)
class Snippet:
    """A sentence of a text, and the fact that it tells."""

    told: str
    fact: Fact


def snippets(world: Chronicle, phrase: str, text: str) -> list[Snippet]:
    """The sentences of a text in which a phrase stands, in order; at most eight, drawn."""
    found = [Snippet(line, fact) for line, (fact, _) in world.lines_in(text).items()
             if places(phrase, line)]
    kept = sorted(world.random.sample(range(len(found)), min(len(found), SNIPPETS)))
    return [found[i] for i in kept]


def rex(world: Chronicle, text: str, marks: TfIdf, form: str | None = None) -> Sample | None:
    """A request to retell what a text says about a phrase, with the right answer."""
    counts = Counter({name: n for name, n in name_counts(text).items() if n >= FEWEST_SNIPPETS})
    if not counts:
        return None
    phrase, = marks.top(counts, 1)
    found = snippets(world, phrase, text)
    form = form or world.random.choice(list(FORMATS))
    return Sample(
        "rex", FORMATS[form].request.format(p=phrase), write(world, FORMATS[form], phrase, found),
        golds=tuple(dict.fromkeys(one.fact.value for one in found)),
        support=tuple(one.told for one in found),
        key_points=tuple(one.fact.answer for one in found))


def write(world: Chronicle, form: Format, phrase: str, found: Sequence[Snippet]) -> str:
    """The answer in a form."""
    lines = [sentence(form.opening.format(p=phrase))] if form.opening else []
    for n, one in enumerate(found, 1):
        fact = one.fact
        claim = _other(world, fact) if world.random.random() < 0.5 else fact
        lines.append(form.each.format(
            n=n, told=one.told, value=fact.value, verdict=claim == fact, claim=claim.answer,
            question=sentence(world.random.choice(fact.spec.questions).format(s=fact.subject)),
            fact=fact.answer))
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
