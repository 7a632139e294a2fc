"""The teaching models' tokenizer: byte-level BPE of the invented world's English.

What a teaching model reads at each step: a pure function of recipe and step, so that a training
that was stopped goes on with the same texts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import lru_cache

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from rmutils.core.errors import UserError
from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, sentence
from rmutils.corpora.world.knowledge import ON_TOPIC, instruction
from rmutils.corpora.world.samples import Sample, padding, paragraphs
from rmutils.corpora.world.tasks import TASKS, task
from rmutils.models.teaching.teaching_recipes import TeachingRecipe

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


TASK_WEIGHTS = {"needle": 8, "needles": 3, "key_value": 3, "documents_qa": 2, "hops": 2,
                "summary": 2}
"""How often a kind of task comes, against 1 for the others."""
PLAIN_WORDS = words.THINGS + words.CROPS + words.MATERIALS + words.COLOURS + words.SPOTS


class Stream:
    """Batches of rows of tokens with a loss weight for each.

    Parameters
    ----------
    recipe : TeachingRecipe
    tokenizer : PreTrainedTokenizerFast
    """

    def __init__(self, recipe: TeachingRecipe, tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.inner = tokenizer.backend_tokenizer
        self.user, self.assistant, self.end = map(
            tokenizer.convert_tokens_to_ids, ("<|user|>", "<|assistant|>", "<|end|>"))
        self.count = lru_cache(maxsize=100_000)(lambda text: len(self.encode(text)))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        return self.inner.encode(text).ids

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Token ids and loss weights of a step, both (rows, length)."""
        draw = random.Random(f"{self.recipe.seed} {step}")
        longest = self.recipe.row_length(step)
        length = draw.choice([longest, longest, max(longest // 2, 64)])
        rows = max(self.recipe.tokens_per_step // length, 1)
        ids = torch.full((rows, length), self.tokenizer.pad_token_id)
        weights = torch.zeros(rows, length)
        for i, plain in enumerate(self.plain(step, rows)):
            world = World(f"{self.recipe.seed} {step} {i}")
            row, weight = self._plain_row(world, length) if plain else self._row(world, length)
            ids[i, : len(row)] = torch.tensor(row)
            weights[i, : len(row)] = torch.tensor(weight)
        return ids, weights

    def plain(self, step: int, rows: int) -> list[bool]:
        """Which rows of a step have nothing but instructions that need no copying."""
        draw = random.Random(f"{self.recipe.seed} {step} plain")
        return [draw.random() < self.recipe.plain for _ in range(rows)]

    def _plain_row(self, world: World, length: int) -> tuple[list[int], list[float]]:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < length:
            kind = world.random.choice(list(ON_TOPIC))
            self._add(ids, weights, instruction(world, kind), world.random)
        return ids[:length], weights[:length]

    def _row(self, world: World, length: int) -> tuple[list[int], list[float]]:
        """One long sample, perhaps, then more questions about its text or short instructions, up
        to the length; the last turn is cut."""
        draw, repeats = world.random, self.recipe.repeats
        told: list[Fact] = []
        ids: list[int] = []
        weights: list[float] = []
        chance = draw.random()
        if chance < repeats:
            self._add(ids, weights, self._repeat(world, length), draw)
        elif chance < repeats + self.recipe.tasks and (sample := self._task(world, length)):
            self._add(ids, weights, sample, draw)
            told = [fact for fact in world.facts.values() if _tells(sample.context, fact)]
            draw.shuffle(told)
        while len(ids) < length:
            self._add(ids, weights, _question(world, told.pop()) if told else instruction(world),
                      draw)
        return ids[:length], weights[:length]

    def _task(self, world: World, length: int) -> Sample | None:
        """A task that fits into the row, with room for more questions; None if it is too short."""
        kinds = list(TASKS)
        kind, = world.random.choices(kinds, [TASK_WEIGHTS.get(k, 1) for k in kinds])
        try:
            most = 0.7 if self.recipe.thinking else 0.9  # thoughts need room, too
            return task(kind, world, int(length * world.random.uniform(0.4, most)), self.count)
        except UserError:
            return None

    def _repeat(self, world: World, length: int) -> Sample:
        """A span to be said again: sentences, or words in no order, from which copying is learned
        because nothing else helps."""
        room = max(length // 2 - 5, 16)
        span = " ".join(padding(world, room, self.count))
        if world.random.random() < 0.5 or not span:
            span = " ".join(world.random.choices(PLAIN_WORDS, k=room * 3 // 5))
        return Sample("repeat", f"Repeat: {span}", span)

    def _add(self, ids: list, weights: list, sample: Sample, draw: random.Random) -> None:
        """Append a turn of user and assistant."""
        prompt = [self.user, *self.encode(sample.prompt), self.assistant]
        answer = sample.answer
        if self.recipe.thinking:
            if draw.random() < 0.5:
                answer = f"<think>\n{sample.thinking or NOTHING}\n</think>\n\n{answer}"
            else:
                prompt += self.encode(NO_THOUGHT)
        said = [*self.encode(answer), self.end]
        ids += prompt + said
        weights += [self.recipe.prompt_weight] * len(prompt) + [1.0] * len(said)


def _tells(context: str, fact: Fact) -> bool:
    """Whether the text says this, in any wording and frame."""
    return any(sentence(text.format(s=fact.subject, v=fact.value))[1:] in context
               for text in fact.spec.statements)


def _question(world: World, fact: Fact) -> Sample:
    """One more question about a text that stands above."""
    return Sample("question", world.ask(fact), fact.answer, thinking=fact.answer)


NOTHING = "There is nothing to look up."
"""What a thinking model thinks where an answer needs no chain of facts."""
