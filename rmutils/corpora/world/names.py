"""Invented names, divided for good into those for training and those held out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal
from zlib import crc32

Split = Literal["train", "held_out"]
"""Which names, values and wordings a text is made of."""

HELD_OUT_SHARE = 4
"""One name or value phrase in so many is held out."""

# Names are two parts, so that a held-out name is a new word made of known syllables.
_PARTS = {
    "first": (
        "Al Ber Cor Da El Fen Gar Hal Is Jor Kel Lu Mi Nor Or Pel Ro Sel Ta Ul Ves Wen Yor Zan",
        "an ara bel din dra el eth ia in is lan len mir na nor ra rek rin sa tan to va vin wen",
    ),
    "last": (
        "Ab Bran Cal Dor Er Fal Gren Har Il Jas Kor Lin Mor Nes Ol Pra Quin Rus Stor Tol Ur Vas "
        "Wil Yar",
        "ack aldo and ard ato bane beck dal den eld ero gar ham ick lane mond nath ock ris ston "
        "sul tar und wick",
    ),
    "place": (
        "Ald Birch Clay Dun Elm Fox Glen Hazel Iron Kings Lark Marsh North Oak Pine Raven Salt "
        "Thorn Under West",
        "bridge brook bury dale fell ford gate ham haven hill holm mere moor mouth port stead "
        "ton wick wood worth",
    ),
    "title": (
        "Am Bal Cru Del Es Fi Gol Hes Im Ka Lor Mel Nim Os Pho Ri Sa Tre Vo Zel",
        "bor cas dune fax gon hune kar lune mon nix pher quil rane sis thos vane wyn xor yss zar",
    ),
}


def is_held_out(text: str) -> bool:
    """Whether a name or phrase belongs to the held-out split, by its CRC-32."""
    return crc32(text.encode()) % HELD_OUT_SHARE == 0


def of_split(words: Sequence[str], split: Split) -> list[str]:
    """The words of one split."""
    return [word for word in words if is_held_out(word) == (split == "held_out")]


@cache
def names(kind: str, split: Split) -> list[str]:
    """All names of a kind (`first`, `last`, `place`, `title`) in one split."""
    heads, tails = (part.split() for part in _PARTS[kind])
    return of_split([head + tail for head in heads for tail in tails], split)
