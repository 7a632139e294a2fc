"""The haystack that ships with the project helps nobody by saying things twice."""

import re
from itertools import combinations

from rmutils.corpora.niah import load_haystacks


def test_no_two_paragraphs_are_alike():
    """Two paragraphs share hardly any five words in a row."""
    texts = [re.findall(r"\w+", text.lower()) for part in load_haystacks()
             for text in part.text.split("\n\n")]
    sets = [{tuple(text[i : i + 5]) for i in range(len(text) - 4)} for text in texts]
    shared = {len(a & b) / min(len(a), len(b)) for a, b in combinations(sets, 2) if a and b}
    assert len(sets) > 100 and max(shared) < 0.1
