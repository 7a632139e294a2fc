"""Text becomes token ids, and what it spells stays text: only templates write control tokens."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from rmutils.core.errors import UserError

THOUGHTS = ("<think>", "</think>")  # written by models themselves, and part of their responses
_PRIVATE = [chr(code) for code in range(0xF0000, 0xFFFFE)]
"""Characters that no standard gives a meaning."""
EXCERPT = 30  # characters shown before and behind a place in a text


class Encoded(NamedTuple):
    """Token ids, and the characters `(start, end)` of each."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class TextEncoder:
    """Encodes texts for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, written: str, ends: Iterable[int]):
        self.tokenizer, ends = tokenizer, {*ends}
        self.control = {i: token.content for i, token in tokenizer.added_tokens_decoder.items()
                        if token.content.strip() and token.content not in THOUGHTS
                        and (token.special or i in ends or token.content in written)}
        draw = random.SystemRandom()  # no text can guess it, and no result depends on it
        names = {text: "".join(draw.choices(_PRIVATE, k=len(text)))
                 for text in self.control.values()}
        self._names = names
        self._other = {**names, **{name: text for text, name in names.items()}}
        longest_first = sorted(names, key=len, reverse=True)
        self._spelled, self._covers, self._both = (
            re.compile("|".join(map(re.escape, words)) or "(?!)")
            for words in (longest_first, names.values(), [*longest_first, *names.values()]))

    def cover(self, text: str) -> str:
        """Return a text of the same length in which no control token is spelled."""
        return self._spelled.sub(lambda found: self._names[found[0]], text)

    def encode(self, text: str, *, begin: bool = False, offsets: bool = False) -> Encoded:
        """Encode a text whose parts from elsewhere are covered."""
        if self._covers.search(text):
            return self._as_text(text, begin)
        found = self.tokenizer(text, add_special_tokens=begin, return_offsets_mapping=offsets,
                               verbose=False)
        return Encoded(found["input_ids"], found["offset_mapping"] if offsets else [])

    def _as_text(self, text: str, begin: bool) -> Encoded:
        turned = self._both.sub(lambda found: self._other[found[0]], text)
        if self._copy is not None:
            found = self._copy.encode(turned, add_special_tokens=begin)
            places = [start for i, (start, end) in zip(found.ids, found.offsets, strict=True)
                      if i in self.control and end > start]
            if len(places) == len(self._covers.findall(turned)):
                return Encoded(found.ids, found.offsets)
        place = self._covers.search(text)
        assert place is not None
        around = turned[max(place.start() - EXCERPT, 0) : place.end() + EXCERPT]
        raise UserError(f"the tokenizer cannot take the control token {self._other[place[0]]!r} as "
                        f"text, and it stands in one: {self._covers.sub('', around)!r}. Take it "
                        "out there.")

    @cached_property
    def _copy(self) -> Tokenizer | None:
        """The tokenizer with other names for its control tokens; None if there is no such copy."""
        try:
            return _renamed(self.tokenizer.backend_tokenizer, self._names)
        except Exception:  # the Rust library has one kind; or it is no tokenizer of that library
            return None


def _renamed(tokenizer: Tokenizer, names: Mapping[str, str]) -> Tokenizer:
    made = json.loads(tokenizer.to_str())
    made["truncation"] = made["padding"] = None
    for token in made["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = made["model"]
    vocabulary = model["vocab"]
    model["vocab"] = (
        {names.get(piece, piece): i for piece, i in vocabulary.items()}
        if isinstance(vocabulary, dict) else
        [[names.get(piece, piece), *rest] for piece, *rest in vocabulary])
    if model.get("unk_token"):
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    return Tokenizer.from_str(json.dumps(made))
