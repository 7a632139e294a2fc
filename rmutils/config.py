"""Validated, hashable parameters: the base of every stage's configuration."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Base of all stage configurations: refuses unknown keys and wrong types; values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def digest(self) -> str:
        """SHA-256 (hex) of the sorted JSON of all fields."""
        return digest(self.model_dump(mode="json"))


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
