"""A window made longer: one method for its positions, then a short fine-tune on long documents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from rmutils.attention.rope import RopeExtension, extend
from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.journal import progress_bar
from rmutils.corpora.world.lookups import FRAMES
from rmutils.corpora.world.samples import Sample, padding, paragraphs
from rmutils.corpora.world.writing import Chronicle
from rmutils.longcontext.context_parallel import WINDOW_BLOCKS
from rmutils.longcontext.packing import NO_LABEL, Packing, best_fit, packed_inputs
from rmutils.longcontext.reach import ReachConfig
from rmutils.longcontext.synthetic import TfIdf, cwe, name_counts, noun_counts, rex
from rmutils.models import LanguageModel
from rmutils.models.changes import using
from rmutils.models.teaching import RECIPES, TeachingRecipe
from rmutils.models.teaching.pretraining import losses
from rmutils.models.teaching.stream import Stream

REFERENCES = 24  # other texts that TF-IDF compares with
TEXT_SHARE = 0.6, 0.9
"""Share of a long document that is text; the rest are questions and answers. As in the rows that
the models are trained on."""


@dataclass(frozen=True)
class Document:
    """Token ids with the weight of each in the loss."""

    # `short`, or of a long one what is asked behind its text: `cwe`, `rex`, `questions` (look-ups
    # alone) or `text` (nothing)
    kind: str
    ids: list[int]
    weights: list[float]
    text: list[int] = field(default_factory=list)  # of a long document: the ids of its text alone

    def without_questions(self) -> Document:
        """Return the text of a long document with nothing behind it."""
        return Document("text", self.text, [self.weights[0]] * len(self.text), self.text)

    def piece(self, start: int, length: int) -> Document:
        """Return so many of its tokens; all of them are the document itself."""
        here = slice(start, start + length)
        return self if length == len(self.ids) else Document(
            self.kind, self.ids[here], self.weights[here])


class Texts:
    """Documents of a seed."""

    def __init__(self, lm: LanguageModel, recipe: TeachingRecipe, seed: int):
        self.lm, self.recipe, self.seed = lm, recipe, seed
        inner = lm.tokenizer.backend_tokenizer
        self.count = lru_cache(maxsize=200_000)(lambda text: len(inner.encode(text).ids))
        self.encode: Callable[[str], list[int]] = lambda text: inner.encode(text).ids
        others = [paragraphs(padding(Chronicle(f"reference {seed} {i}", "train"), 2000, self.count))
                  for i in range(REFERENCES)]
        self.nouns, self.names = (TfIdf(others, counts) for counts in (noun_counts, name_counts))

    def long(self, number: int, length: int, kind: str, look_ups: bool = True) -> Document:
        """A document of this number and so many tokens, or fewer where no look-ups fill it up."""
        world = Chronicle(f"extension {self.seed} {number}", "train")
        room = int(length * world.random.uniform(*TEXT_SHARE))
        lines = padding(world, room, self.count)
        text = paragraphs(lines)
        samples = [one for one in (rex(world, text, self.names),) if one] if kind == "rex" else (
            cwe(world, text, self.nouns) if kind == "cwe" else [])
        told = [world.lines[line] for line in lines if line in world.lines] if look_ups else []
        world.random.shuffle(told)
        samples += [Sample("question", world.ask(fact), fact.answer) for fact in told]
        before, after = world.wording(FRAMES["one"])
        ids: list[int] = []
        weights: list[float] = []
        for i, sample in enumerate(samples):
            asked = sample.prompt if i else before + text + after.format(q=sample.prompt)
            self._add(ids, weights, asked, sample.answer)
            if len(ids) >= length:
                break
        alone = self.encode(self.lm.user_turn()[0] + before + text)[:length]
        if not samples:
            return Document("text", alone, [self.recipe.prompt_weight] * len(alone), alone)
        return Document(kind, ids[:length], weights[:length], alone)

    def short(self) -> Iterator[Document]:
        """Rows like the last of the training, but from another seed, without end."""
        stream = Stream(self.recipe.changed({"seed": 10_000 + self.seed}), self.lm.tokenizer)
        while True:
            for step in range(self.recipe.steps - 1, 0, -1):
                for ids, weights in zip(*stream.batch(step), strict=True):
                    kept = int((weights > 0).sum())
                    yield Document("short", ids[:kept].tolist(), weights[:kept].tolist())

    def mixture(self, tokens: int, shortest: int, longest: int, share: float, synthetic: float,
                look_ups: bool = True) -> list[Document]:
        """Documents of so many tokens in all, in a random order."""
        draw, found, held = random.Random(f"mixture {self.seed}"), [], 0
        while held < share * tokens:
            length = round(shortest * (longest / shortest) ** draw.random())
            kind = draw.choice(("cwe", "rex")) if draw.random() < synthetic else "questions"
            found.append(self.long(len(found), length, kind, look_ups))
            held += len(found[-1].ids)
        for document in self.short():
            if held >= tokens:
                break
            found.append(document)
            held += len(document.ids)
        draw.shuffle(found)
        return found

    def _add(self, ids: list[int], weights: list[float], asked: str, answer: str) -> None:
        """Append a turn of user and assistant."""
        start, middle = self.lm.user_turn()
        prompt = self.encode(start + asked + middle)
        said = [*self.encode(answer), self.lm.end_of_turn]
        ids += prompt + said
        weights += [self.recipe.prompt_weight] * len(prompt) + [1.0] * len(said)


@VARIANTS.register("extended")
class Extended(AttentionVariant, RopeExtension):
    """Rotary positions that reach further, as Olmo 3's do."""

    kind: Literal["extended"] = "extended"
    label = "extended positions"
    fine_tune_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of `fine_tune` after it, for teaching models only; 0: no training."""

    @contextmanager
    def attached(self, lm: LanguageModel) -> Iterator[AttachedModel]:
        config, inner = lm.model.config, lm.model.base_model
        before = config.rope_parameters, config.max_position_embeddings, inner.rotary_emb
        weights = [weight.detach().clone() for weight in lm.model.parameters()
                   if self.fine_tune_steps]
        try:
            extend(lm.model, self)
            if self.fine_tune_steps:
                self._fine_tune(lm)
            yield AttachedModel(lm)
        finally:
            config.rope_parameters, config.max_position_embeddings, inner.rotary_emb = before
            with torch.no_grad():
                for weight, old in zip(lm.model.parameters(), weights, strict=False):
                    weight.copy_(old)

    def _fine_tune(self, lm: LanguageModel) -> None:
        """Train as `rmutils.book.chapters.olmo3_recipe.experiment.extension` does."""
        if lm.name not in RECIPES:
            raise UserError(f"{lm.name} is no teaching model, so it has no fine-tune. "
                            f"Models: {', '.join(RECIPES)}")
        recipe = RECIPES[lm.name]
        config = ExtensionConfig(factor=self.factor, steps=self.fine_tune_steps)
        packed = instances(lm, recipe, config)
        with torch.enable_grad(), progress_bar(f"{lm.name}, fine-tune", config.steps,
                                               unit="steps") as advance:
            for _ in fine_tune(lm, packed, window_wanted(recipe, self.factor), config.rate):
                advance(1)


NONE = "no extension"
METHODS: dict[str, dict | None] = {
    "YaRN, full layers": {},
    "YaRN, all layers": {"layers": "all"},
    "interpolation": {"method": "interpolation"},
    "NTK-aware": {"method": "ntk"},
    "larger base": {"method": "base", "theta": 8e6},
    NONE: None,
}
"""Changes that each makes in `RopeExtension`; all but the second on full layers. The new base is
that of the Olmo 3 recipe, 8 x 10^6; the old one is the same, too, 5 x 10^5."""


class ExtensionConfig(Config):
    """A comparison of methods. All values but the factor and `long` are ours."""

    methods: Annotated[tuple[str, ...], Field(min_length=1)] = tuple(METHODS)
    """Keys of `METHODS`."""
    factor: Annotated[float, Field(ge=1)] = 8.0
    """Window wanted over window trained. Olmo 3: 8,192 to 65,536."""
    steps: Annotated[int, Field(ge=0)] = 48
    """One instance each, as long as the window wanted."""
    long: Annotated[float, Field(ge=0, le=1)] = 0.34
    """Share of the tokens that lie in documents longer than the window trained. Olmo 3: 34 %
    long, 66 % short."""
    synthetic: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the long documents with questions of CWE or REX."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak rate of AdamW; up over the first tenth of the steps, then down to 0 in a line."""
    checkpoints: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.125, 0.25, 0.5)
    """Shares of the steps after which the model is asked, too, besides before and after."""
    studied: tuple[str, ...] = ("YaRN, full layers", NONE)
    """Methods for which it is asked at the checkpoints: the token budget."""
    seed: int = 0
    """Seed of the documents and their order."""
    reach: ReachConfig = ReachConfig()

    @field_validator("methods", "studied")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in METHODS]:
            raise ValueError(f"no method is called {', '.join(unknown)}. Methods: "
                             f"{', '.join(METHODS)}")
        return names

    def asked_after(self, method: str) -> list[int]:
        """Steps after which a method is asked, in their order."""
        between = self.checkpoints if method in self.studied else ()
        return sorted({0, self.steps, *(round(share * self.steps) for share in between)})

    def rate(self, step: int) -> float:
        warm = max(self.steps // 10, 1)
        return self.learning_rate * min((step + 1) / warm, 1, (self.steps - step) / (
            self.steps - warm + 1))


def extended(lm: LanguageModel, method: str, factor: float,
             recipe: TeachingRecipe) -> LanguageModel:
    """A model with its positions extended by a method, in place."""
    if (changes := METHODS[method]) is not None:
        extend(lm.model, RopeExtension(factor=factor, trained=trained_window(recipe), **changes))
    return lm


def trained_window(recipe: TeachingRecipe) -> int:
    """Tokens of the longest rows that a teaching model was trained with."""
    return max(length for _, length in recipe.curriculum)


def window_wanted(recipe: TeachingRecipe, factor: float) -> int:
    """Tokens that an extension by this factor is to reach."""
    return round(trained_window(recipe) * factor)


def instances(lm: LanguageModel, recipe: TeachingRecipe, config: ExtensionConfig, *,
              look_ups: bool = True,
              pack: Callable[[Sequence[int], int], Packing] = best_fit) -> list[list[Document]]:
    """The documents of each step, the same for all methods."""
    trained, capacity = trained_window(recipe), window_wanted(recipe, config.factor)
    documents = Texts(lm, recipe, config.seed).mixture(
        config.steps * capacity, trained, capacity, config.long, config.synthetic, look_ups)
    packing = pack([len(document.ids) for document in documents], capacity)
    packed: list[list[Document]] = [[] for _ in range(packing.instances)]
    for document, start, length, instance in zip(
            packing.document, packing.start, packing.length, packing.instance, strict=True):
        packed[instance].append(documents[document].piece(start, length))
    # There may be an instance more than steps; what is left out is the emptiest.
    packed.sort(key=lambda held: -sum(len(document.ids) for document in held))
    packed = packed[:config.steps]
    random.Random(f"instances {config.seed}").shuffle(packed)
    return packed


def fine_tune(lm: LanguageModel, packed: list[list[Document]], length: int,
              rate: Callable[[int], float]) -> Iterator[float]:
    """Train a model in place, an instance of packed documents for each step."""
    model = lm.model
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0)
    for step, documents in enumerate(packed):
        inputs = packed_inputs(model, [[document.ids for document in documents]], length=length,
                               pad_id=lm.tokenizer.pad_token_id)
        ids, labels = inputs["input_ids"], inputs.pop("labels")
        weights = weights_of(documents, labels).to(ids.device)
        with using(model, WINDOW_BLOCKS):
            logits = model(**inputs, use_cache=False).logits
        loss, answers, _ = losses(logits[:, :-1], ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad()
        yield answers


def weights_of(documents: list[Document], labels: Tensor) -> Tensor:
    """Weights in the loss like `labels`, (1, length); 0 where there is no label."""
    weights = torch.zeros(labels.shape)
    given = [weight for document in documents for weight in document.weights]
    weights[0, :len(given)] = torch.tensor(given)
    return weights.masked_fill(labels.cpu() == NO_LABEL, 0)
