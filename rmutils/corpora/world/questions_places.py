"""The same question with its document at several places among the others.

Liu et al. (2023), "Lost in the Middle", ask so: models find an answer that stands first or last
more often than one in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rmutils.corpora.world.fitting import Count, Piece
from rmutils.corpora.world.numbered import FRAMES, among, numbered
from rmutils.corpora.world.questions import Chronicle, Question, ask_all, with_answer
from rmutils.corpora.world.questions_documents import right


def document_question_at(
    world: Chronicle, length: int, count: Count, places: Sequence[float]
) -> list[Question]:
    """One question to the same documents in the same order, but for the one that holds the answer.

    Parameters
    ----------
    places : sequence of float
        Where that one stands: behind this share of the others, 0 (first of all) to 1 (last of all).

    Returns
    -------
    list of Question
        One for each place.
    """
    (fact,), (gold,) = right(world, 1)
    before, after = world.wording(FRAMES["documents_qa"])
    others: list[Piece] = []

    def build(pieces: list[Piece]) -> str:
        others[:] = pieces
        return numbered([gold, *pieces])

    question, = ask_all(world, "documents_qa", before, [after.format(q=world.ask(fact))], build,
                        among(world, [fact]), length, count, "\n\n")
    world.random.shuffle(others)  # the last ones that were made are short, so that they fit
    found = []
    for place in places:
        start = round(place * len(others))
        context = numbered([*others[:start], gold, *others[start:]])
        moved = replace(question, context=context, told=tuple(world.lines_in(context).values()))
        found.append(with_answer(world, moved, [fact], fact.answer))
    return found
