"""HELMET's seven categories of long-context tasks, over texts about the invented world."""

from rmutils.evaluation.longcontext.averages import averages
from rmutils.evaluation.longcontext.run import evaluate
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.evaluation.longcontext.stored import evaluate_stored

__all__ = ["EvaluateConfig", "averages", "evaluate", "evaluate_stored"]
