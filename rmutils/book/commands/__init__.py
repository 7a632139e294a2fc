"""The book's commands; `rmutils.__main__` puts them beside the library's."""

from rmutils.cli import Listed

HERE = "rmutils.book.commands"
COMMANDS = {
    "report": Listed(f"{HERE}.measure", "A checkpoint on one page: its heads, what masking costs, "
                     "a forecast."),
    "abilities": Listed(f"{HERE}.measure", "Scores on tasks without long contexts, drift from the "
                        "base model."),
    "variants": Listed(f"{HERE}.measure", "A model with its attention changed: answers, retrieval "
                       "heads, costs."),
    "real-models": Listed(f"{HERE}.measure", "A part of the plan for four real models, for one "
                          "of them."),
    "claims": Listed(f"{HERE}.project", "The paper's claims, and a verdict on each.",
                     at_once=True, clone=True),
    "run": Listed(f"{HERE}.project", "Run a notebook with other parameters.", clone=True),
    "estimate": Listed(f"{HERE}.project", "Time, memory and disk of such a run, beforehand.",
                       at_once=True, clone=True),
    "study": Listed(f"{HERE}.study", "The whole study: from the models to the book, here or on a "
                    "cluster.", clone=True),
    "doctor": Listed(f"{HERE}.project", "What is wrong on this machine, and the command that fixes "
                     "it.", at_once=True, clone=True),
}
