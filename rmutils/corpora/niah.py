"""Needles in haystacks, and cases whose needle tokens are known from how the case was built."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from rmutils.core.errors import UserError
from rmutils.core.files import intact, numbered_lines, of_file, read_text
from rmutils.core.paths import HAYSTACK, NEEDLES
from rmutils.core.validation import parse_json


@dataclass(frozen=True)
class Haystack:
    """One part: `name` (file or folder) and its whole text."""

    name: str
    text: str


def load_haystacks(folder: Path | str | None = None) -> list[Haystack]:
    """Read a haystack folder's parts, by name: `.txt` files, or subfolders of them (Wu et al.)."""
    folder = Path(folder or HAYSTACK)
    if not folder.is_dir():
        state = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"haystack {folder} {state}. Give a folder of .txt files.")
    subfolders = sorted(p for p in folder.iterdir() if p.is_dir())
    parts = {p: sorted(p.glob("*.txt")) for p in subfolders}
    parts = {p: files for p, files in parts.items() if files}
    parts = parts or {p: [p] for p in sorted(folder.glob("*.txt"))}
    if not parts:
        raise UserError(f"haystack folder {folder} holds no .txt file.")
    return [Haystack(part.stem, "\n\n".join(map(_read, files))) for part, files in parts.items()]


@of_file
def _read(path: Path) -> str:
    text = read_text(intact(path)).strip()
    if not text:
        raise UserError(f"haystack file {path} is empty.")
    return text


FIELDS = ("needle", "question", "real_needle")


@dataclass(frozen=True)
class Needle:
    needle: str  # the sentence that is put into the haystack
    question: str  # what the model is asked
    # the answer: a stretch of `needle`, in any case; its tokens are the `k` of Equation 1
    real_needle: str

    @property
    def answer_span(self) -> tuple[int, int]:
        """Characters of `needle` that are the answer, `(start, end)`."""
        places = places_of(self.real_needle, self.needle, re.IGNORECASE)
        if not places:
            raise ValueError("the answer (real_needle) does not stand in the needle")
        if len(places) > 1:
            raise ValueError(f"the answer (real_needle) {self.real_needle[:40]!r} stands "
                             f"{len(places)} times in the needle: give more words of it")
        return places[0]


def places_of(words: str, text: str, flags: int = 0) -> list[tuple[int, int]]:
    """Return where words stand in a text, `(start, end)`: if they can, as whole words."""
    starts = [found.start() for found in re.finditer(f"(?={re.escape(words)})", text, flags)]
    places = [(start, start + len(words)) for start in starts]
    whole = [place for place in places if not any(_within_word(text, end) for end in place)]
    return whole or places


def _within_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and all(
        unicodedata.category(letter)[0] in "LMN" for letter in text[place - 1 : place + 1])


def needle_of(given: Any) -> Needle:
    """Return a needle of a mapping with its three fields, or of the three texts in their order."""
    if isinstance(given, Needle):
        given = vars(given)
    elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(FIELDS):
        given = dict(zip(FIELDS, given, strict=True))
    if not isinstance(given, Mapping) or not all(
            isinstance(given.get(field), str) for field in FIELDS):
        raise ValueError(f"expected a record with the text fields {', '.join(FIELDS)}")
    needle = Needle(**{field: given[field].strip() for field in FIELDS})
    if not all(vars(needle).values()):
        raise ValueError("an empty field")
    _ = needle.answer_span  # its place must be known
    return needle


def load_needles(path: Path | str | None = None) -> list[Needle]:
    """Read a needle set: a `.jsonl` file (or a folder holding one) with a record per line."""
    path = Path(path or NEEDLES)
    if path.is_dir():
        path = next(iter(sorted(path.glob("*.jsonl"))), path / "needles.jsonl")
    return [*_read_needles(path)]


@of_file
def _read_needles(path: Path) -> tuple[Needle, ...]:
    needles = tuple(_parse(line, f"{path}, line {n}") for n, line in numbered_lines(intact(path)))
    if not needles:
        raise UserError(f"needle file {path} is empty.")
    return needles


