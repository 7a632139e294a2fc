"""General abilities of a model, and how far it is from its base (section 5.1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from rmutils.core.config import Config, added, command_line, digest
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, one_thread, progress_bar, side_by_side
from rmutils.core.paths import CORPORA
from rmutils.core.results import Artifact, Compute, Stage, find
from rmutils.core.validation import Count, FrozenHeads
from rmutils.corpora.niah import load_haystacks
from rmutils.evaluation.abilities.ability_tasks import TASKS, Task, tasks_of
from rmutils.evaluation.abilities.sandbox import missing
from rmutils.evaluation.abilities.short_tasks import Item
from rmutils.evaluation.answers import log_probabilities
from rmutils.heads.masking import mask_heads
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.engine.generation import generate, next_token_logits
from rmutils.models.language_model import passages
from rmutils.models.loading import ModelRef, base_of, corpus_of
from rmutils.models.trained import is_training, recorded_base
from rmutils.stats import draws, interval_of

Done = Callable[[float], object]
Part = Callable[[Journal, Done], None]
"""Puts what is not there yet into the journal, and tells how much it has done."""
DRIFT = ["passage", "tokens", "base_nats", "nats", "from_base", "from_trained"]


class GeneralConfig(Config):
    """How much is asked: sizes are ours (the paper's benchmarks have 80 to 12,000 questions)."""

    tasks: tuple[str, ...] = ()
    """Which of the model's tasks; none: our own."""
    samples: Count = 200
    """Questions of each task; all there are, where there are fewer."""
    seed: int = 0
    """Draws the questions."""
    passages: Count = 24
    """Stretches of held-out text for the drift from the base model."""
    passage_tokens: Annotated[int, Field(ge=2)] = 256
    """Tokens of each."""
    masked: FrozenHeads = added(())
    """Heads that are switched off, such as 18-6,18-7. None: none are."""

    def outside(self) -> dict[str, str]:
        """Return the code outside this project that registered tasks."""
        return TASKS.origins(name for name in TASKS if name.partition("/")[2] in self.tasks)

    def items(self, corpus: str) -> dict[str, tuple[Task, list[Item]]]:
        """The questions: name of a task -> the task and its items."""
        return {name: (task, task.make(self.samples, self.seed))
                for name, task in tasks_of(corpus, self.tasks).items()}

    def skipped(self, corpus: str) -> list[str]:
        """Return the tasks that are skipped on this machine, which has no sandbox for them."""
        return [name for name, task in tasks_of(corpus, self.tasks).items()
                if task.sandboxed and missing()]

    def possible(self, corpus: str) -> GeneralConfig:
        """Return the same without the tasks that are skipped; warns of them."""
        if not (skipped := self.skipped(corpus)):
            return self
        told = f"{', '.join(skipped)}: skipped, because {missing()}."
        left = tuple(name for name in tasks_of(corpus, self.tasks) if name not in skipped)
        if not left:
            raise UserError(told)
        warnings.warn(told, stacklevel=3)
        return self.model_copy(update={"tasks": left})

    def questions(self, corpus: str, base: object | None) -> int:
        """How many there are, with the passages if a base is given."""
        return sum(len(items) for _, items in self.items(corpus).values()) + (
            self.passages if base else 0)


@dataclass(frozen=True)
class General:
    # `task`, `kind`, `sample` (number within the task), `score` (0 to 100), `response`
    samples: pd.DataFrame
    # for each passage of held-out text, `passage_drift`; empty without a base model
    drift: pd.DataFrame


def evaluate_general(lm: LanguageModel, config: GeneralConfig = GeneralConfig(), *,
                     base: LanguageModel | None = None, journal: Path | None = None) -> General:
    """Ask a model all questions, and compare its next words with those of its base."""
    config = config.possible(lm.corpus)
    if not lm.chat:
        raise UserError(f"{lm.name} has no chat template, so there is no telling how its prompts "
                        f"are written. Take an instruction-tuned model.")
    asked = config.items(lm.corpus)
    kept = Journal(journal, _depends(lm.state, config, lm.corpus, base and base.state))
    parts = parts_of(lm, config, base)
    with mask_heads(lm, config.masked), one_thread(), progress_bar(
            f"abilities of {lm.name}", config.questions(lm.corpus, base), unit="questions",
            done=len(kept)) as done:
        for part in parts:
            part(kept, done)
    rows = [(name, item.kind, i, item.score(kept[f"{name} {i}"]), kept[f"{name} {i}"])
            for name, (_, items) in asked.items() for i, item in enumerate(items)]
    moved = [{"passage": i, **kept[f"passage {i}"]} for i in range(len(parts) - len(asked))]
    return General(pd.DataFrame(rows, columns=["task", "kind", "sample", "score", "response"]),
                   pd.DataFrame(moved, columns=DRIFT))


def parts_of(lm: LanguageModel, config: GeneralConfig, base: LanguageModel | None) -> list[Part]:
    """Return the parts that can be asked alone with the same answers: tasks, passages."""
    texts, turn = passages(lm, config.passages if base else 0, config.passage_tokens)
    return [*(partial(_ask, lm, name, task, items)
              for name, (task, items) in config.items(lm.corpus).items()),
            *(partial(_read, lm, base, turn + 1, i, text) for i, text in enumerate(texts))]


def _ask(lm: LanguageModel, name: str, task: Task, items: list[Item], kept: Journal,
         done: Done) -> None:
    def keep(key: str, answer: str) -> None:
        kept[key] = answer
        done(1)

    todo = {f"{name} {i}": item for i, item in enumerate(items) if f"{name} {i}" not in kept}
    answer = _choose if items[0].options else _write
    answer(lm, task, todo, keep)


def _read(lm: LanguageModel, base: LanguageModel, known: int, i: int, text: list[int],
          kept: Journal, done: Done) -> None:
    if f"passage {i}" not in kept:
        kept[f"passage {i}"] = passage_drift(lm, base, text, known)
        done(1)


def _write(lm: LanguageModel, task: Task, items: dict[str, Item], keep) -> None:
    """Greedy answers."""
    keys = list(items)

    def done(index: int, tokens: Sequence[int]) -> None:
        keep(keys[index], lm.tokenizer.decode(tokens, skip_special_tokens=True).strip())

    generate(lm, [lm.render(item.prompt) for item in items.values()],
             max_new_tokens=task.max_new_tokens, done=done)


def _choose(lm: LanguageModel, task: Task, items: dict[str, Item], keep) -> None:
    """The most probable option of each question, per character."""
    for key, item in items.items():
        odds = _odds(lm, lm.render(item.prompt), item.options)
        per_character = {option: value / len(option)
                         for option, value in zip(item.options, odds, strict=True)}
        keep(key, max(per_character, key=per_character.get))


def _odds(lm: LanguageModel, prompt: list[int], options: Sequence[str]) -> list[float]:
    """Log-probability of each option after a prompt; of single tokens all at once."""
    ids = [lm.encode(option) for option in options]
    if all(len(one) == 1 for one in ids):
        row = next_token_logits(lm, prompt)[-1].log_softmax(-1)
        return [row[token].item() for token, in ids]
    return log_probabilities(lm, [prompt] * len(ids), ids)


def ask_side_by_side(model: str, config: GeneralConfig, base: str | None, journal: Path,
                     workers: int) -> None:
    """Fill the journal of `evaluate_general`; each process takes every n-th task and passage."""
    corpus = corpus_of(model, base)
    of = _depends(ModelRef(model, base).identity, config.possible(corpus), corpus,
                  base and identify(base))
    side_by_side(partial(_work, model, config, base), journal, workers,
                 f"abilities of {model}", config.questions(corpus, base), of=of, unit="questions")


def _depends(model: str, config: GeneralConfig, corpus: str, base: str | None) -> list[Any]:
    """Return what the answers depend on, for their journal."""
    return [model, config.identity(), config.outside(), _digest(config, corpus), base]


def _work(model: str, config: GeneralConfig, base: str | None, kept: Journal, share: slice,
          done: Callable[[float], object]) -> None:
    lm = load_model(model, base=base)
    with mask_heads(lm, config.masked):
        for part in parts_of(lm, config, load_model(base) if base else None)[share]:
            part(kept, done)


GENERAL = Stage.of_tables("general", 1, General, lambda result: {
    "questions": len(result.samples), "passages": len(result.drift)})


def evaluate_general_stored(
    model: str, config: GeneralConfig = GeneralConfig(), *, base: str | None = None,
    compute: Compute = "auto", command: str | None = None, workers: int = 1,
) -> tuple[General, Artifact]:
    """`evaluate_general` of a model by its name, but a stored result is read instead."""
    if base is None and (is_training(model) or recorded_base(Path(model))):
        base = base_of(model)
    ref = ModelRef(model, base)

    def make(journal: Path) -> General:
        if workers > 1:
            ask_side_by_side(model, config, base, journal, workers)
        return evaluate_general(ref.load(), config, base=load_model(base) if base else None,
                                journal=journal)

    def inputs_of(config: GeneralConfig) -> dict[str, str]:
        inputs = {"model": ref.identity, "questions": _digest(config, ref.corpus)}
        if base:
            inputs |= {"base": identify(base), "texts": digest(
                [haystack.text for haystack in load_haystacks(CORPORA[ref.corpus] / "haystack")])}
        return inputs

    if config.skipped(ref.corpus) and (
            compute == "always" or find(GENERAL.key(config, inputs_of(config))) is None):
        config = config.possible(ref.corpus)
    named = ("--base", base) if base and not is_training(model) else ()
    return GENERAL.obtain(
        config, inputs_of(config), make, compute=compute, model=model,
        command=command or command_line("abilities", model, *named, config=config))


@cache
def _digest(config: GeneralConfig, corpus: str) -> str:
    """Return a hash of all questions with their right answers and options."""
    return digest([[name, item.prompt, item.right, item.options]
                   for name, (_, items) in config.items(corpus).items() for item in items])


FROM_BASE, FROM_TRAINED = "KL from the base model", "KL from the trained model"
PERPLEXITY_BEFORE, PERPLEXITY = "perplexity before", "perplexity after"
RATIO, LOSS = "perplexity after / before", "change of the loss"


def passage_drift(lm: LanguageModel, base: LanguageModel, text: Sequence[int],
                  known: int) -> dict[str, float]:
    """Sums over the tokens of a text from `known` on."""
    mine, theirs = (next_token_logits(model, text)[known - 1:-1].double().log_softmax(-1)
                    for model in (lm, base))
    if mine.shape != theirs.shape:
        raise UserError(f"{lm.name} has {mine.shape[1]} tokens and {base.name} {theirs.shape[1]}: "
                        f"the divergence needs models with one vocabulary.")
    said = torch.tensor(text[known:])[:, None]
    gap = theirs - mine
    return {"tokens": len(said), "base_nats": -theirs.gather(1, said).sum().item(),
            "nats": -mine.gather(1, said).sum().item(),
            "from_base": (theirs.exp() * gap).sum().item(),
            "from_trained": -(mine.exp() * gap).sum().item()}


def drift_table(passages: pd.DataFrame) -> pd.DataFrame:
    """Means per token over the rows of `passage_drift`, in nats, with 95 % intervals."""
    of_seeds = passages if "seed" in passages else passages.assign(seed=0)
    sums = np.stack([of_seeds.pivot(index="passage", columns="seed", values=name)
                     for name in _SUMS], axis=-1)
    drawn = draws(sums, seeds=True)
    per_token = dict(zip(_SUMS, (drawn / drawn[:, :1]).T, strict=True))
    rows = []
    for measure, of in _MEASURES.items():
        rows.append((measure, *interval_of(of(per_token))))
    return pd.DataFrame(rows, columns=["measure", "value", "low", "high"])


_SUMS = ("tokens", "base_nats", "nats", "from_base", "from_trained")
_MEASURES: dict[str, Callable[[dict[str, np.ndarray]], np.ndarray]] = {
    FROM_BASE: lambda mean: mean["from_base"], FROM_TRAINED: lambda mean: mean["from_trained"],
    PERPLEXITY_BEFORE: lambda mean: np.exp(mean["base_nats"]),
    PERPLEXITY: lambda mean: np.exp(mean["nats"]),
    RATIO: lambda mean: np.exp(mean["nats"] - mean["base_nats"]),
    LOSS: lambda mean: mean["nats"] - mean["base_nats"],
}
