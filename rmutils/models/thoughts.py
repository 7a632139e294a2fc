"""Chains of thought, as Qwen3 writes them before an answer."""

from __future__ import annotations

import re


def without_thoughts(text: str) -> str:
    """A response behind its chain of thought; nothing if that never ends, as there is no answer."""
    return re.sub(r"<think>.*?(</think>|$)", "", text, flags=re.DOTALL).strip()
