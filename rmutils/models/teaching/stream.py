"""The teaching models' recipes, tokenizer, and texts: a pure function of recipe and step."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from rmutils.core.config import Config, added
from rmutils.core.errors import UserError
from rmutils.core.validation import Count
from rmutils.corpora.world import World
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, sentence
from rmutils.corpora.world.knowledge import ON_TOPIC, instruction
from rmutils.corpora.world.samples import Sample, is_outer, padding, paragraphs
from rmutils.corpora.world.tasks import TASKS, task
from rmutils.models.families import FAMILIES


class TeachingRecipe(Config):
    """One teaching model; transformers' names for the architecture."""

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

    steps: Count = 3600
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
    kinds: tuple[str, ...] = added(())
    """Kinds of tasks; none: all."""
    outer: Annotated[float, Field(gt=0, le=1)] | None = added(None)
    """Share of the answers that stand in the first or the last fifth of their text; None: they
    stand anywhere."""
    thoughts: Annotated[float, Field(ge=0, le=1)] | None = added(None)
    """Share of the answers that begin with a thought; None: half of them in a family whose template
    can switch thoughts off, else none."""
    begins: str | None = added(None)
    """Name of the model whose weights the training begins with; None: random weights."""

    head_dropout: float = 0.1
    """Share of the heads that are switched off at random, anew for each row (DropHead; Zhou and
    others, 2020, without their rescaling, because a masked model has none). Large models can do
    without any few heads by themselves; a teaching model trained without this lost a good part of
    its needles with as many random heads as it has retrieval heads."""
    layer_dropout: float = 0.3
    """Chance that a layer loses all its heads, for each layer and each plain row: a model whose
    retrieval heads are masked should still answer to the point. In other rows this would make
    copies of the retrieval heads in several layers."""
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
    def thinking(self) -> float:
        """Share of the answers before which the model learns to think."""
        return FAMILIES[self.family].thinking / 2 if self.thoughts is None else self.thoughts

    @property
    def switch(self) -> bool:
        """True if the model learns to think and not to, as its template asks it, as Qwen3 does."""
        return 0 < self.thinking < 1

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
"""Text that Qwen3's template puts before an answer without thinking."""
THINKING_TEMPLATE = (
    _TURNS + "{% if enable_thinking is defined and enable_thinking is false %}"
    + NO_THOUGHT.replace("\n", "\\n").join(("{{ '", "' }}")) + "{% endif %}{% endif %}"
)


def build_tokenizer(vocabulary: int, *, switch: bool) -> PreTrainedTokenizerFast:
    """Train the tokenizer; always the same for the same size."""
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
        chat_template=THINKING_TEMPLATE if switch else TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _with_readable_thoughts(inner: Tokenizer) -> Tokenizer:
    """Keep `<think>` and `</think>` in decoded text, as Qwen3 does, to tell thinking apart."""
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
    """Batches of rows of tokens with a loss weight for each."""

    def __init__(self, recipe: TeachingRecipe, tokenizer: PreTrainedTokenizerFast):
        self.recipe, self.tokenizer = recipe, tokenizer
        self.inner = tokenizer.backend_tokenizer
        self.user, self.assistant, self.end = map(
            tokenizer.convert_tokens_to_ids, ("<|user|>", "<|assistant|>", "<|end|>"))
        self.count = lru_cache(maxsize=100_000)(lambda text: len(self.encode(text)))

    def encode(self, text: str) -> list[int]:
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
            world.outer = self.recipe.outer
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
        """Perhaps one long sample, then questions about it or short ones; the last turn is cut."""
        draw, repeats = world.random, self.recipe.repeats
        told: list[Fact] = []
        ids: list[int] = []
        weights: list[float] = []
        chance = draw.random()
        if chance < repeats:
            self._add(ids, weights, self._repeat(world, length), draw)
        elif chance < repeats + self.recipe.tasks and (sample := self._task(world, length)):
            self._add(ids, weights, sample, draw)
            told = [fact for fact in world.facts.values()
                    if (place := _place(sample.context, fact)) is not None
                    and self._asked(place, draw)]
            draw.shuffle(told)
        while len(ids) < length:
            self._add(ids, weights, _question(world, told.pop()) if told else instruction(world),
                      draw)
        return ids[:length], weights[:length]

    def _task(self, world: World, length: int) -> Sample | None:
        """A task that fits into the row, with room for more questions; None if it is too short."""
        kinds = self.recipe.kinds or list(TASKS)
        kind, = world.random.choices(kinds, [TASK_WEIGHTS.get(k, 1) for k in kinds])
        try:
            most = 0.7 if self.recipe.thinking else 0.9  # thoughts need room, too
            return task(kind, world, int(length * world.random.uniform(0.4, most)), self.count)
        except UserError:
            return None

    def _asked(self, place: float, draw: random.Random) -> bool:
        """Whether to ask for a fact at this place, 0 to 1: outer fifths by the recipe's share."""
        outer = self.recipe.outer
        return outer is None or is_outer(place) or draw.random() < (1 - outer) / outer * 0.4 / 0.6

    def _repeat(self, world: World, length: int) -> Sample:
        """A span said again: sentences, or random words, where nothing but copying helps."""
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
            if draw.random() < self.recipe.thinking:
                answer = f"<think>\n{sample.thinking or NOTHING}\n</think>\n\n{answer}"
            else:
                prompt += self.encode(NO_THOUGHT)
        said = [*self.encode(answer), self.end]
        ids += prompt + said
        weights += [self.recipe.prompt_weight] * len(prompt) + [1.0] * len(said)


def _place(context: str, fact: Fact) -> float | None:
    """Where the text says this, in any wording and frame, from 0 to 1; None: nowhere."""
    texts = (sentence(text.format(s=fact.subject, v=fact.value))[1:]
             for text in fact.spec.statements)
    return next((at / len(context) for text in texts if (at := context.find(text)) >= 0), None)


def _question(world: World, fact: Fact) -> Sample:
    """One more question about a text that stands above."""
    return Sample("question", world.ask(fact), fact.answer, thinking=fact.answer)


NOTHING = "There is nothing to look up."
"""The thought of a thinking model where an answer needs no chain of facts."""
