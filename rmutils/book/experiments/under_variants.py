"""A model measured under a variant of its attention: needles, documents, and short plain text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch.nn.functional import cross_entropy

from rmutils.attention.variants import PLAIN, AttachedModel, Plain, Variant
from rmutils.book.experiments import variant_questions
from rmutils.book.experiments.sweep_questions import KNOWN_TOKENS
from rmutils.core.config import Config, added, command_line
from rmutils.core.errors import NotStored
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.core.validation import FrozenHeads
from rmutils.heads.detection import DetectConfig, depends_on, even_depths, inputs_of
from rmutils.heads.masking import Ablation, mask_heads
from rmutils.models import LanguageModel
from rmutils.models.language_model import passages, without_thoughts
from rmutils.models.loading import ModelRef
from rmutils.stats import ANY, DIFFERENCE, POSITIVE, SHARE, compare, interval

Count = Annotated[int, Field(ge=1)]


class TextsConfig(Config):
    """Short plain text that the model reads: stretches of its corpus's haystack."""

    count: Count = 16
    """How many."""
    tokens: Count = 128
    """Tokens of each; the first 16 are not asked."""


class VariantConfig(Config):
    """A variant, and what is measured under it; None: that is not measured."""

    variant: Variant = Plain()
    """The attention."""
    masked: FrozenHeads = ()
    """Heads (layer, head) that are switched off meanwhile."""
    needles: DetectConfig | None = DetectConfig(lengths=(256,), depths=even_depths(5), needles=8,
                                                max_new_tokens=24)
    """Needles in a haystack."""
    documents: variant_questions.DocumentsConfig | None = variant_questions.DocumentsConfig()
    """Questions to documents."""
    texts: TextsConfig | None = TextsConfig()
    """Plain text."""
    how: Ablation = added("zero")
    """What masked heads do: nothing, as in the paper; what they do on average; look everywhere
    alike."""


def measure(lm: LanguageModel, config: VariantConfig, *, journal: Path | None = None) -> Tables:
    """Ask a model under a variant."""
    grids = [config.needles] if config.needles else []
    kept, found = Journal(journal, depends_on(lm, config, *grids)), {}
    with config.variant.attached(lm) as model, mask_heads(lm, config.masked, config.how):
        asked = {name: make(lm, wanted) for name, make, wanted in (
            ("needles", variant_questions.needle_questions, config.needles),
            ("documents", variant_questions.document_questions, config.documents)) if wanted}
        total = sum(len(part.questions) for part in asked.values())
        total += config.texts.count if config.texts else 0
        with progress_bar(f"{lm.name}, {config.variant.kind}", total, unit="answers",
                          done=len(kept)) as advance:
            for name, part in asked.items():
                found[name] = answers(model, name, part, kept, advance)
            if config.texts:
                found["texts"] = _reading(model, config.texts, kept, advance)
    return found


def answers(model: AttachedModel, name: str, part: variant_questions.Questions, kept: Journal,
            advance: Callable[[float], object]) -> pd.DataFrame:
    """Have the questions answered that are not yet, and judge all answers."""
    def key(i: int) -> str:
        return f"{name} {i}"

    todo = [i for i in range(len(part.questions)) if key(i) not in kept]

    def done(index: int, tokens: list[int], share: float) -> None:
        text = model.lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        kept[key(todo[index])] = text, share
        advance(1)

    model.answer([part.questions[i].prompt for i in todo], max_new_tokens=part.max_new_tokens,
                 done=done)
    rows = []
    for i, question in enumerate(part.questions):
        response, share = kept[key(i)]
        rows.append({**question.row, **question.judge(without_thoughts(response)),
                     "response": response, "kept": share})
    return pd.DataFrame(rows)


