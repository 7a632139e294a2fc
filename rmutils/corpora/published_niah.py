"""Needle-in-a-haystack cases as the published detection script builds them, mistakes included.

`retrieval_head_detection.py` of nightdessert/Retrieval_Head, which YoumiMa/RetMask uses unchanged
in this respect, inserts the needle after the last full stop before its depth, and knows the full
stop by two token ids of Llama 2. With a tokenizer whose full stops have other ids, it walks back to
the start of the text, whatever the depth; only at depth 1, where it looks for nothing, does the
needle stand elsewhere: at the end.

The script also drops a beginning-of-text token that some tokenizers write before needle and
haystack, or for base models leaves it there as text; here it is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rmutils.corpora.haystacks import Haystack, Needle
from rmutils.corpora.niah import NiahBuilder, Prompted

FULL_STOPS = (29889, 869)
"""Token ids at which the script, called as its authors call it, takes a sentence to end: `.` in the
tokenizer of Llama 2, without and with a space before it."""


class PublishedNiahBuilder(NiahBuilder):
    """Builds the cases of the published script; parameters as for `NiahBuilder`.

    The needle is inserted without a space, haystack and needle have `length - 200` tokens, and base
    models get no line break before the question.
    """

    space = ""

    def __init__(self, lm: Prompted, haystacks: Sequence[Haystack]):
        super().__init__(lm, haystacks, buffered=True)
        self.newline = "\n" if lm.chat else ""
        self.ids = cache(self._token_ids)

    def _insert(
        self, part: int, needle: Needle, size: int, depth: float, length: int
    ) -> tuple[str, int]:
        text = self._text(part, size, length)
        tokens = size
        if depth < 1:
            tokens = size * round(100 * depth) // 100  # the script has depths in whole percent
            while tokens and self.ids(part)[tokens - 1] not in FULL_STOPS:
                tokens -= 1
        at = self.ends(part)[tokens - 1] if tokens else 0
        return f"{text[:at]}{needle.needle}{text[at:]}", at

    def _token_ids(self, part: int) -> list[int]:
        ids: list[int] = self.lm.tokenizer(
            self.haystacks[part].text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids
