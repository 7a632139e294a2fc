"""A model's answers and what they are worth."""

from rmutils.evaluation.answers import answer
from rmutils.evaluation.fluency import Fluency, on_topic

__all__ = ["Fluency", "answer", "on_topic"]
