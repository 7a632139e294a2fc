"""A language model as the rest of the project uses it, and its answers without their thoughts."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.core.validation import checked
from rmutils.corpora.niah import load_haystacks

MARGIN = 8
"""Tokens that are left free: pieces of text side by side can have more tokens than each alone."""
TEMPLATE_SECONDS = 5
"""A chat template writes a turn in less than a hundredth of one."""
_SENTINEL = "\N{OBJECT REPLACEMENT CHARACTER}user\N{OBJECT REPLACEMENT CHARACTER}"


def corpus_named_by(config: PreTrainedConfig | None) -> str:
    """Return `LanguageModel.corpus` of a configuration."""
    return "world" if getattr(config, "corpus", None) == "world" else "book"


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
        What the weights are, for the key of stored results: a content hash, or hub id and commit.
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

    def __repr__(self) -> str:
        layers, heads = self.shape
        config = self.model.config
        return (f"LanguageModel({self.name}: {self.family}, {layers} layers x {heads} heads, "
                f"window {self.window}, {str(config.dtype).removeprefix('torch.')})")

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, query heads per layer)."""
        config = self.model.config
        return config.num_hidden_layers, config.num_attention_heads

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
        return heads

    @property
    def window(self) -> int:
        """Longest sequence, in tokens, that the model's positions are made for."""
        return self.model.config.max_position_embeddings

    @property
    def corpus(self) -> str:
        """The text whose needles it can be asked for: a key of `rmutils.core.paths.CORPORA`.

        A model that this project trained knows only the words of its `world`. It says so in the key
        `corpus` of its `config.json`, which a copy that is trained further keeps.
        """
        return corpus_named_by(self.model.config)

    @property
    def stop_ids(self) -> set[int]:
        """Token ids that end an answer."""
        ids = self.model.generation_config.eos_token_id
        ids = [ids] if isinstance(ids, int) else list(ids or [])
        return {*ids, self.tokenizer.eos_token_id} - {None}

    @property
    def chat(self) -> bool:
        """True if the tokenizer has a chat template."""
        return self.tokenizer.chat_template is not None

    @checked
    def render(self, user_turn: str, *, thinking: bool = False) -> list[int]:
        """Return the token ids of a chat with one user turn, up to where the answer begins.

        Parameters
        ----------
        thinking : bool
            Let the answer begin with a chain of thought; without effect where the chat template
            does not know the switch.
        """
        with self._template_errors():
            return self.tokenizer.apply_chat_template(
                [{"role": "user", "content": user_turn}], add_generation_prompt=True,
                return_dict=False, enable_thinking=thinking)

    def user_turn(self) -> tuple[str, str]:
        """Return what the chat template writes before and after the text of a single user turn.

        Thinking is switched off where the template knows the switch, as section 4.1 does for Qwen3
        ("we disable reasoning when computing the retrieval scores").
        """
        with self._template_errors():
            rendered = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": _SENTINEL}],
                tokenize=False, add_generation_prompt=True, enable_thinking=False)
            before, after = rendered.split(_SENTINEL)
        return before, after

    @contextmanager
    def _template_errors(self) -> Iterator[None]:
        """What a chat template, which is a program, does wrong, or that it does not end."""
        try:
            with _within(TEMPLATE_SECONDS):
                yield
        except Exception as error:
            raise UserError(
                f"the chat template of {self.name} does not write a single user turn as it stands: "
                f"{str(error)[:300] or type(error).__name__}. Fix its chat_template, or remove it "
                "to have the model read plain text.") from error


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in Python code that takes longer, whichever thread it runs in."""
    end, before = time.monotonic() + seconds, sys.gettrace()

    def look(frame: object, event: str, given: object) -> object:
        if time.monotonic() > end:
            raise TimeoutError(f"it has not ended after {seconds} s")
        return look

    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)


def counter(lm: LanguageModel) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text for a model."""
    return lru_cache(maxsize=100_000)(
        lambda text: len(lm.tokenizer(text, add_special_tokens=False)["input_ids"]))


def passages(lm: LanguageModel, count: int, tokens: int) -> tuple[list[list[int]], int]:
    """Plain text that no model of this book was trained on: stretches of its corpus's haystack.

    Returns
    -------
    list of lists of int, int
        Token ids, each stretch after the beginning of a user turn, where the model knows turns; and
        how many tokens that beginning has.

    Raises
    ------
    UserError
        The haystacks are too short for so many.
    """
    turn = lm.tokenizer(lm.user_turn()[0] if lm.chat else "", add_special_tokens=False)["input_ids"]
    texts = [lm.tokenizer(haystack.text, add_special_tokens=False)["input_ids"]
             for haystack in load_haystacks(CORPORA[lm.corpus] / "haystack")]
    room = min((len(texts) * (len(text) // tokens) + part
                for part, text in enumerate(texts)), default=0)
    if count > room:
        raise UserError(f"{count} passages of {tokens} tokens: the haystacks have only {room}.")
    starts = [(i % len(texts), i // len(texts) * tokens) for i in range(count)]
    return [[*turn, *texts[part][start : start + tokens]] for part, start in starts], len(turn)


def without_thoughts(text: str) -> str:
    """Return a response without its chain of thought; nothing if that never ends.

    Where a chat template writes the opening `<think>` into the prompt, as that of Olmo 3 Think
    does, the response begins within the thought; that it never ends cannot be seen then.

    Examples
    --------
    >>> without_thoughts("<think>Where was it?</think> In the jar.")
    'In the jar.'
    """
    return re.sub(r"\A(?:(?!<think>).)*?</think>|<think>.*?(?:</think>|$)", "", text,
                  flags=re.DOTALL).strip()
