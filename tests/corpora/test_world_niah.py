"""The world's haystacks and needles are as generated."""

import pytest

from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks, load_needles
from rmutils.corpora.world.lexicon import RELATIONS
from rmutils.corpora.world.tasks import COUNT, SETS, write_held_out
from tests.corpora.reader import fact_of, facts_in

HAYSTACKS = load_haystacks(CORPORA["world"] / "haystack")
NEEDLES = load_needles(CORPORA["world"] / "needles")


def test_shipped_files_are_those_of_the_generator(tmp_path):
    """If they differ after a change of the world's words: `tasks.write_held_out()`."""
    write_held_out(tmp_path)
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.*")}
    assert made == {name: (CORPORA["world"] / name).read_bytes() for name in made}
    assert len(made) == COUNT + len(SETS) + 1  # the last: further needles


@pytest.mark.parametrize("index", range(COUNT))
def test_haystack_answers_nothing(index):
    """It knows no such subject, holds no such value, and tells this relation of nobody."""
    text, (subject, relation, value) = HAYSTACKS[index].text, fact_of(NEEDLES[index].needle)
    assert subject.lower() not in text.lower() and value not in text
    assert {r for _, r, _ in facts_in(text)} == RELATIONS.keys() - {relation}
