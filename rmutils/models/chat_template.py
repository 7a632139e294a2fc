"""What a chat template writes around the texts of a conversation."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from transformers import PreTrainedTokenizerFast

from rmutils.core.errors import UserError

TEMPLATE_SECONDS = 5  # a chat template writes a turn in less than a hundredth of one
_SENTINEL = "\N{OBJECT REPLACEMENT CHARACTER}text\N{OBJECT REPLACEMENT CHARACTER}"
Message = Mapping[str, Any]  # `role` and `content`, as chat templates take them


@dataclass(frozen=True)
class Frame:
    """What a template writes of a single user turn, with thinking off, and behind its answer."""

    turn: str
    end: str

    def around(self, name: str) -> tuple[str, str]:
        """Return what stands before and after the user's text, which may not occur twice."""
        with template_errors(name):
            before, after = self.turn.split(_SENTINEL)
        return before, after


@lru_cache(maxsize=16)
def frame_of(tokenizer: PreTrainedTokenizerFast, template: str, name: str) -> Frame:
    """Return the frame of a tokenizer's template, which is given to notice another one."""
    asked = {"role": "user", "content": _SENTINEL}
    with template_errors(name):
        turn = written(tokenizer, [asked])
        answered = [{**asked, "content": "?"}, {"role": "assistant", "content": _SENTINEL}]
        end = written(tokenizer, answered, add_generation_prompt=False).split(_SENTINEL)[-1]
    return Frame(turn, end)


def written(tokenizer: PreTrainedTokenizerFast, messages: Sequence[Message], *,
            thinking: bool = False, add_generation_prompt: bool = True) -> str:
    """Return the text that a template makes of a conversation."""
    return str(tokenizer.apply_chat_template(
        [dict(message) for message in messages], tokenize=False, enable_thinking=thinking,
        add_generation_prompt=add_generation_prompt))


@contextmanager
def template_errors(name: str) -> Iterator[None]:
    """What a chat template, which is a program, does wrong, or that it does not end."""
    try:
        with _within(TEMPLATE_SECONDS):
            yield
    except Exception as error:
        raise UserError(
            f"the chat template of {name} does not write a single user turn, or the answer to it, "
            f"as it stands: {str(error)[:300] or type(error).__name__}. Fix its chat_template, or "
            "remove it to have the model read plain text.") from error


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in Python code that takes longer, whichever thread it runs in."""
    end, before = time.monotonic() + seconds, sys.gettrace()

    def look(frame: object, event: str, given: object) -> object:
        if time.monotonic() > end:
            raise TimeoutError(f"it has not ended after {seconds} s")
        return look

    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)
