"""Texts in which two sentences contradict each other, and what an answer follows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rmutils.attention.redirect import Span
from rmutils.core.errors import UserError
from rmutils.corpora.niah import SENTENCE_END, load_haystacks, tokens_over
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import World, values
from rmutils.models import LanguageModel
from rmutils.models.language_model import counter

Variant = Literal["two", "alone", "distractors", "moved 0", "moved 1"]
"""`two`: both sentences. `alone`: the first of them without the other. `distractors`: both, among
four sentences of the same kind about others. `moved 0`, `moved 1`: both, but that sentence stands
at the end of the text."""
DEPTHS = 1 / 3, 2 / 3  # where the two sentences stand
DISTRACTED = 0.1, 0.5, 0.8, 0.95  # where the four others stand


def _password(world: World) -> str:
    draw = world.random
    return (f"{draw.choice(words.COLOURS)}-{draw.choice([*words.ANIMALS])}-"
            f"{draw.randint(10, 99)}")


@dataclass(frozen=True)
class Kind:
    """A kind of fact: a sentence with `{s}` and `{v}`, a question with `{s}`, and both of them."""

    told: str
    asked: str
    subject: Callable[[World], str]
    value: Callable[[World], str]


KINDS = {
    "city": Kind("{s} lives in the town of {v}.", "In which town does {s} live?",
                 lambda world: world.entity("person"), lambda world: world.entity("place")),
    "year": Kind("The town of {s} was founded in {v}.", "In which year was {s} founded?",
                 lambda world: world.entity("place"),
                 lambda world: world.random.choice(values("year", world.split))),
    "password": Kind("The password for {s} is {v}.", "What is the password for {s}?",
                     lambda world: world.entity("object"), _password)}


@dataclass(frozen=True)
class Contradiction:
    """Two sentences about one subject, and four about others."""

    pair: int
    kind: str
    question: str
    sentences: tuple[str, str]
    values: tuple[str, str]
    others: tuple[str, ...]


def contradictions(count: int, seed: int) -> list[Contradiction]:
    """Make pairs of sentences, the kinds in turn."""
    return [_pair(World(f"contradictions {seed} {i}", "held_out"), i, [*KINDS][i % len(KINDS)])
            for i in range(count)]


def _pair(world: World, number: int, name: str) -> Contradiction:
    kind = KINDS[name]
    drawn: list[str] = []
    while len(drawn) < 2 + len(DISTRACTED):
        if (value := kind.value(world)) not in drawn:
            drawn.append(value)
    subjects = [kind.subject(world) for _ in range(1 + len(DISTRACTED))]
    told = [_told(kind, subject, value) for subject, value in zip(
        [subjects[0], *subjects], drawn, strict=True)]
    return Contradiction(number, name, kind.asked.format(s=subjects[0]), (told[0], told[1]),
                         (drawn[0], drawn[1]), tuple(told[2:]))


def _told(kind: Kind, subject: str, value: str) -> str:
    text = kind.told.format(s=subject, v=value)
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Prompt:
    """A text with its question."""

    pair: Contradiction
    variant: Variant
    first: int  # which of the two sentences stands first: it changes from pair to pair of a kind
    spans: tuple[Span, ...]  # of the sentences that can be pointed at, by their number

    @property
    def id(self) -> str:
        return f"{self.pair.pair:03d} {self.variant}"

    @property
    def ids(self) -> tuple[int, ...]:
        return self.spans[0].prompt

    def follows(self, response: str) -> str:
        """Say which sentence a response follows: `0`, `1`, `both` or `neither`."""
        said = response.lower()
        found = [str(i) for i, value in enumerate(self.pair.values) if value.lower() in said]
        return "both" if len(found) == 2 else found[0] if found else "neither"


class PromptBuilder:
    """Builds prompts of a model, of at most so many tokens each."""

    def __init__(self, lm: LanguageModel, length: int):
        self.lm, self.length, self.count = lm, length, counter(lm)
        self.turn = lm.user_turn() if lm.chat else ("", "")
        self.texts = [_sentences(haystack.text) for haystack in load_haystacks()]

    def build(self, pair: Contradiction, variant: Variant) -> Prompt:
        """Build one prompt."""
        first = 0 if variant == "alone" else pair.pair // len(KINDS) % 2
        a, b = (pair.sentences[i] for i in (first, 1 - first))
        placed = [*zip(DEPTHS, (a, b), strict=True)]
        if variant == "alone":
            placed = placed[:1]
        elif variant == "distractors":
            placed += zip(DISTRACTED, pair.others, strict=True)
        elif variant != "two":
            moved = pair.sentences[int(variant[-1])]
            placed = [(1.0 if sentence == moved else depth, sentence) for depth, sentence in placed]
        placed.sort()
        said = pair.sentences[:1] if variant == "alone" else pair.sentences
        return Prompt(pair, variant, first, self._spans(pair, placed, said))

    def _spans(self, pair: Contradiction, placed: Sequence[tuple[float, str]],
               pointed: Sequence[str]) -> tuple[Span, ...]:
        size = self.length
        asked = f"\nBased on the content of the book, Question: {pair.question}\nAnswer:"
        while size > 0:
            room = size - sum(self.count(text) for _, text in placed)
            lines = _within(self._prose(pair.pair), room, self.count)
            for depth, sentence in reversed(placed):
                lines.insert(round(depth * len(lines)) if depth < 1 else len(lines), sentence)
            text = f"<book>{' '.join(lines)}</book>{asked}"
            ids, offsets = self.lm.encode_framed(self.turn[0], text, self.turn[1],
                                                 begin=not self.lm.chat)
            if len(ids) <= self.length:
                starts = [len(self.turn[0]) + text.index(sentence) for sentence in pointed]
                return tuple(Span(tuple(ids), *tokens_over(offsets, start, start + len(sentence)))
                             for start, sentence in zip(starts, pointed, strict=True))
            size -= len(ids) - self.length
        raise UserError(f"{self.length} tokens are too few for {pair.question!r}.")

    def _prose(self, number: int) -> Iterator[str]:
        """Sentences of the haystack: another stretch for each pair."""
        part, place = number % len(self.texts), number // len(self.texts)
        text = self.texts[part]
        start = place * 12 % len(text)
        return iter([*text[start:], *text[:start]])


def _sentences(text: str) -> list[str]:
    ends = [0, *(found.end() for found in SENTENCE_END.finditer(text)), len(text)]
    return [" ".join(text[start:end].split()) for start, end in zip(ends, ends[1:], strict=False)
            if text[start:end].strip()]


def _within(sentences: Iterator[str], size: int, count: Callable[[str], int]) -> list[str]:
    """Return the first sentences that have no more than so many tokens."""
    lines, used = list[str](), 0
    for sentence in sentences:
        used += count(sentence) + 1
        if used > size:
            break
        lines.append(sentence)
    return lines


def prompts(lm: LanguageModel, pairs: Sequence[Contradiction], length: int,
            variants: Sequence[Variant]) -> list[Prompt]:
    """Build all prompts, those of a pair side by side."""
    builder = PromptBuilder(lm, length)
    return [builder.build(pair, variant) for pair in pairs for variant in variants]

