"""A reader of the world's sentences. It knows the words of the relations, and no fact."""

import re
from functools import cache

from rmutils.corpora.world.lexicon import ASKED, RELATIONS, TOLD

NAME = r"(?P<s>[Tt]he [A-Z]\w+ [a-z]+|[A-Z]\w+(?: [A-Z]\w+)?)"


def pattern(words: str) -> re.Pattern[str]:
    """Its match holds the subject as `s` and the value as `v`; the first letter has any case."""
    slots = re.escape(words).replace(r"a\ \{v\}", r"an?\ \{v\}")
    slots = slots.replace(r"\{s\}", NAME).replace(r"\{v\}", r"(?P<v>[\w ]+)")
    return re.compile(re.sub("^[a-z]", r"(?i:\g<0>)", slots))


STATEMENTS = [(r.name, pattern(words)) for r in RELATIONS.values() for words in r.statements]
QUESTIONS = [(r.name, pattern(words)) for r in RELATIONS.values() for words in r.questions]
STARTS = {split: {frame.removesuffix("{}") for frame in (*TOLD[split], *ASKED[split])} - {""}
          for split in TOLD}
"""What the frames of a split put before statements and questions."""
FRAME = re.compile("|".join(map(re.escape, [*STARTS["train"], *STARTS["held_out"], ""])))


def low(subject: str) -> str:
    """A subject as it stands inside of a sentence."""
    return "the " + subject[4:] if subject.startswith("The ") else subject


def sentences(text: str) -> list[str]:
    """The sentences of a text; a tag or a colon ends one, too."""
    return [line for line in re.split(r"(?<=[.?:])\s+|</?book>", text.strip()) if line]


@cache
def fact_of(line: str) -> tuple[str, str, str] | None:
    """Subject, relation and value of a statement, in a frame or not; None for other sentences."""
    line = line[FRAME.match(line).end():]
    found = [(low(m["s"]), name, m["v"]) for name, p in STATEMENTS if (m := p.fullmatch(line))]
    assert len(found) <= 1, line
    return found[0] if found else None


def facts_in(text: str) -> list[tuple[str, str, str]]:
    """The facts that a text tells."""
    return [fact for line in sentences(text) if (fact := fact_of(line))]


def questions_in(text: str) -> list[tuple[str, str]]:
    """The questions of a text as (subject, relation); their frames are sentences of their own."""
    found = [[(low(m["s"]), name) for name, p in QUESTIONS if (m := p.fullmatch(line))]
             for line in sentences(text)]
    assert all(len(meanings) <= 1 for meanings in found)
    return [meaning for meanings in found for meaning in meanings]
