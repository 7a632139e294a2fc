"""Heads pointed at a passage: a bias on their logits while they answer (arXiv 2606.14703)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import FiniteFloat
from torch import Tensor, nn

from rmutils.attention import decoding
from rmutils.attention.decoding import NAME as CAPTURE
from rmutils.core.errors import UserError
from rmutils.core.validation import Heads, checked
from rmutils.corpora.niah import places_of, tokens_over
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached, grouped_query, register_by_layer
from rmutils.models.known_models import check

NAME = "redirected"


@dataclass(frozen=True)
class Span:
    """A passage of a prompt, as tokens: `prompt[start:end]`."""

    prompt: tuple[int, ...]
    start: int
    end: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))
        if not 0 <= self.start < self.end <= len(self.prompt):
            raise UserError(f"tokens {self.start} to {self.end} are no passage of a prompt of "
                            f"{len(self.prompt)} tokens: 0 <= start < end <= {len(self.prompt)}.")

    def __repr__(self) -> str:
        return f"Span(tokens {self.start} to {self.end} of {len(self.prompt)})"


@checked
def find_span(lm: LanguageModel, prompt: str, passage: str) -> Span:
    """Find a passage in a prompt.

    Parameters
    ----------
    lm : LanguageModel
    prompt : str
        What a user says; the chat template is put around it where there is one, as by `generate`.
    passage : str
        Words of it, which occur exactly once.

    Returns
    -------
    Span
        Its tokens; `.prompt` are those of the whole prompt.

    Raises
    ------
    UserError
        The passage does not stand in the prompt, or more than once.

    Examples
    --------
    >>> from rmutils import find_span, load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> find_span(lm, "The key is in the jar. Where is the key?", "The key is in the jar.")
    Span(tokens 1 to 9 of 16)
    """
    places = places_of(passage, prompt) if passage.strip() else []
    if len(places) != 1:
        how = f"{len(places)} times" if places else "nowhere"
        raise UserError(f"the passage {passage[:40]!r} stands {how} in the prompt. Give words that "
                        "occur there exactly once.")
    before, after = lm.user_turn() if lm.chat else ("", "")
    ids, offsets = lm.encode_framed(before, prompt, after, begin=not lm.chat)
    start, end = (len(before) + place for place in places[0])
    return Span(tuple(ids), *tokens_over(offsets, start, end))


@checked
@contextmanager
def redirect(lm: LanguageModel, heads: Heads, span: Span | Sequence[Span],
             strength: FiniteFloat) -> Iterator[None]:
    """Point heads at a passage of the prompt while the model answers.

    The bias acts on the prompt's last token and on all that follow it, whether they are read in one
    pass or step by step from a cache, alone or in a padded batch. On exit the attention is as
    before, also after an error.

    Parameters
    ----------
    lm : LanguageModel
    heads : iterable of (layer, head)
        Both from 0. Texts such as `18-6` will do, too.
    span : Span or sequence of Span
        The passage (`find_span`). Several: one for each row of a batch.
    strength : float
        What is added to the logits of the passage's tokens. Below 0 the heads look away from it.

    Raises
    ------
    UserError
        The model has no such head, or none is given; the strength is not finite; the model has been
        switched to another attention; or, while it runs, a row reads another prompt than that of
        its span, or there are more or fewer rows than spans.

    Examples
    --------
    >>> from rmutils import DetectConfig, detect, find_span, generate, load_model, redirect
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> heads = detect(lm, DetectConfig(depths=(0.5,), needles=6)).select(top_k=10)
    >>> told = ["Ulel Branbeck lives in Oakmere.", "Ulel Branbeck lives in Pineham."]
    >>> prompt = " ".join([*told, "Where does Ulel Branbeck live?"])
    >>> for passage in told:
    ...     span = find_span(lm, prompt, passage)
    ...     with redirect(lm, heads, span, strength=5):
    ...         generate(lm, prompt, max_new_tokens=16)
    'Ulel Branbeck lives in Oakmere.'
    'Ulel Branbeck lives in Pineham.'
    """
    spans = [span] if isinstance(span, Span) else [*span]
    chosen = sorted(lm.checked_heads(heads))
    if not chosen or not spans:
        raise UserError(f"there is nothing to redirect: no {'span' if chosen else 'heads'}.")
    biases = torch.zeros(*lm.shape)
    for head in chosen:
        biases[head] = strength
    with redirect_rows(lm, spans, biases.expand(len(spans), -1, -1)):
        yield


@contextmanager
def redirect_rows(lm: LanguageModel, spans: Sequence[Span], biases: Tensor) -> Iterator[None]:
    """As `redirect`, with `biases` (spans, layers, heads) on the logits for each row of a batch."""
    check(lm)
    own = lm.model.config._attn_implementation
    if own not in {*decoding.ALIKE, CAPTURE}:
        raise UserError(f"{lm.name} attends by {own!r}, which redirected heads would replace. "
                        "Redirect heads of a model with its own attention, and once at a time.")
    reading = _Pass(lm, spans)
    biases = biases.to(lm.model.device, torch.float32)
    given = {int(layer): _Given(biases[:, layer], reading)
             for layer in biases.any(2).any(0).nonzero()[:, 0]}
    hook = lm.model.base_model.register_forward_pre_hook(reading.begin, with_kwargs=True)
    try:
        with attached(lm.model, NAME, given):
            yield
    finally:
        hook.remove()


class _Pass:
    """What the layers have to know of the pass that is going on."""

    newest: int  # so many of the newest queries have a bias in some row
    biased: Tensor  # (rows, newest): which of them have one
    ends: Tensor  # (rows, 2): how many keys before the newest one the passage begins, and ends

    def __init__(self, lm: LanguageModel, spans: Sequence[Span]):
        self.name, self.spans = lm.name, spans
        device = lm.model.device
        self.places = torch.tensor([[span.start, span.end] for span in spans], device=device)
        self.since = torch.tensor([len(span.prompt) - 1 for span in spans], device=device)[:, None]

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        cache = kwargs.get("past_key_values")
        if getattr(cache, "is_compileable", False):
            raise UserError("a cache of a fixed size has keys that nobody wrote, so a passage "
                            "cannot be found in it. Take transformers' DynamicCache, the default.")
        read = ids if ids is not None else kwargs["inputs_embeds"][..., 0]
        positions = kwargs.get("position_ids")
        if positions is None:
            before = cache.get_seq_length() if cache is not None else 0
            positions = torch.arange(read.shape[1], device=read.device)[None] + before
        positions = positions.expand(len(read), -1)
        if len(self.spans) not in (1, len(read)):
            raise UserError(f"{len(self.spans)} spans are given, but this pass reads {len(read)} "
                            f"rows. Give one for each row, in the order of the rows; "
                            "rmutils.generate, which changes their order, takes one prompt then.")
        if ids is not None:
            self._check(ids, positions, kwargs.get("attention_mask"))
        self.biased = positions >= self.since
        self.newest = int(self.biased.sum(1).max())
        self.biased = self.biased[:, read.shape[1] - self.newest :]
        self.ends = positions[:, -1:] - self.places

    def _check(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> None:
        """Check that each row reads its span's prompt, but for the last token (padding)."""
        if bool((positions >= self.since).all()):
            return
        seen = torch.ones_like(ids, dtype=torch.bool)
        if isinstance(mask, Tensor) and mask.dim() == 2:
            seen = mask[:, -ids.shape[1] :].bool()
        for row, (tokens, places) in enumerate(zip(ids, positions, strict=True)):
            span = self.spans[row % len(self.spans)]
            prompt = torch.tensor(span.prompt[:-1], device=ids.device)
            known = seen[row] & (places < len(prompt))
            if not torch.equal(prompt[places[known]], tokens[known]):
                raise UserError(f"row {row} reads another prompt than that of its {span}. Give the "
                                "model the token ids span.prompt; left padding needs position_ids.")


