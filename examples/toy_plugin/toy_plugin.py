"""A strategy, an attention variant and a data set for `rmutils`, from a package of their own."""

from contextlib import contextmanager
from typing import Literal

from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant
from rmutils.corpora.world.text_questions import free_answers
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.suite import dataset
from rmutils.heads import mask_heads
from rmutils.preference.strategies import STRATEGIES, Strategy


class FirstLayer(Strategy):
    """Rejected responses come from the model without the heads of its first layer."""

    def choose_heads(self, scores, *, tau=None, top_k=None, seed=42):
        return [(0, head) for head in range(scores.mean.shape[1])]


STRATEGIES.add("first-layer", FirstLayer("First-Layer-Mask", policy="first-layer"))


@VARIANTS.register("headless")
class Headless(AttentionVariant):
    """One layer answers nothing."""

    kind: Literal["headless"] = "headless"
    label = "without the heads of one layer"
    layer: int = 0
    """Counted from 0."""

    @contextmanager
    def attached(self, lm):
        with mask_heads(lm, [(self.layer, head) for head in range(lm.shape[1])]):
            yield AttachedModel(lm)


@METRICS.register("length_of_answer")
def length_of_answer(response, sample):
    """1 for ten characters or more."""
    return min(1.0, len(response) / 10)


@dataset("toy", "Toys", ("length_of_answer", "recall"), "Answer the question.", shots=0,
         max_new_tokens=8)
def toy(world, length, count, questions):
    """Questions about one text, in the wordings of the suite's `free_answer`."""
    return free_answers(world, length, count, questions)
