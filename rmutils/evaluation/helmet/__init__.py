"""HELMET's seven categories of long-context tasks, over texts about the invented world."""

from rmutils.evaluation.helmet.averages import averages
from rmutils.evaluation.helmet.evaluation import evaluate, evaluate_stored
from rmutils.evaluation.helmet.prompts import EvaluateConfig

__all__ = ["EvaluateConfig", "averages", "evaluate", "evaluate_stored"]
