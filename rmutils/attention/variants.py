"""Attention variants: what each of them offers, and the registry that other code adds to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from rmutils.attention.decoding import Answer, capturing, decode
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.registry import Registry
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk
from rmutils.models.engine.generation import generate, next_token_logits

PLAIN: Final = "plain"  # name of the model's own attention, as a variant and in comparisons
Done = Callable[[int, list[int], float], None]
"""Is told of each answer: its number, its tokens, and the share of the attention that was kept."""


class AttentionVariant(Config):
    """Base of all variants."""

    kind: str
    """A `Literal` in each variant: its name in the registry."""
    label: ClassVar[str]
    """Its name for readers."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        """Put the variant on a model, or raise UserError; on exit its own attention comes back."""
        yield AttachedModel(lm)

    def prepared(self, lm: LanguageModel) -> AttentionVariant:
        """Return the variant with all that it finds out about a model, to be attached often."""
        return self

    def by_layer(self, layers: int) -> dict[int, AttentionVariant]:
        """Return the variant in one layer alone, for each layer where it can be set."""
        raise UserError(f"{self.label} cannot be set in a single layer.")


@dataclass(frozen=True)
class PromptView:
    """A prompt as a model under a variant reads it."""

    ids: Sequence[int]  # the token ids that are read
    share: float = 1.0  # of the attention that is computed; see `AttachedModel.kept`
    # where these tokens stand in the prompt; None: it is read as it is
    places: Sequence[int] | None = None

    def kept(self) -> float:
        """Share of the attention that has been computed so far."""
        return self.share

    def hidden_bytes(self) -> int:
        """Bytes that are kept besides keys and values."""
        return 0


@dataclass(frozen=True)
class AttachedModel:
    """A model under a variant: it answers, reads, and can be watched."""

    lm: LanguageModel
    # Share of the attention that is computed: of heads with weights of their own (Share-Attention),
    # of tokens that later layers see (Select-Attention), or of the prompt's tokens that the model
    # reads (GemFilter), else 1.
    kept: float = 1.0
    batched: ClassVar[bool] = True
    """Texts are read side by side. False: one by one, each within `viewing`."""

    @contextmanager
    def viewing(self, prompt: Sequence[int]) -> Iterator[PromptView]:
        """Get ready for one prompt and what follows it."""
        yield PromptView(prompt, self.kept)

    def answer(self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, done: Done,
               stop_ids: Collection[int] | None = None) -> None:
        """Answer greedily, and tell `done` of each answer; `stop_ids` replace the model's."""
        if self.batched:
            generate(self.lm, prompts, max_new_tokens=max_new_tokens, stop_ids=stop_ids,
                     done=lambda index, tokens: done(index, tokens, self.kept))
            return
        for i, prompt in enumerate(prompts):
            with self.viewing(prompt) as view:
                tokens, = generate(self.lm, [view.ids], max_new_tokens=max_new_tokens,
                                   stop_ids=stop_ids)
            done(i, tokens, view.kept())

    def step(self, ids: Sequence[int], cache: DynamicCache) -> Tensor:
        """Read on after all in `cache`: logits of what follows each token, (tokens, vocabulary)."""
        logits: Tensor = self.lm.model(
            torch.tensor([ids], device=self.lm.model.device), past_key_values=cache,
            use_cache=True).logits[0]
        return logits

    def next_logits(self, text: Sequence[int], known: int) -> tuple[Tensor, float]:
        """Logits of each token of a text after the first `known` ones, and `PromptView.kept`."""
        with self.viewing(text[:known]) as view:
            logits = next_token_logits(self.lm, [*view.ids, *text[known:]])
        return logits[len(view.ids) - 1 : -1], view.kept()

    def watch(self, prompt: Sequence[int], *, max_new_tokens: int,
              stop_ids: Collection[int]) -> Answer:
        """Answer one prompt, and say where each head looks, as positions in the prompt."""
        with self.viewing(prompt) as view, capturing(self.lm.model) as recorder:
            answer, = decode(self.lm.model, recorder, [view.ids],
                             [Trunk(self.lm.model, view.ids[:-1]).cache],
                             max_new_tokens=max_new_tokens, stop_ids=stop_ids)
        if view.places is None:
            return answer
        behind = range(len(prompt), len(prompt) + max_new_tokens)
        return Answer(answer.tokens, np.array([*view.places, *behind])[answer.positions])


@dataclass(frozen=True)
class OneByOne(AttachedModel):
    """Reads each text by itself, within the view of its prompt, or of its known beginning."""

    _: KW_ONLY
    view: Callable[[Sequence[int]], AbstractContextManager[PromptView]]
    batched = False

    @contextmanager
    def viewing(self, prompt: Sequence[int]) -> Iterator[PromptView]:
        with self.view(prompt) as view:
            yield view


VARIANTS: Registry[type[AttentionVariant]] = Registry(
    "attention variant", "rmutils.attention_variants", package="rmutils.attention",
    also="rmutils.longcontext.extension")
"""All variants by `kind`. A file of `rmutils.attention` registers its own; so does
`rmutils.longcontext.extension`."""
Variant = Annotated[AttentionVariant, VARIANTS]
"""Type of a configuration's field that holds any registered variant."""


@VARIANTS.register(PLAIN)
class Plain(AttentionVariant):
    """The attention that the model was trained with."""

    kind: Literal["plain"] = PLAIN
    label = "plain attention"
