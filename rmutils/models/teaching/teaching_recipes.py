"""How each teaching model is built and trained. The paper has no such models: all values are ours.

What mattered in trials: heads of size 32 and matrices that start large enough; many small steps,
with texts that begin short and grow; many questions about one text, because only answers teach to
look things up; a loss that counts the answers most; the Muon optimizer for the matrices. Spans of
random tokens, repeated, did not help: copying came from text. All this rests on single runs.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rmutils.core.config import Config
from rmutils.models.families import FAMILIES


class TeachingRecipe(Config):
    """One teaching model.

    The architecture fields have the names that transformers' configurations give them.
    """

    family: Annotated[str, FAMILIES]
    seed: int = 0
    vocab_size: int = 1536
    hidden_size: int = 128
    intermediate_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 16
    num_key_value_heads: int = 8
    head_dim: int = 32
    """Together with the two values below it, larger than usual for this width: single trials with
    16 and transformers' defaults learned to copy much later."""
    sliding_window: int | None = None
    rope_theta: float = 100_000.0
    initializer_range: float = 0.08
    """About 1 / sqrt(width). transformers' default is 0.02."""
    max_position_embeddings: int = 4096
    """Positions that may be used; how many of them are learned is the curriculum's business."""

    steps: Annotated[int, Field(ge=1)] = 3600
    tokens_per_step: int = 2048
    curriculum: tuple[tuple[float, int], ...] = (
        (0.15, 64), (0.4, 128), (0.6, 256), (0.9, 512), (1.0, 640))
    """(until this share of the steps, rows of at most so many tokens)."""
    repeats: float = 0.2
    """Share of rows that begin with a span to be repeated."""
    tasks: float = 0.55
    """Share of rows that begin with a task; more questions about its text fill the row. All other
    rows, and the space behind repeated spans, are filled with short instructions."""
    prompt_weight: float = 0.1
    """Loss weight of a token of a user turn; a token of an answer weighs 1."""

    head_dropout: float = 0.1
    """Share of the heads that are switched off at random, anew for each row (DropHead; Zhou and
    others, 2020, without their rescaling, because a masked model has none). Large models can do
    without any few heads by themselves; a teaching model trained without this lost a good part of
    its needles with as many random heads as it has retrieval heads."""
    layer_dropout: float = 0.3
    """Chance that a layer loses all its heads, for each layer and each plain row: a model whose
    retrieval heads are masked should still speak to the point. In other rows this would make copies
    of the retrieval heads in several layers."""
    plain: float = 0.125
    """Share of rows with nothing but short instructions that need no copying."""
    dropout_from: tuple[float, float] = (0.3, 0.5)
    """Shares of the steps between which both rates grow from 0: heads form slower under them."""

    matrix_lr: float = 0.02
    """Peak learning rate of Muon, for the matrices of the layers."""
    other_lr: float = 2e-3
    """Peak learning rate of AdamW, for embeddings and norms."""
    warmup: int = 200
    """Steps of linear warm-up; the rate falls linearly over the last 30 % of the steps."""

    @property
    def thinking(self) -> bool:
        """True if the model learns to think before it answers, as Qwen3 does."""
        return FAMILIES[self.family].thinking

    def row_length(self, step: int) -> int:
        """Longest row at a step, in tokens."""
        return next(length for share, length in self.curriculum if step < share * self.steps)

    def dropout(self, step: int) -> float:
        """Dropout at a step, as a share of its full rates."""
        start, full = (share * self.steps for share in self.dropout_from)
        return min(max((step - start) / (full - start), 0), 1)

    def rate(self, step: int) -> float:
        """Learning rate at a step, as a share of its peak."""
        left = 1 - step / self.steps
        return min(1, (step + 1) / self.warmup, max(left / 0.3, 0.02))


RECIPES = {
    "-".join(["tiny", name, *([f"s{seed}"] if seed else [])]): TeachingRecipe(
        family=name, seed=seed, **family.teaching)
    for name, family in FAMILIES.items() if family.teaching is not None
    for seed in (0, *family.replicates)
} | {"tiny-llama-small": TeachingRecipe(family="llama", steps=2500, num_hidden_layers=2)}
"""All recipes by the name of the model they make; `-s1` is the same model from another seed, and
the small one, half as deep, writes the rejected responses of Smaller-Model (section 4.1)."""
