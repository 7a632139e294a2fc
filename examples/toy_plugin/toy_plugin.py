"""A strategy, an attention variant and a data set for `rmutils`, from a package of their own."""

from contextlib import contextmanager
from typing import Literal

from rmutils import mask_heads, register_dataset, register_strategy
from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant
from rmutils.corpora.world.text_questions import free_answers
from rmutils.evaluation.helmet.metrics import METRICS


@register_strategy("first-layer", "First-Layer-Mask")
def first_layer(scores, *, tau, top_k, seed):
    """Rejected responses come from the model without the heads of its first layer."""
    return [(0, head) for head in range(scores.mean.shape[1])]


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


@register_dataset("toy", "Toys", ("length_of_answer", "recall"), "Answer the question.", shots=0,
                  max_new_tokens=8)
def toy(world, length, count, questions):
    """Questions about one text, in the wordings of the suite's `free_answer`."""
    return free_answers(world, length, count, questions)
