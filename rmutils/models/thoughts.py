"""Chains of thought, as Qwen3 and Olmo 3 Think write them before an answer."""

from __future__ import annotations

import re


def without_thoughts(text: str) -> str:
    """A response behind its chain of thought; nothing if that never ends, as there is no answer.

    Where a chat template has written the beginning, `<think>`, into the prompt, as that of Olmo 3
    Think does, the response begins within the thought; that it never ends cannot be seen then.
    """
    return re.sub(r"\A(?:(?!<think>).)*?</think>|<think>.*?(?:</think>|$)", "", text,
                  flags=re.DOTALL).strip()
