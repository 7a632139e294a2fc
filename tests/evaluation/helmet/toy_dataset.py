"""A data set and a metric from outside `rmutils`, as a package that adds them would have it."""

from rmutils.corpora.world.text_questions import free_answers
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.suite import register_dataset


@METRICS.register("length_of_answer")
def length_of_answer(response, sample):
    return min(1.0, len(response) / 10)


@register_dataset("toy", "Toys", ("length_of_answer", "recall"), "Answer the question.", shots=0,
         max_new_tokens=8)
def toy(world, length, count, questions):
    return free_answers(world, length, count, questions)
