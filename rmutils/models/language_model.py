"""A language model as the rest of the project uses it, and its answers without their thoughts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.core.validation import checked
from rmutils.corpora.niah import load_haystacks
from rmutils.models.changes import changes_of, fingerprint
from rmutils.models.chat_template import Frame, Message, frame_of, template_errors, written
from rmutils.models.head_blocks import attentions
from rmutils.models.rotary import constant_within
from rmutils.models.text_encoder import Encoded, TextEncoder

MARGIN = 8
"""Tokens that are left free: pieces of text side by side can have more tokens than each alone."""


def corpus_named_by(config: PreTrainedConfig | None) -> str:
    """Return `LanguageModel.corpus` of a configuration."""
    return "world" if getattr(config, "corpus", None) == "world" else "book"


def window_named_by(config: PreTrainedConfig) -> int:
    """Return `LanguageModel.window` of a configuration."""
    return min(config.max_position_embeddings,
               constant_within(config) or config.max_position_embeddings)


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model with its tokenizer.

    Attributes
    ----------
    model : PreTrainedModel
        In evaluation mode.
    tokenizer : PreTrainedTokenizerFast
    name : str
        The name it was asked for by.
    family : str
        transformers' `model_type`: `llama`, `qwen3`, `olmo3`, ...
    identity : str
        What was loaded: a content hash, or hub id and commit. Stored results go by `state`, which
        notices weights that are changed in memory.
    source : str
        What `load_model` takes for it from any folder; empty if it did not come from there.

    Examples
    --------
    >>> from rmutils import load_model
    >>> lm = load_model("tiny-qwen3", device="cpu")
    >>> lm
    LanguageModel(tiny-qwen3: qwen3, 4 layers x 16 heads, window 4096, float32)
    >>> lm.tokenizer.decode(lm.render("Where is the key?", thinking=True))
    '<|user|>Where is the key?<|assistant|>'
    >>> lm.user_turn()  # thinking is off
    ('<|user|>', '<|assistant|><think>\\n\\n</think>\\n\\n')
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    name: str
    family: str
    identity: str
    source: str = ""
    made_with: str = field(default="", repr=False, compare=False)
    """`fingerprint` of the weights that `identity` is about."""

    def __post_init__(self) -> None:
        if not self.made_with:
            object.__setattr__(self, "made_with", fingerprint(self.model))

    def __repr__(self) -> str:
        layers, heads = self.shape
        return (f"LanguageModel({self.name}: {self.family}, {layers} layers x {heads} heads, "
                f"window {self.window}, {str(self.model.dtype).removeprefix('torch.')})")

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, query heads per layer)."""
        config = self.model.config
        return config.num_hidden_layers, config.num_attention_heads

    @property
    def layers(self) -> list[int]:
        """The layers that have heads: all, but in hybrids with layers of another kind."""
        return [*attentions(self.model)]

    def checked_heads(self, heads: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return heads (layer, head) as a set.

        Raises
        ------
        UserError
            The model has no such head.
        """
        heads = set(heads)
        layers, width = self.shape
        for layer, head in sorted(heads):
            if not (0 <= layer < layers and 0 <= head < width):
                raise UserError(f"{self.name} has no head {layer}-{head}: it has {layers} layers "
                                f"of {width} heads, counted from 0-0 to {layers - 1}-{width - 1}.")
            if layer not in self.layers:
                raise UserError(f"{self.name} has no head {layer}-{head}: of its {layers} layers, "
                                f"{', '.join(map(str, self.layers))} have heads.")
        return heads

    @property
    def state(self) -> str:
        """What the model is now: `identity`, and what has been masked or changed in memory."""
        changes: list[object] = [*changes_of(self.model)]
        if (now := fingerprint(self.model)) != self.made_with:
            changes.append(now)
        return f"changed {digest(changes)} of {self.identity}" if changes else self.identity

    def check_as_loaded(self) -> None:
        """Refuse a model that is changed in memory, where other processes load it by its name."""
        if self.state != self.identity:
            raise UserError(f"{self.name} has been changed in memory, and other processes would "
                            "load it as it was. Write it to a folder, and give that: "
                            "`rmutils.export_masked(lm, [], folder)`.")

    @property
    def window(self) -> int:
        """Longest sequence, in tokens, that the model's positions are made for; under LongRoPE, the
        longest that turns by the same angles as shorter ones."""
        return window_named_by(self.model.config)

    @property
    def corpus(self) -> str:
        """The text whose needles it can be asked for: a key of `rmutils.core.paths.CORPORA`.

        A model that this project trained knows only the words of its `world`. It says so in the key
        `corpus` of its `config.json`, which a copy that is trained further keeps.
        """
        return corpus_named_by(self.model.config)

    @property
    def stop_ids(self) -> set[int]:
        """Token ids that end an answer: those of the settings, and the end of the template's turns.

        Raises
        ------
        UserError
            The template ends an answer with words that are no token.
        """
        end = self._turn_end()
        return self._ends_in_settings() | ({end} - {None})

    @property
    def end_of_turn(self) -> int:
        """The token that the chat template writes after an answer; if it writes none, that of the
        settings.

        Raises
        ------
        UserError
            There is none, or the settings of tokenizer and generation name different ones.
        """
        end, eos = self._turn_end(), self.tokenizer.eos_token_id
        if end is not None:
            return end
        if eos is None or eos not in (self._generation_ends() or {eos}):
            raise UserError(
                f"it is not known which token ends a turn of {self.name}: its chat template writes "
                f"none after an answer, and its tokenizer's eos_token, {self.tokenizer.eos_token}, "
                "is not one of generation_config.json. Let the chat template write the end.")
        return eos

    def _turn_end(self) -> int | None:
        """The token that the template writes after an answer, if it writes anything there."""
        if not self.chat or not self._frame.end.strip():
            return None
        added = self.tokenizer.added_tokens_decoder
        for token in self.tokenizer(self._frame.end, add_special_tokens=False)["input_ids"]:
            if token in added and added[token].content.strip():
                return int(token)
        raise UserError(
            f"the chat template of {self.name} ends an answer with "
            f"{self._frame.end.strip()[:40]!r}, which is no token of its own, so there is no "
            "telling where an answer ends. Add it to the special tokens of the tokenizer, or fix "
            "the chat_template.")

    def _ends_in_settings(self) -> set[int]:
        return (self._generation_ends() | {self.tokenizer.eos_token_id}) - {None}

    def _generation_ends(self) -> set[int]:
        ids = getattr(getattr(self.model, "generation_config", None), "eos_token_id", None)
        return {ids} if isinstance(ids, int) else set(ids or [])

    @property
    def chat(self) -> bool:
        """True if the tokenizer has a chat template."""
        return self.tokenizer.chat_template is not None

    @checked
    def render(self, user_turn: str, *, thinking: bool = False) -> list[int]:
        """Return the token ids of a chat with one user turn, up to where the answer begins.

        Control tokens that the turn spells are text, as in `encode`.

        Parameters
        ----------
        thinking : bool
            Let the answer begin with a chain of thought; without effect where the chat template
            does not know the switch.
        """
        return self.render_chat([{"role": "user", "content": user_turn}], thinking=thinking)

    def render_chat(self, messages: Sequence[Message], *, thinking: bool = False) -> list[int]:
        """As `render`, for a conversation: messages with `role` and `content`, a user's last."""
        encoder = self._encoder
        covered = [{**message, "content": encoder.cover(message["content"])}
                   for message in messages]
        with template_errors(self.name):
            text = written(self.tokenizer, covered, thinking=thinking)
        return encoder.encode(text).ids

    def encode(self, text: str, *, begin: bool = False) -> list[int]:
        """Return the token ids of a text; what it spells of control tokens is text.

        Parameters
        ----------
        begin : bool
            Write the token with which the tokenizer begins a text, if any.
        """
        encoder = self._encoder
        return encoder.encode(encoder.cover(text), begin=begin).ids

    def encode_framed(self, before: str, text: str, after: str, *, begin: bool = False) -> Encoded:
        """As `encode`, for a text within parts of the chat template; with tokens' characters."""
        encoder = self._encoder
        return encoder.encode(f"{before}{encoder.cover(text)}{after}", begin=begin, offsets=True)

    def user_turn(self) -> tuple[str, str]:
        """Return what the chat template writes before and after the text of a single user turn.

        Thinking is switched off where the template knows the switch, as section 4.1 does for Qwen3
        ("we disable reasoning when computing the retrieval scores").
        """
        return self._frame.around(self.name)

    @property
    def _frame(self) -> Frame:
        return frame_of(self.tokenizer, str(self.tokenizer.chat_template), self.name)

    @property
    def _encoder(self) -> TextEncoder:
        return encoder_of(self.tokenizer, self._frame if self.chat else None,
                          frozenset(self._ends_in_settings()))


@lru_cache(maxsize=16)
def encoder_of(tokenizer: PreTrainedTokenizerFast, frame: Frame | None,
               ends: frozenset[int]) -> TextEncoder:
    """Return what encodes texts for a tokenizer; parameters as for `TextEncoder`."""
    return TextEncoder(tokenizer, frame.turn + frame.end if frame else "", ends)


def counter(lm: LanguageModel) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text for a model."""
    return lru_cache(maxsize=100_000)(lambda text: len(lm.encode(text)))


def passages(lm: LanguageModel, count: int, tokens: int) -> tuple[list[list[int]], int]:
    """Plain text that no model of this book was trained on: stretches of its corpus's haystack."""
    turn = lm.tokenizer(lm.user_turn()[0] if lm.chat else "", add_special_tokens=False)["input_ids"]
    texts = [lm.encode(haystack.text)
             for haystack in load_haystacks(CORPORA[lm.corpus] / "haystack")]
    room = min((len(texts) * (len(text) // tokens) + part
                for part, text in enumerate(texts)), default=0)
    if count > room:
        raise UserError(f"{count} passages of {tokens} tokens: the haystacks have only {room}.")
    starts = [(i % len(texts), i // len(texts) * tokens) for i in range(count)]
    return [[*turn, *texts[part][start : start + tokens]] for part, start in starts], len(turn)


def without_thoughts(text: str) -> str:
    """Return a response without its chain of thought; nothing if that never ends."""
    return re.sub(r"\A(?:(?!<think>).)*?</think>|<think>.*?(?:</think>|$)", "", text,
                  flags=re.DOTALL).strip()
