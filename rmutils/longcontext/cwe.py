"""Common Word Extraction (CWE): how often does a word occur in this long text?

As in the Olmo 3 recipe, documents are cut into sections, and the five nouns that mark a section
most (TF-IDF) are each asked for with their exact count. A large corpus needs a tagger to find its
noun phrases. The invented world needs none: its common nouns are those of its word lists, and its
names and values are those of its facts.

In the recipe a large model words questions and answers. Here templates do, unless a server is
asked; what must not change, such as a count or a name, is looked for in each of its replies.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.lexicon import names
from rmutils.corpora.world.samples import Sample
from rmutils.preference.judges import ServerJudge

NOUNS = frozenset((*words.THINGS, *words.CROPS, *words.DISHES, *words.ANIMALS, *words.TRADES,
                   *words.MATERIALS, *words.CLOTHS, *words.INSTRUMENTS, *words.SPOTS,
                   *words.SHOWS))
"""Noun phrases of one word."""

Counts = Callable[[str], Counter]
"""How often each phrase occurs in a text."""


def noun_counts(text: str) -> Counter:
    """How often each of `NOUNS` occurs as a whole word, in small or capital letters.

    `keys` is another word than `key`.
    """
    return Counter(word for word in re.findall(r"\w+", text.lower()) if word in NOUNS)


def name_counts(text: str) -> Counter:
    """How often each name of a person, place, object or event occurs: noun phrases of one to three
    words."""
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
    """How much a phrase marks a text: its count there, times the logarithm of one over the share of
    other texts that have it.

    Each text counts as one more that has every phrase, so that no logarithm is infinite.

    Parameters
    ----------
    texts : sequence of str
        The other texts.
    counts : callable
    """

    def __init__(self, texts: Sequence[str], counts: Counts):
        self.texts = len(texts)
        self.having = Counter(phrase for text in texts for phrase in counts(text))

    def top(self, found: Counter, count: int) -> list[str]:
        """The phrases that mark a text most, given their counts there; alphabetically where they
        mark it alike."""
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


Wording = Callable[[str, Sequence[str]], str]
"""A sentence and what it must keep -> the sentence in other words."""

PROMPT = """\
Say the following in other words, in one line. Keep these exactly as they are: {kept}.

{line}

Reply with the new line and nothing else."""
"""Ours; the recipe's prompts are not in the report."""


def as_it_is(line: str, kept: Sequence[str]) -> str:
    """No other words: the templates."""
    return line


def by_server(server: ServerJudge) -> Wording:
    """Wording by the model of a server with OpenAI's interface.

    Where no reply keeps what has to be kept, the sentence stays as it is, so that answers stay
    exact whatever the model says.

    Raises
    ------
    UserError
        From the wording: the server cannot be reached, or refuses to answer.
    """

    def say(line: str, kept: Sequence[str]) -> str:
        def keeps(reply: str) -> str | None:
            reply = reply.strip()
            right = reply and "\n" not in reply and all(places(part, reply) for part in kept)
            return reply if right else None

        return server.ask(PROMPT.format(kept=", ".join(kept), line=line), keeps) or line

    return say


WORDS = 5
"""Nouns of a section that are asked for. The Olmo 3 recipe: five."""
SECTIONS = 8_000, 32_000
"""Fewest and most tokens of a section, as in the Olmo 3 recipe."""
FEWEST = 2
"""Ours: a word that occurs once is not frequent."""
QUESTIONS = (  # the last is held out
    "How many times does the word {w} occur in this text?",
    "How often does the text say {w}?",
    "Count how often the word {w} stands in the text.",
    "Tell me the number of times that you read the word {w} here.",
)
ANSWER = "The word {w} occurs exactly {n} times."


def sections(
    world: World, sentences: Sequence[str], count: Callable[[str], int],
    sizes: tuple[int, int] = SECTIONS,
) -> Iterator[list[str]]:
    """Cut a long document at ends of sentences, into parts of random sizes.

    Parameters
    ----------
    world : World
        The sizes are drawn from its generator, evenly.
    count : callable
        Number of tokens of a text.
    sizes : (int, int)
        Fewest and most tokens of a part. A rest with fewer is left out.
    """
    part: list[str] = []
    held, size = 0, world.random.randint(*sizes)
    for sentence in sentences:
        more = count(" " + sentence)
        if part and held + more > size:
            yield part
            part, held, size = [], 0, world.random.randint(*sizes)
        part.append(sentence)
        held += more
    if held >= sizes[0]:
        yield part


def common_words(text: str, marks: TfIdf, count: int = WORDS) -> dict[str, int]:
    """The nouns that mark a text most, each with how often it occurs there."""
    found = Counter({word: n for word, n in noun_counts(text).items() if n >= FEWEST})
    return {word: found[word] for word in marks.top(found, count)}


def cwe(world: World, text: str, marks: TfIdf, say: Wording = as_it_is) -> list[Sample]:
    """Questions about the words of a text, with exact answers.

    Parameters
    ----------
    world : World
        The wordings are drawn from its generator, in its split.
    text : str
        A section of a document.
    marks : TfIdf
        Of other texts, by `noun_counts`.
    say : callable
        Words question and answer otherwise.

    Returns
    -------
    list of Sample
        Without the text; `golds` has the count.
    """
    samples = []
    for word, n in common_words(text, marks).items():
        question = say(world.wording(QUESTIONS).format(w=word), (word,))
        answer = ANSWER.format(w=word, n=n)
        samples.append(Sample("cwe", question, say(answer, (word, str(n))), golds=(str(n),)))
    return samples