def _parse(line: str, place: str) -> Needle:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise UserError(f"{place}: expected a JSON record ({error}).") from error
    try:
        return needle_of(record)
    except ValueError as error:
        raise UserError(f"{place}: {error}.") from error


SENTENCE_END = re.compile(r"""[.!?]["')\]]*(?=\s)|[。！？][」』）]*""")
WU_BUFFER = 200  # tokens that the script of Wu et al. keeps free for question and answer


class Prompted(Protocol):
    """The parts of a model that a case needs (`rmutils.models.LanguageModel`)."""

    @property
    def chat(self) -> bool: ...

    def user_turn(self) -> tuple[str, str]: ...

    def encode(self, text: str, /) -> list[int]: ...

    def encode_framed(self, before: str, text: str, after: str, *, begin: bool = False) -> Any: ...


@dataclass(frozen=True)
class NiahCase:
    """One case: a prompt with one needle in it. Spans are `(start, end)`, in tokens."""

    id: str  # `needle-length-depth`, unique in a grid
    needle_index: int
    length: int  # in tokens
    depth: float  # from 0 (start of the context) to 1 (end)
    haystack: str  # name of the haystack part
    prompt: str  # the whole prompt, chat template included
    input_ids: tuple[int, ...]  # its tokens, P of them
    needle_span: tuple[int, int]  # the answer (`real_needle`), the set I_k of section 2
    inserted_span: tuple[int, int]  # the whole inserted sentence
    context_span: tuple[int, int]  # haystack and needle; the question follows
    needle: Needle

    def __repr__(self) -> str:
        return (f"NiahCase({self.id}: {len(self.input_ids)} tokens of {self.haystack!r}, answer "
                f"at {self.needle_span[0]} to {self.needle_span[1]})")


class NiahBuilder:
    """Builds cases for one model: renders its template once and tokenizes each haystack once."""

    space = " "
    newline = "\n"  # before the needle, and before the question

    def __init__(self, lm: Prompted, haystacks: Sequence[Haystack], *, buffered: bool = False):
        self.lm = lm
        self.buffered = buffered
        self.haystacks = haystacks
        self.ends = cache(self._token_ends)
        self.turn = lm.user_turn() if lm.chat else ("", "")
        # The prompt of the published script; base models get it without tags.
        self.tags = ("<book>", "</book>") if lm.chat else ("", "")

    def build(self, index: int, needle: Needle, length: int, depth: float) -> NiahCase:
        """Build the case of needle number `index` at `length` tokens and `depth` (0 to 1)."""
        part = index % len(self.haystacks)
        inserted = len(self._tokenize("", self.space + needle.needle, "")[0])
        frame = len(self._tokenize(*self._prompt("", needle))[0])
        size = max(length - inserted - (WU_BUFFER if self.buffered else frame), 0)
        while True:
            context, at = self._insert(part, needle, size, depth, length)
            prompt = self._prompt(context, needle)
            ids, offsets = self._tokenize(*prompt)
            excess = 0 if self.buffered else len(ids) - length
            if excess <= 0:
                break
            if not size:
                raise UserError(
                    f"a length of {length} tokens is too short: the needle has {inserted} tokens, "
                    f"template and question {len(ids) - inserted} ({needle.needle[:40]!r} ...)."
                )
            size = max(size - excess, 0)  # tokens merge differently at the seams: take a few off
        start = len(prompt[0] + self.tags[0])
        at += start
        answer = [at + place for place in needle.answer_span]
        return NiahCase(
            id=f"{index:02d}-{length}-{depth:.4f}", needle_index=index, length=length, depth=depth,
            haystack=self.haystacks[part].name, prompt="".join(prompt), input_ids=tuple(ids),
            needle_span=tokens_over(offsets, *answer),
            inserted_span=tokens_over(offsets, at, at + len(needle.needle)),
            context_span=tokens_over(offsets, start, start + len(context)), needle=needle,
        )

    def grid(self, needles: Sequence[Needle], lengths: Iterable[int],
             depths: Iterable[float]) -> list[NiahCase]:
        """All combinations, needle by needle."""
        depths = list(depths)
        return [self.build(i, needle, length, depth) for i, needle in enumerate(needles)
                for length in lengths for depth in depths]

    def _insert(self, part: int, needle: Needle, size: int, depth: float, length: int):
        """Context of `size` haystack tokens with the needle in it, and its character position."""
        text, ends = self._text(part, size, length), self.ends(part)
        wanted = ends[max(round(size * depth) - 1, 0)] if size and depth else 0
        ended = [m.end() for m in SENTENCE_END.finditer(text, 0, wanted)]
        at = ended[-1] if ended else 0  # after the last sentence that ends before the depth
        if at:
            gap = _gap(text[at - 1])
            return f"{text[:at]}{gap}{needle.needle}{text[at:]}", at + len(gap)
        return f"{needle.needle}{_gap(needle.needle[-1])}{text}" if text else needle.needle, 0

    def _text(self, part: int, size: int, length: int) -> str:
        """The first `size` tokens of a haystack."""
        haystack, ends = self.haystacks[part], self.ends(part)
        if size > len(ends):
            raise UserError(f"haystack {haystack.name!r} has {len(ends)} tokens, too few for a "
                            f"length of {length} (it needs {size}). Add text to it.")
        return haystack.text[: ends[size - 1]] if size else ""

    def _prompt(self, context: str, needle: Needle) -> tuple[str, str, str]:
        """The user turn, between what the chat template writes before and after it."""
        before, after = self.turn
        ask = f"Based on the content of the book, Question: {needle.question}\nAnswer:"
        return before, f"{self.tags[0]}{context}{self.tags[1]}{self.newline}{ask}", after

    def _tokenize(self, before: str, text: str,
                  after: str) -> tuple[list[int], list[tuple[int, int]]]:
        ids, offsets = self.lm.encode_framed(before, text, after, begin=not self.lm.chat)
        return ids, offsets

    def _token_ends(self, part: int) -> list[int]:
        return [end for _, end in self.lm.encode_framed("", self.haystacks[part].text, "")[1]]