def _reading(model: AttachedModel, config: TextsConfig, kept: Journal,
             advance: Callable[[float], object]) -> pd.DataFrame:
    """How improbable the tokens of short texts are to the model."""
    texts, turn = passages(model.lm, config.count, config.tokens)
    known, rows = turn + KNOWN_TOKENS, []
    for i, text in enumerate(texts):
        if (key := f"texts {i}") not in kept:
            logits, share = model.next_logits(text, known)
            kept[key] = cross_entropy(logits, torch.tensor(text[known:])).item(), share
            advance(1)
        nats, share = kept[key]
        rows.append({"question": i, "nats": nats, "kept": share})
    return pd.DataFrame(rows)


VARIANT = Stage[Tables]("variant", version=2)


def measure_stored(model: LanguageModel | str, config: VariantConfig = VariantConfig(), *,
                   compute: Compute = "auto") -> tuple[Tables, Artifact]:
    """`measure`, but a result that is stored already is read instead; a stopped run goes on."""
    ref = ModelRef(model)
    return VARIANT.obtain(
        config, inputs_of(ref.identity, config.needles or DetectConfig(), ref.corpus),
        lambda journal: measure(ref.load(), config, journal=journal), compute=compute,
        command=variant_command(ref.name, config), model=ref.name, label=config.variant.kind)


def variant_command(name: str, config: VariantConfig) -> str:
    """Return the command line that makes this result."""
    return command_line("variants", "answers", name, config=config)


@dataclass(frozen=True)
class Compared:
    """Several variants of one model, measured alike."""

    tables: Tables  # as from `measure`, with a column `variant`: its name in the comparison
    artifacts: tuple[Artifact, ...]
    # A command line for each variant that is not stored. They are left out of the tables.
    missing: tuple[str, ...]


def compare_stored(model: LanguageModel | str, variants: Mapping[str, Variant],
                   config: VariantConfig = VariantConfig(), *,
                   compute: Compute = "auto") -> Compared:
    """`measure_stored` for several variants by name; what is missing does not stop the others."""
    parts: dict[str, list[pd.DataFrame]] = {}
    artifacts, missing = [], []
    for name, variant in variants.items():
        one = config.model_copy(update={"variant": variant})
        try:
            tables, artifact = measure_stored(model, one, compute=compute)
        except NotStored:
            missing.append(variant_command(ModelRef(model).name, one))
            continue
        artifacts.append(artifact)
        for table, frame in tables.items():
            parts.setdefault(table, []).append(frame.assign(variant=name))
    return Compared({table: pd.concat(frames, ignore_index=True)
                     for table, frames in parts.items()}, tuple(artifacts), tuple(missing))


UNBOUNDED = {"nats", "distance", "prefill_seconds", "step_seconds"}
"""Columns of positive numbers. All others that `levels` and `changes` take are shares, 0 to 1."""


def levels(table: pd.DataFrame, value: str, by: Sequence[str] = ()) -> pd.DataFrame:
    """Mean of a column under each variant."""
    rows, bounds = [], POSITIVE if value in UNBOUNDED else SHARE
    for keys, part in table.groupby(["variant", *by], sort=False):
        rows.append((*keys, *interval(part[value], part["question"], bounds=bounds), len(part)))
    return pd.DataFrame(rows, columns=["variant", *by, "value", "low", "high", "samples"])


def changes(table: pd.DataFrame, value: str, base: str = PLAIN) -> pd.DataFrame:
    """Each variant less the plain model, on the same samples."""
    parts = [name for name in ("length", "question", "place") if name in table]
    samples = pd.DataFrame({
        "strategy": table["variant"], "seed": 0, "score": table[value],
        "sample": table[parts].astype(str).agg(" ".join, axis=1), "cluster": table["question"]})
    return compare(samples, base, bounds=ANY if value in UNBOUNDED else DIFFERENCE).rename(
        columns={"strategy": "variant"})


def perplexities(texts: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Perplexity under each variant: the exponential of the mean of `nats` over texts."""
    found = levels(texts, "nats")
    found[["value", "low", "high"]] = np.exp(found[["value", "low", "high"]])
    against = changes(texts, "nats", base).set_index("variant")[["effect", "low", "high"]]
    against.columns = ["change", "change_low", "change_high"]
    return found.join(np.expm1(against), on="variant").fillna(dict.fromkeys(against, 0.0))
