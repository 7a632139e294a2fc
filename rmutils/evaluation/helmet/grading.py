"""A model in GPT-4o's place, for free answers and the fluency of summaries.

The paper (appendix A): "For HELMET, we follow the original setting and utilize gpt-4o-2024-05-13
for evaluation". The grades are HELMET's. The wording is ours, the judge is not asked to reason, and
it is asked again with sampling where its reply is no grade.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.files import parse_json
from rmutils.corpora.world.questions import Question
from rmutils.evaluation.helmet.metrics import CORRECT, f1_of_key_points
from rmutils.preference.judges import ServerJudge

ANSWER = """\
Grade an answer to a question about a text that you do not see. The right answer is given.

Fluency: 0 if the answer is incoherent, repeats itself, or breaks off; 1 if it reads well.
Correctness: 0 if the answer does not agree with the right answer; 1 if it agrees in part; 2 if it \
agrees in full and also says something that has nothing to do with the question; 3 if it agrees in \
full and says nothing beside the point, however long or short it is.

Question: {question}
Right answer: {right}
Answer: {answer}

Reply with the grades and nothing else, in this form: {{"fluency": 1, "correctness": 2}}"""
SUMMARY = """\
Does the text below read well? Grade it 0 if it is incoherent, repeats itself even in other words, \
breaks off before it has said anything, or is no language at all; else 1. A last sentence that was \
cut off does no harm.

Text: {answer}

Reply with the grade and nothing else, in this form: {{"fluency": 1}}"""
MOST = {"fluency": 1, "correctness": CORRECT}


class GradingJudge:
    """Grades the metrics for which HELMET asks GPT-4o, by a server with OpenAI's interface.

    `answer_score` is then the judge's fluency times its correctness; in `key_point_f1` fluency is
    the judge's, and the key points stay those of the knowledge base.

    Parameters
    ----------
    server : ServerJudge
        Says where the judge is. Where its reply is no grade, again and again, the sample is
        unscored; where it cannot be reached, refuses or has trouble, so are all from then on.

    Attributes
    ----------
    trouble : str
        Why no more samples are scored; empty if all is well.
    """

    def __init__(self, server: ServerJudge):
        self.server, self.trouble = server, ""
        self.metrics: dict[str, Callable[[str, Question], float | None]] = {
            "answer_score": self._answer, "key_point_f1": self._summary}
        self.identity = digest(["grading judge", 1, server.name, ANSWER, SUMMARY])

    def _answer(self, response: str, sample: Question) -> float | None:
        grades = self._grades(ANSWER.format(question=sample.after.strip(), right=sample.answer,
                                            answer=response), "fluency", "correctness")
        return grades and grades["fluency"] * grades["correctness"] / CORRECT

    def _summary(self, response: str, sample: Question) -> float | None:
        grades = self._grades(SUMMARY.format(answer=response), "fluency")
        return grades and grades["fluency"] * f1_of_key_points(response, sample)

    def _grades(self, question: str, *names: str) -> dict[str, int] | None:
        if self.trouble:
            return None
        try:
            return self.server.ask(question, lambda reply: read_grades(reply, *names))
        except UserError as error:
            self.trouble = str(error)
            return None


def read_grades(reply: str, *names: str) -> dict[str, int] | None:
    """The last JSON object of a reply, if it has whole grades within their scales; else None."""
    for text in reversed(re.findall(r"\{[^{}]*\}", reply)):
        try:
            found = parse_json(text)
        except ValueError:
            continue
        grades = {name: found.get(name) for name in names}
        if all(type(g) is int and 0 <= g <= MOST[name] for name, g in grades.items()):
            return grades
        return None
    return None
