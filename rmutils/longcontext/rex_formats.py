"""The twelve forms in which REX has what a text says about something retold.

The Olmo 3 recipe names the forms; the words are ours, and those of a world of few words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """One form: what is asked for, and the lines of the answer.

    Attributes
    ----------
    request : str
        With `{p}`, the phrase.
    each : str
        What is written for each snippet, with any of `{fact}` (the fact in plain words),
        `{question}` (after it), `{value}`, `{told}` (the snippet as it stands), `{n}` (number from
        1), `{claim}` (the fact, or one that is not true) and `{verdict}` (`True` or `False`).
    opening, closing : str
        What stands before and after; with `{p}`.
    joint : str
        What stands between the parts.
    """

    request: str
    each: str
    opening: str = ""
    closing: str = ""
    joint: str = "\n"


FORMATS = {
    "short summary": Format(
        "Write a short summary of what the text says about {p}.", "{fact}", joint=" "),
    "professor and student": Format(
        "Write a talk between a professor and a student about {p}.",
        "Student: {question}\nProfessor: {fact}"),
    "high school": Format(
        "Explain {p} in simple words to children at school.", "{n}. {fact}",
        "Here is what you need to know about {p}."),
    "flashcards": Format(
        "Make flashcards about {p}.", "Front: {question}\nBack: {value}"),
    "school quiz": Format(
        "Make a school quiz about {p}.", "Question {n}: {question}\nAnswer {n}: {value}"),
    "game show": Format(
        "Write a game show about {p}.", "Host: {question}\nGuest: {value}!\nHost: True. {fact}",
        closing="Host: The winner knows all about {p}."),
    "dinner party": Format(
        "Write what guests say about {p} at a dinner party.",
        '"{question}" one guest asks. "{fact}" another guest says.'),
    "debate": Format(
        "Write a debate about {p}.",
        "First: {fact}\nSecond: Who says this?\nFirst: The text says: {told}"),
    "true or false": Format(
        "Write true and false sentences about {p}, and say which is which.",
        "{claim} {verdict}."),
    "movie scene": Format(
        "Write a scene of a movie about {p}.",
        "The judge asks: {question}\nThe clerk opens the book and reads: {told}",
        "A court, in the evening.", "The lamps are lit. The end."),
    "encyclopedia": Format(
        "Write about {p} as in an encyclopedia.", "{fact}", "{p}:", joint=" "),
    "explain like I am five": Format(
        "Explain {p} to me as if I were five years old.", "{fact}",
        "Listen, this is about {p}.", "Now you know.", joint=" "),
}
"""By name, in the order of the recipe."""
