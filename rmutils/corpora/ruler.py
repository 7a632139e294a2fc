"""The 13 tasks of RULER (Hsieh et al., 2024, https://arxiv.org/abs/2404.06654).

`rmutils evaluate MODEL --datasets RULER` asks all of them. Wording, numbers and scores are those of
the configuration that RULER ships (`scripts/synthetic.yaml`, `scripts/data/synthetic/*.py` of
github.com/NVIDIA/RULER); as there, each text has one question. What differs:

- Essays (`niah.py`) are this project's haystack, cut into sentences at full stops, not Paul
  Graham's cut by NLTK. Common words and keys are words of that haystack, a key two of them; in
  RULER, `wonderwords` has both, and a key is an adjective and a noun.
- Documents and questions (`qa.py`) are about this project's invented world, not of SQuAD and
  HotpotQA, and a document's title stands behind its number. Each question has one right answer, so
  that RULER's `string_match_part`, the best of several, and `string_match_all`, the mean over all,
  are both the metric `recall`.
- The beginning of the answer has a line of its own, as HELMET writes it, and no blank at its end.
- Texts are filled sentence by sentence or word by word; RULER adds several at once.
- Example and text of CWE follow RULER's numbers for less than 4,096 tokens, the text those for more
  from `LONG` on (`common_words_extraction.py`). The examples of CWE and VT are the same for all
  questions; RULER renames the variables of the latter (`variable_tracking.py`), and fills it up to
  500 tokens. Here it is as short as it can be.
- A length that is too short is refused. RULER shortens the chain of VT instead.
"""

from __future__ import annotations

import math
import re
import string
import uuid
from collections.abc import Callable
from functools import cache, partial
from itertools import cycle, islice
from random import Random
from typing import Literal, NamedTuple

from rmutils.corpora.niah import load_haystacks
from rmutils.corpora.world import document_questions as documents
from rmutils.corpora.world.samples import Count, TooShort
from rmutils.corpora.world.writing import Chronicle, Question

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
DEPTHS = [round(100 * i / 39) for i in range(40)]  # percent
LONG = 3_200
"""Tokens of text and question: 4,096 leave more for them, 2,048 fewer."""
COMMON = 10  # words that are asked for in CWE
EXAMPLE_WORDS = 20  # different words of its example
HOPS = 4  # of the chain of VT
LEAST_CODED = 53  # coded words from which on the third and the fourth always differ in number
ALPHA = 2  # of the zeta distribution of FWE
TOKENS_PER_CODE = 50  # the vocabulary of FWE has one word for so many tokens

Kind = Literal["words", "numbers", "uuids"]
Make = Callable[[Chronicle, int, Count, int], list[Question]]
"""As in `rmutils.evaluation.helmet.suite`."""
Write = Callable[[Random, int, int, bool], Question]
"""(random, units, most tokens, whether it is an example) -> a question about so long a text."""


@cache
def essay() -> list[str]:
    """Return the sentences of the haystack."""
    text = " ".join(" ".join(part.text.split()) for part in load_haystacks())
    return re.split(r"(?<=[.!?]) ", text)


@cache
def words() -> list[str]:
    """Return the words of the haystack, of four letters at least, in the order of the alphabet."""
    return sorted({*re.findall(r"\b[a-z]{4,}\b", " ".join(essay()))})


def filled(write: Write, least: int, length: int, count: Count, seed: float,
           example: bool = False) -> Question:
    """Return the question with the longest text that fits, from `least` units on."""
    def written(units: int) -> tuple[Question, int]:
        question = write(Random(seed), units, length, example)
        return question, count(f"{question.prompt}\n{question.prefix}")

    found, size = written(least)
    if size > length:
        raise TooShort(found.kind, length, size)
    units, step, growing = least, least, True
    while step:  # doubled while texts fit and get longer, then halved
        longer, size = written(units + step)
        if size <= length and longer.context != found.context:
            found, units = longer, units + step
        else:
            growing = False
        step = 2 * step if growing else step // 2
    return found


