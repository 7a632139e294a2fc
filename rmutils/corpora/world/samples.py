"""The form of a sample: a user turn, the right answer, and what makes it right."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One instruction or task with all that is known about its answer.

    Attributes
    ----------
    kind : str
        Which instruction or task it is.
    before, context, after : str
        The user turn in three parts. `context` is the long text (empty in short instructions), the
        only part that may be cut to fit a window.
    answer : str
        A right answer, in full.
    golds : tuple of str
        What a right answer must hold, such as the value asked for.
    support : tuple of str
        Sentences of the context from which the answer follows.
    key_points : tuple of str
        The sentences that a good summary holds; empty in other kinds.
    thinking : str
        The chain of look-ups that leads to the answer; empty where there is nothing to look up.
    """

    kind: str
    before: str
    answer: str
    context: str = ""
    after: str = ""
    golds: tuple[str, ...] = ()
    support: tuple[str, ...] = ()
    key_points: tuple[str, ...] = ()
    thinking: str = ""

    @property
    def prompt(self) -> str:
        """The whole user turn."""
        return f"{self.before}{self.context}{self.after}"
