"""Haystacks and needles about held-out worlds, in the formats of every other haystack and needle.

`data/corpus/world` holds what `write` makes.
"""

from __future__ import annotations

import json
from pathlib import Path

from rmutils.corpora.needles import Needle
from rmutils.corpora.world.documents import padding, paragraphs
from rmutils.corpora.world.facts import World, sentence
from rmutils.corpora.world.relations import NEW_ASKED, NEW_TOLD
from rmutils.paths import CORPORA

ASKED = ("cache", "keepsake", "food", "prize", "look")
"""Relations of the needles, in turn: those whose values are several words long."""
COUNT = 20
SIZE = 19_500
"""Characters of a haystack: more than 4,096 tokens, also where each common word is one token."""


def make(index: int) -> tuple[str, Needle, Needle, Needle]:
    """Haystack and needle number `index`, the same needle reworded, and with a plain question.

    The haystack never speaks of the needle's subject, nor of its relation, whomever about. The
    needle stands in a frame that training never has, and so does its question; the plain question
    is the same without its frame.
    """
    world, relation = World(f"haystack-{index}", "held_out"), ASKED[index % len(ASKED)]
    haystack = paragraphs(padding(world, SIZE, len, avoid={relation}))
    fact, choose = world.new_fact(relation, reuse=0), world.random.choice
    spec, words = fact.spec, {"s": fact.subject, "v": fact.value}
    told = choose(NEW_TOLD).format(choose(spec.statements).format(**words))
    frame, plain = choose(NEW_ASKED), sentence(choose(spec.questions).format(**words))
    return (haystack, Needle(sentence(told), frame.format(plain), fact.value),
            Needle(sentence(spec.reworded.format(**words)), spec.reasked.format(**words),
                   fact.value),
            Needle(sentence(told), plain, fact.value))


def write(folder: Path = CORPORA["world"]) -> None:
    """Make `haystack/00.txt` and so on, `needles/needles.jsonl` (needle i for haystack i), and
    `needles.jsonl` in `reworded/` and `plain/`."""
    haystacks, *sets = zip(*map(make, range(COUNT)), strict=True)
    for name, needles in zip(("needles", "reworded", "plain"), sets, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(vars(needle)) + "\n" for needle in needles]
        (folder / name / "needles.jsonl").write_text("".join(lines))
    (folder / "haystack").mkdir(exist_ok=True)
    for index, text in enumerate(haystacks):
        (folder / "haystack" / f"{index:02d}.txt").write_text(text + "\n")