@dataclass(frozen=True, eq=False)
class _Given:
    """What a layer is given: the bias of each head, (spans, heads), and the pass."""

    bias: Tensor
    reading: _Pass

    def add_to(self, products: Tensor) -> Tensor:
        """Add the biases to products, (rows, key heads, heads that share each, newest, keys)."""
        rows, *_, newest, keys = products.shape
        behind = torch.arange(keys - 1, -1, -1, device=products.device)  # keys after each
        start, end = self.reading.ends[..., None].unbind(1)
        where = (behind <= start) & (behind > end)  # (rows, keys)
        which = torch.zeros(rows, newest, device=products.device)
        which[:, newest - self.reading.newest :] = self.reading.biased
        bias = self.bias.expand(rows, -1)[:, :, None] * which[:, None]
        return products + (bias[..., None] * where[:, None, None]).view(products.shape)


def redirected(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, *,
    scaling: float, given: Any, recorder: decoding.ArgMaxRecorder | None = None, **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a layer with heads that are redirected."""
    count = given.reading.newest
    if not count:
        return _plain(module, query, key, value, attention_mask, scaling=scaling,
                      recorder=recorder, **kwargs)
    count = max(count, recorder.rows if recorder else 0)
    products = given.add_to(decoding.newest_products(query, key, attention_mask, scaling, count))
    weights = products.softmax(-1)
    if attention_mask is not None:
        weights = weights.nan_to_num(0.0)  # of padding, which sees nothing
    newest = (weights.to(value.dtype).flatten(2, 3) @ value).view(
        *query.shape[:2], count, -1).transpose(1, 2)
    if recorder is not None:
        rows = recorder.rows
        recorder.see(module.layer_idx, products[..., -rows:, :], weights[..., -rows:, :], value,
                     newest[:, -rows:])
    if count < query.shape[2]:
        before, _ = decoding.retrieval_capture(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        newest = torch.cat([before[:, :-count], newest], 1)
    return newest.contiguous(), None


def _plain(*tensors: Any, recorder: decoding.ArgMaxRecorder | None = None,
           **kwargs: Any) -> tuple[Tensor, None]:
    """The model's own attention, for layers and passes without a bias."""
    if recorder is None:
        return grouped_query(*tensors, **kwargs)
    return decoding.retrieval_capture(*tensors, recorder=recorder, **kwargs)


register_by_layer(NAME, redirected, otherwise=_plain)
decoding.RECORDING.add(NAME)
