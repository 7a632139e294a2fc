"""Validated, hashable parameters: the base of every stage's configuration."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rmutils.core.errors import UserError


class Config(BaseModel):
    """Base of all stage configurations: refuses unknown keys and wrong types; values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def digest(self) -> str:
        """SHA-256 (hex) of the sorted JSON of all fields."""
        return digest(self.model_dump(mode="json"))

    def changed(self, values: dict[str, Any]) -> Self:
        """A copy with other values.

        Parameters
        ----------
        values : dict
            New values by name, those of configurations within by dotted name
            (`recipe.learning_rate`). Texts are read as JSON; those for
            tuples may be words between commas.

        Raises
        ------
        UserError
            No such name, or a value that does not fit; with all names or all that is wrong.
        """
        fields = dict(self)  # not model_dump, which leaves some out
        inner: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            first, _, rest = name.partition(".")
            if first not in fields or rest and not isinstance(fields[first], Config):
                known = ", ".join(self.dotted_names())
                raise UserError(f"there is no {name}. Known names: {known}.")
            if rest:
                inner.setdefault(first, {})[rest] = value
            else:
                fields[first] = _read(value, fields[first])
        for name, changes in inner.items():
            fields[name] = fields[name].changed(changes)
        try:
            return type(self)(**fields)
        except ValidationError as error:
            raise UserError("; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'together'}: {e['msg']} (got {e['input']!r})"
                for e in error.errors())) from error

    def dotted_names(self) -> list[str]:
        """All names that `changed` knows, dotted ones included."""
        return [dotted for name, value in self for dotted in (
            [f"{name}.{rest}" for rest in value.dotted_names()]
            if isinstance(value, Config) else [name])]

    def differences(self, other: Self) -> dict[str, str]:
        """What `changed` needs to make this out of `other`, as texts."""
        found = {}
        for name, value in self:
            before = getattr(other, name)
            if isinstance(value, Config) and isinstance(before, Config):
                found |= {f"{name}.{k}": v for k, v in value.differences(before).items()}
            elif value != before:
                found[name] = value if isinstance(value, str) else json.dumps(value, default=_plain)
        return found


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Config) else str(value)


def _read(value: Any, before: Any) -> Any:
    """A value from its text."""
    if not isinstance(value, str):
        return value
    if isinstance(before, tuple) and not value.startswith("["):
        return [word.strip() for word in value.split(",") if word.strip()]
    try:
        return json.loads(value)
    except ValueError:
        return value


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