def _gap(end: str) -> str:
    """Return the gap between two sentences of which the first ends in this way."""
    return "" if end in "。！？」』）" else " "


def tokens_over(offsets: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """First and last-plus-one of the tokens that share a character with `[start, end)`."""
    inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start and b > a]
    return inside[0], inside[-1] + 1


FULL_STOPS = (29889, 869)
"""Token ids at which the script, called as its authors call it, takes a sentence to end: `.` in the
tokenizer of Llama 2, without and with a space before it."""


class PublishedNiahBuilder(NiahBuilder):
    """Builds cases as the published detection script does, mistakes included.

    `retrieval_head_detection.py` of nightdessert/Retrieval_Head, which YoumiMa/RetMask uses
    unchanged in this respect, knows the full stop before a depth by two token ids of Llama 2. With
    other tokenizers it walks back to the start of the text, but at depth 1. The needle is inserted
    without a space, haystack and needle have `length - 200` tokens, and base models get no line
    break before the question. A beginning-of-text token, which the script drops or leaves as text,
    is never written here.
    """

    space = ""

    def __init__(self, lm: Prompted, haystacks: Sequence[Haystack]):
        super().__init__(lm, haystacks, buffered=True)
        self.newline = "\n" if lm.chat else ""
        self.ids = cache(self._token_ids)

    def _insert(self, part: int, needle: Needle, size: int, depth: float,
                length: int) -> tuple[str, int]:
        text = self._text(part, size, length)
        tokens = size
        if depth < 1:
            tokens = size * round(100 * depth) // 100  # the script has depths in whole percent
            while tokens and self.ids(part)[tokens - 1] not in FULL_STOPS:
                tokens -= 1
        at = self.ends(part)[tokens - 1] if tokens else 0
        return f"{text[:at]}{needle.needle}{text[at:]}", at

    def _token_ids(self, part: int) -> list[int]:
        return self.lm.encode(self.haystacks[part].text)
