"""The teaching models' tokenizer: byte-level BPE of the invented world's English."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rmutils.corpora.world import World
from rmutils.corpora.world.documents import padding, paragraphs
from rmutils.corpora.world.instructions import instruction
from rmutils.corpora.world.tasks import TASKS, task

THOUGHT = ("<think>", "</think>")
SPECIAL = ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>", *THOUGHT)
TEXTS = 800

_TURNS = (
    "{% for m in messages %}"
    "{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}"
    "{% elif m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}<|end|>"
    "{% else %}{{ raise_exception('Only user and assistant speak here.') }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>"
)
TEMPLATE = _TURNS + "{% endif %}"
NO_THOUGHT = "<think>\n\n</think>\n\n"
"""What Qwen3's template puts before an answer without thinking."""
THINKING_TEMPLATE = (
    _TURNS + "{% if enable_thinking is defined and enable_thinking is false %}"
    + NO_THOUGHT.replace("\n", "\\n").join(("{{ '", "' }}")) + "{% endif %}{% endif %}"
)


def build_tokenizer(vocabulary: int, *, thinking: bool) -> PreTrainedTokenizerFast:
    """Train the tokenizer; always the same for the same size.

    Digits stand alone, so that years and codes are copied digit by digit. Held-out names are
    unknown as words but their syllables are known.

    Parameters
    ----------
    vocabulary : int
        Entries, special tokens included.
    thinking : bool
        Whether the chat template knows `enable_thinking`, with Qwen3's meaning.
    """
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(_texts(), trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))
    return PreTrainedTokenizerFast(
        tokenizer_object=_with_readable_thoughts(inner), pad_token="<|pad|>", eos_token="<|end|>",
        chat_template=THINKING_TEMPLATE if thinking else TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _with_readable_thoughts(inner: Tokenizer) -> Tokenizer:
    """`<think>` and `</think>` stay when special tokens are left out of a text, as in Qwen3: else
    nobody could tell the thinking from the answer."""
    made = json.loads(inner.to_str())
    for token in made["added_tokens"]:
        token["special"] = token["content"] not in THOUGHT
    return Tokenizer.from_str(json.dumps(made))


def _words(text: str) -> int:
    return len(text.split())


def _texts() -> Iterator[str]:
    for i in range(TEXTS):
        world = World(f"tokenizer {i}")
        yield paragraphs(padding(world, 200, _words))
        yield task(list(TASKS)[i % len(TASKS)], World(f"task {i}"), 200, _words).prompt
        for _ in range(10):
            sample = instruction(world)
            yield f"{sample.prompt}\n{sample.answer}"
