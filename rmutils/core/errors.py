"""Exceptions that mean "the user can fix this"."""

from __future__ import annotations

from collections.abc import Sequence


class UserError(Exception):
    """Bad usage or bad input: the message says what is wrong, where, and the command that fixes it.

    The command line prints the message without a traceback and exits with status 2.
    """


class NotStored(UserError):
    """A result is not stored, and was not to be computed."""


def require(missing: Sequence[str]) -> None:
    """Raise NotStored with the command lines that make what is missing, if anything is."""
    if missing:
        raise NotStored("what is asked for is not stored. Make it: "
                        + ", ".join(f"`{command}`" for command in missing) + ".")
