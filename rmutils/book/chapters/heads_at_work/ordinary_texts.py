"""Ordinary text: stretches of prose and code, and conversations."""

from collections.abc import Iterator
from typing import Any

from rmutils.core.errors import UserError
from rmutils.core.files import intact, read_text
from rmutils.core.paths import DATA
from rmutils.core.validation import parse_json
from rmutils.corpora.niah import load_haystacks
from rmutils.models import LanguageModel

PROSE, CODE, CHAT = "prose", "code", "chat"
FOLDER = DATA / "corpus" / "ordinary"


def stretches(text: str, count: int) -> list[str]:
    """Divide a text into stretches of about the same length, which begin with a line."""
    starts = [i * len(text) // count for i in range(count)]
    starts = [text.find("\n", start) + 1 if start else 0 for start in starts]
    return [text[start:end].lstrip() for start, end in zip(
        starts, [*starts[1:], len(text)], strict=True)]


def sources() -> dict[str, list[Any]]:
    """Return all texts by their kind; a conversation is a list of messages."""
    chats = [parse_json(line) for line in read_text(intact(FOLDER / "chat.jsonl")).splitlines()]
    return {PROSE: [text for part in load_haystacks() for text in stretches(part.text, 4)],
            CODE: stretches(read_text(intact(FOLDER / "code.txt")), 12), CHAT: chats}


def windows(lm: LanguageModel, tokens: int, most: int | None = None) -> Iterator[
        tuple[str, int, list[int]]]:
    """Yield kind, number and the first tokens of each text; of each kind at most so many."""
    for kind, texts in sources().items():
        for number, text in enumerate(texts[:most]):
            if isinstance(text, list) and not lm.chat:
                text = "\n\n".join(f"{turn['role'].title()}: {turn['content']}" for turn in text)
            ids = (lm.encode(text, begin=True) if isinstance(text, str)
                   else lm.render_chat(text[:-1]))  # which ends with the user's turn
            if len(ids) < tokens:
                raise UserError(f"text {number} of {kind} has {len(ids)} tokens, not {tokens}.")
            yield kind, number, ids[:tokens]
