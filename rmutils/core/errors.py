"""Exceptions that mean "the user can fix this"."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class UserError(Exception):
    """Bad usage or bad input: the message says what is wrong, where, and the command that fixes it.

    The command line prints the message without a traceback and exits with status 2.

    Examples
    --------
    >>> from rmutils import DetectConfig, UserError
    >>> try:
    ...     DetectConfig(depths=[1.5])
    ... except UserError as error:
    ...     print(error)
    depths: expected at most 1.0, got 1.5.
    """


class Refused(ValueError):
    """What a file says cannot be applied. Who knows the file's name tells the user."""


class NotStored(UserError):
    """A result is not stored, and was not to be computed."""


@contextmanager
def exit_with_message() -> Iterator[None]:
    """Print a `UserError` without its traceback, and exit with status 2."""
    try:
        yield
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def printable(text: str) -> str:
    """Return a text from elsewhere as a terminal may show it: what would steer it spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean X?" if one of the known names is like this one, else nothing."""
    return "".join(f" Did you mean {n}?" for n in difflib.get_close_matches(name, [*known], n=1))


def unknown(name: str, known: Iterable[str]) -> str:
    """Say that there is no such name, what may be meant, and what there is."""
    known = list(dict.fromkeys(known))
    return f"there is no {name}.{did_you_mean(name, known)} Known names: {', '.join(known)}."


def require(missing: Sequence[str]) -> None:
    """Raise NotStored with the command lines that make what is missing, if anything is."""
    if missing:
        raise NotStored(f"Make it: {', '.join(f'`{command}`' for command in missing)}.")