def _task(write: Write, least: int = 1) -> Make:
    """Return the function of a `Dataset` that makes its questions, one about each text."""
    def make(world: Chronicle, length: int, count: Count, questions: int) -> list[Question]:
        return [filled(write, least, length, count, world.random.random(),
                       example=world.split == "train")]
    return make


def _unused(draw: Callable[[], str], known: set[str]) -> str:
    """Draw until something is not known yet."""
    while (found := draw()) in known:
        pass
    known.add(found)
    return found


KINDS: dict[Kind, Callable[[Random], str]] = {
    "words": lambda draw: "-".join(draw.choices(words(), k=2)),
    "numbers": lambda draw: str(draw.randrange(10**6, 10**7)),
    "uuids": lambda draw: str(uuid.UUID(int=draw.getrandbits(128), version=4))}
"""What keys and values are."""


def needles(draw: Random, units: int, length: int, example: bool, *,
            hay: Literal["repeat", "essay", "needle"] = "essay", key: Kind = "words",
            value: Kind = "numbers", keys: int = 1, values: int = 1, asked: int = 1) -> Question:
    """Return a question for the values of some keys."""
    known: set[str] = set()

    def new(kind: Kind) -> str:
        return _unused(lambda: KINDS[kind](draw), known)

    def needle(name: str) -> tuple[str, str]:
        text = new(value)
        return text, f"One of the special magic {value} for {name} is: {text}."

    told = {name: [needle(name) for _ in range(values)]
            for name in [new(key) for _ in range(keys)]}
    lines = [line for found in told.values() for _, line in found]
    draw.shuffle(lines)
    if hay == "essay":
        text = list(islice(cycle(essay()), units))
        places = sorted(units * depth // 100 for depth in draw.sample(DEPTHS, len(lines)))
    else:
        text = [NOISE if hay == "repeat" else needle(new(key))[1]
                for _ in range(units)]
        places = sorted(draw.sample(range(units), len(lines)))
    for place, line in reversed([*zip(places, lines, strict=True)]):
        text.insert(place, line)
    chosen = draw.sample([*told], asked)
    golds = tuple(gold for name in chosen for gold, _ in told[name])
    names = " and ".join((", ".join(chosen[:-1]) + ",", chosen[-1])) if asked > 1 else chosen[0]
    one = len(golds) == 1
    what = value[:-1] if one else value
    return Question(
        "needles", f"{f'A special magic {what} is' if one else f'Some special magic {what} are'} "
        f"hidden within the following text. Make sure to memorize it. I will quiz you about the "
        f"{what} afterwards.\n", ", ".join(golds), (" " if hay == "essay" else "\n").join(text),
        f"\nWhat {'is' if one else 'are all'} the special magic {what} for {names} mentioned in "
        f"the provided text?", golds,
        tuple(line for name in chosen for _, line in told[name]),
        prefix=f"The special magic {what} for {names} mentioned in the provided text "
               f"{'is' if one else 'are'}")


def variables(draw: Random, units: int, length: int, example: bool) -> Question:
    """Return a question for all variables of a chain of assignments."""
    chain = _coded(draw, string.ascii_uppercase, 3 if example else 5, HOPS + 1)
    value = str(draw.randrange(10_000, 99_999))
    lines = [f"VAR {name} = {source}" for name, source in
             zip(chain, [value, *(f"VAR {name}" for name in chain)], strict=False)]
    text = [f"{NOISE}\n"] * units
    places = sorted(draw.sample(range(units), len(lines)))
    for place, line in reversed([*zip(places, lines, strict=True)]):
        text.insert(place, line)
    return Question(
        "variables", "Memorize and track the chain(s) of variable assignment hidden in the "
        "following text.\n\n", " ".join(chain), " ".join(text),
        f"\nQuestion: Find all variables that are assigned the value {value} in the text above.",
        tuple(chain), prefix=(
            "Answer: According to the chain(s) of variable assignment in the text above, "
            f"{len(chain)} variables are assgined the value {value}, they are:"))  # RULER's letters


def common_words(draw: Random, units: int, length: int, example: bool) -> Question:
    """Return a question for the words of a numbered list that come most often."""
    often, seldom = (3, 1) if example else (6, 1) if length < LONG else (30, 3)
    chosen = draw.sample(words(), min(EXAMPLE_WORDS if example else units, len(words())))
    common = chosen[:COMMON]
    listed = common * often + chosen[COMMON:] * seldom
    draw.shuffle(listed)
    return Question(
        "common_words", "Below is a numbered list of words. In these words, some appear more often "
        "than others. Memorize the ones that appear most often.\n", _numbered(common),
        _numbered(listed), "\nQuestion: What are the 10 most common words in the above list?",
        tuple(common))


def frequent_words(draw: Random, units: int, length: int, example: bool) -> Question:
    """Return a question for the three coded words that come most often, after the dots."""
    codes = _coded(draw, string.ascii_lowercase, 6, max(5, length // TOKENS_PER_CODE) - 1)
    zeta = math.pi**2 / 6  # of ALPHA
    text = [word for rank, word in enumerate(["...", *codes], 1)
            for _ in range(int(units * rank**-ALPHA / zeta))]
    draw.shuffle(text)
    return Question(
        "frequent_words", "Read the following coded text and track the frequency of each coded "
        "word. Find the three most frequently appeared coded words. ", " ".join(codes[:3]),
        " ".join(text), "\nQuestion: Do not provide any explanation. Please ignore the dots "
        "'....'. What are the three most frequently appeared words in the above coded text?",
        tuple(codes[:3]))


def _coded(draw: Random, letters: str, size: int, number: int) -> list[str]:
    """Return different words of random letters."""
    known: set[str] = set()
    return [_unused(lambda: "".join(draw.choices(letters, k=size)), known) for _ in range(number)]


def _numbered(listed: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(listed, 1))


_ONLY = ("Answer the question based on the given documents. Only give me the answer and do not "
         "output any other words.")
FRAME = (f"{_ONLY}\n\nThe following are given documents.\n\n", f"\n\n{_ONLY}\n\nQuestion: {{q}}")


class Task(NamedTuple):
    """A task of RULER, as the evaluation's registry of data sets takes it."""

    name: str
    stands_for: str
    make: Make
    max_new_tokens: int  # RULER's `tokens_to_generate`
    prefix: str = ""  # begins the answer, where it is the same for all questions
    shots: int = 0


TASKS = (
    *(Task(name, text, _task(partial(needles, **settings)), 128)
      for name, text, settings in (
        ("niah_single_1", "A key and its number in one sentence said over and over.",
         {"hay": "repeat"}),
        ("niah_single_2", "A key and its number in essays.", {}),
        ("niah_single_3", "A key and its UUID in essays.", {"value": "uuids"}),
        ("niah_multikey_1", "One key of four in essays.", {"keys": 4}),
        ("niah_multikey_2", "One key of many: the text is all keys and their numbers.",
         {"hay": "needle"}),
        ("niah_multikey_3", "One key of many: the text is all UUIDs.",
         {"hay": "needle", "key": "uuids", "value": "uuids"}),
        ("niah_multivalue", "All four numbers of a key in essays.", {"values": 4}),
        ("niah_multiquery", "The numbers of four keys in essays.", {"keys": 4, "asked": 4}))),
    Task("vt", "Variable tracking: all variables that get a value, along a chain of four hops.",
         _task(variables, HOPS + 1), 30, shots=1),
    Task("cwe", "Common words extraction: the ten words that a list has most often.",
         _task(common_words, EXAMPLE_WORDS), 120,
         "Answer: The top 10 words that appear most often in the list are:", shots=1),
    Task("fwe", "Frequent words extraction: the three coded words that a text has most often.",
         _task(frequent_words, LEAST_CODED), 50, "Answer: According to the coded text above, the "
         "three most frequently appeared words are:"),
    Task("qa_1", "SQuAD: a question to many documents, of which one holds the answer.",
         partial(documents.document_questions, frame=FRAME), 32, "Answer:"),
    Task("qa_2", "HotpotQA: the answer takes two documents.",
         partial(documents.document_hops, frame=FRAME), 32, "Answer:"),
)
