"""Haystacks: the long, irrelevant text that a needle is hidden in.

Needles: the facts to be found, in the three-field format of Wu et al.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmutils.core.errors import UserError
from rmutils.core.files import intact, read_text
from rmutils.core.paths import HAYSTACK, NEEDLES
from rmutils.core.validation import parse_json


@dataclass(frozen=True)
class Haystack:
    """One part: `name` (file or folder) and its whole text."""

    name: str
    text: str


def load_haystacks(folder: Path | str | None = None) -> list[Haystack]:
    """Read the parts of a haystack folder, in the order of their names.

    A folder holds `.txt` files, each a part; or subfolders, each a part made of its `.txt` files
    (the layout of `haystack_for_detect` in Wu et al.'s repository).

    Parameters
    ----------
    folder : Path, optional
        Default: the text that ships with the project.

    Raises
    ------
    UserError
        The folder is missing or holds no text; a file is empty, not UTF-8, or not as shipped.
    """
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


def _read(path: Path) -> str:
    text = read_text(intact(path)).strip()
    if not text:
        raise UserError(f"haystack file {path} is empty.")
    return text


FIELDS = ("needle", "question", "real_needle")


@dataclass(frozen=True)
class Needle:
    """A needle.

    Attributes
    ----------
    needle : str
        The sentence that is put into the haystack.
    question : str
        What the model is asked.
    real_needle : str
        The answer: a stretch of `needle`, in upper or lower case. Its tokens are the `k` of
        Equation 1.
    """

    needle: str
    question: str
    real_needle: str

    @property
    def answer_span(self) -> tuple[int, int] | None:
        """Characters of `needle` that are the answer, `(start, end)`; None if it is not there.

        Case is ignored: a published needle has "Because" where its answer has "because".
        """
        found = re.search(re.escape(self.real_needle), self.needle, re.IGNORECASE)
        return found and found.span()


def needle_of(given: Any) -> Needle:
    """Return a needle of a mapping with its three fields, or of the three texts in their order.

    Raises
    ------
    ValueError
        They are not three non-empty texts, or the answer does not stand word for word in the needle
        (its place could then not be known).

    Examples
    --------
    >>> needle_of(("The key is in the jar.", "Where is the key?", "in the jar")).answer_span
    (11, 21)
    """
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
    if needle.answer_span is None:
        raise ValueError("the answer (real_needle) does not stand in the needle")
    return needle


def load_needles(path: Path | str | None = None) -> list[Needle]:
    """Read a needle set: a `.jsonl` file (or a folder holding one) with a record per line.

    Raises
    ------
    UserError
        The file is missing, empty or not as shipped, a line is no record of three non-empty
        strings, or an answer does not stand word for word in its needle (its place could then not
        be known).
    """
    path = Path(path or NEEDLES)
    if path.is_dir():
        path = next(iter(sorted(path.glob("*.jsonl"))), path / "needles.jsonl")
    lines = read_text(intact(path)).splitlines()
    needles = [_parse(line, f"{path}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]
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
