"""Exceptions that mean "the user can mend this"."""

from __future__ import annotations


class UserError(Exception):
    """Bad usage or bad input: the message says what is wrong, where, and the command that mends it.

    The command line prints the message without a traceback and exits with status 2.
    """


class NotStored(UserError):
    """A result that was only to be read is not there."""
