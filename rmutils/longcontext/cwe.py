"""Common Word Extraction (CWE): how often does a word occur in this long text?

As in the Olmo 3 recipe: documents are cut into sections, the five nouns that mark a section most
(TF-IDF) are drawn out, and each is asked for with its exact count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rmutils.corpora.world import World
from rmutils.corpora.world.samples import Sample
from rmutils.longcontext.phrases import TfIdf, noun_counts
from rmutils.longcontext.wording import Wording, as_it_is

WORDS = 5
"""Nouns of a section that are asked for. The Olmo 3 recipe: five."""
FEWEST = 2
"""Ours: a word that occurs once is not frequent."""
SECTIONS = 640, 2560
"""Fewest and most tokens of a section. The Olmo 3 recipe: 8K to 32K, which is once to four times
the trained window; so are ours."""
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
    """A long document cut at ends of sentences, into parts of random sizes.

    Parameters
    ----------
    world : World
        The sizes are drawn from its generator, evenly.
    count : callable
        Number of tokens of a text.
    sizes : (int, int)
        Fewest and most tokens of a part. A rest with fewer is left out.
    """
    part, held, size = [], 0, world.random.randint(*sizes)
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
        A section.
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
