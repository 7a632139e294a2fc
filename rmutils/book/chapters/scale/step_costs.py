"""What steps of the method cost in accelerator seconds, and where a growing text hits a limit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from rmutils.book.chapters.scale import work
from rmutils.book.chapters.scale.work import Assumptions, Machine, Shape
from rmutils.book.findings import Measured, declare
from rmutils.core.journal import one_thread
from rmutils.heads import DetectConfig
from rmutils.heads.answering import BATCH_TOKENS
from rmutils.models import LanguageModel
from rmutils.stats import POSITIVE, Interval, draws, interval_of
from rmutils.training.recipes import RECIPES


@dataclass(frozen=True)
class Rates:
    """The rates of an accelerator, by assumption."""

    machine: Machine
    assumed: Assumptions

    def computing(self, flops: float) -> float:
        """Seconds of so many operations."""
        return flops / (self.machine.flops * self.assumed.compute)

    def moving(self, size: float) -> float:
        """Seconds to read so many bytes from memory."""
        return size / (self.machine.bandwidth * self.assumed.bandwidth)

    def sending(self, size: float) -> float:
        """Seconds to send so many bytes to a neighbour."""
        return size / (self.machine.link * self.assumed.link)


def reading(shape: Shape, tokens: int, rates: Rates, share: int = 1) -> float:
    """Seconds to read a text (prefill), which work bounds; accelerators share each layer."""
    return (rates.computing(work.forward(shape, tokens, logits=1)) / share
            + rates.sending(work.tensor_parallel(shape, tokens, share)))


def writing(shape: Shape, cached: int, at_once: int, rates: Rates, share: int = 1) -> float:
    """Seconds per token of all texts together."""
    moved = work.weights(shape) + at_once * work.cache(shape, cached)
    flops = at_once * work.forward(shape, 1, cached)
    seconds = max(rates.moving(moved), rates.computing(flops)) / share
    return (seconds + rates.sending(work.tensor_parallel(shape, at_once, share))) / at_once


def fitting(shape: Shape, tokens: int, rates: Rates, share: int = 1) -> int:
    """Texts whose keys and values fit beside the weights, at least one."""
    room = share * rates.assumed.reserve * rates.machine.memory - work.weights(shape)
    return int(max(1, min(rates.assumed.together, room // work.cache(shape, tokens))))


HOUR = 3600.0
GROUPS = tuple(2**i for i in range(12))  # how many accelerators may share a model
FULL = 0.8
"""Share of their memory that weights or states may take, so that something is left for texts."""
TEXT = 4  # bytes of text per token, about, in English


@dataclass(frozen=True)
class Cost:
    """Cost of a step, or of several."""

    gpu_hours: float = 0.0  # of all accelerators together
    gpus: int = 0  # how many work side by side
    memory: float = 0.0  # bytes on each of them
    # `disk`, `scratch`: Bytes that are kept, and bytes besides while it goes on.
    disk: float = 0.0
    scratch: float = 0.0
    why: str = "reads what is stored"  # how it was derived

    @property
    def hours(self) -> float:
        """By the clock."""
        return self.gpu_hours / max(1, self.gpus)


def fetching(shape: Shape) -> Cost:
    """The weights in half precision, as they are published."""
    return Cost(disk=work.weights(shape), why="2 bytes for each weight")


def detecting(shape: Shape, lengths: list[int], answer: int, at_once: int, rates: Rates,
              share: int = 1) -> Cost:
    """Prefill of each case, then its answer."""
    seconds = sum(reading(shape, max(1, n), rates, share) for n in lengths)
    spent = sum(writing(shape, n + answer // 2, max(1, at_once // max(1, n)), rates, share) * answer
                for n in lengths)
    size = work.weights(shape) + work.cache(shape, max(at_once, *lengths) + answer)
    return Cost((seconds + spent) * share / HOUR, share, size / share, why=(
        f"{len(lengths)} cases: prefill of {sum(lengths):,} tokens ({seconds:.0f} s by their "
        f"work), {answer} tokens of answer each ({spent:.0f} s by the bytes of the weights)"))


def generating(shape: Shape, count: int, prompt: float, answer: float, rates: Rates,
               share: int = 1, engines: int = 1) -> Cost:
    """Answers to so many instructions, many at once, by so many engines side by side."""
    length = round(prompt + answer)
    at_once = fitting(shape, length, rates, share)
    seconds = count * reading(shape, max(1, round(prompt)), rates, share)
    spent = count * answer * writing(shape, round(prompt + answer / 2), at_once, rates, share)
    size = work.weights(shape) + at_once * work.cache(shape, length)
    exported = work.weights(shape)  # the masked model, for the engine
    return Cost(
        (seconds + spent) * share / HOUR, share * engines, size / share, TEXT * count * length,
        exported, f"{count:,} prompts of {prompt:,.0f} tokens ({seconds / HOUR:.1f} h), answers of "
        f"{answer:,.0f} tokens, {at_once} at once ({spent / HOUR:.1f} h)")


def training(shape: Shape, sharing: work.Sharing, gpus: int, *, pairs: int, tokens: int,
             epochs: int, sides: int, per_device: int, rates: Rates) -> Cost:
    """Training over pairs, and before it the reference model once where both sides count."""
    sequences = pairs * sides
    learned = epochs * sequences * work.training(shape, tokens)
    reference = sequences * work.forward(shape, tokens) if sides == 2 else 0.0
    hours = rates.computing(learned + reference) / HOUR
    held = per_device * sides * tokens
    size = (work.states(shape, sharing, gpus) + work.activations(shape, held)
            + work.logits(shape, held))
    checkpoint = 16 * shape.parameters  # of weights and states
    return Cost(hours, gpus, size, work.weights(shape), checkpoint, (
        f"{epochs} epochs over {sequences:,} sequences of {tokens:,} tokens: {learned:.2g} "
        f"operations with recomputed layers, {reference:.2g} of the reference model"))


def answering(shape: Shape, questions: int, prompt: int, answer: float, at_once: int | None,
              rates: Rates) -> Cost:
    """Answers to questions of one length; `at_once` None: as many as fit."""
    together = at_once or fitting(shape, round(prompt + answer), rates)
    seconds = questions * reading(shape, prompt, rates)
    spent = questions * answer * writing(shape, round(prompt + answer / 2), together, rates)
    size = work.weights(shape) + together * work.cache(shape, round(prompt + answer))
    return Cost((seconds + spent) / HOUR, 1, size, TEXT * questions * (prompt + answer), why=(
        f"{questions:,} prompts of {prompt:,} tokens ({seconds / HOUR:.1f} h), answers of "
        f"{answer:,.0f} tokens, {together} at once ({spent / HOUR:.1f} h)"))


def retmask(shape: Shape, cases: list[int], count: int, prompt: float, answer: float,
            rates: Rates) -> dict[str, Cost]:
    """The method from detection to training, by step, by the paper's recipe."""
    room = rates.assumed.reserve * rates.machine.memory
    share = next(g for g in GROUPS if work.weights(shape) < FULL * g * room)
    many = next(g for g in GROUPS if work.states(shape, "fsdp", g) < FULL * room)
    recipe, detection = RECIPES["paper"], DetectConfig()
    side = generating(shape, count, prompt, answer, rates, share)
    return {
        "detection": detecting(shape, cases, detection.max_new_tokens, BATCH_TOKENS["cuda"], rates,
                               share),
        "generation": together([side, side]),
        "training": training(
            shape, "fsdp", many, pairs=count, epochs=recipe.epochs, sides=2, per_device=1,
            tokens=round(min(recipe.max_length, prompt + answer)), rates=rates)}


def together(costs: list[Cost]) -> Cost:
    """The sum; of memory, GPUs and scratch the most."""
    return Cost(sum(c.gpu_hours for c in costs), max((c.gpus for c in costs), default=0),
                max((c.memory for c in costs), default=0.0), sum(c.disk for c in costs),
                max((c.scratch for c in costs), default=0.0),
                "the sum of its jobs; memory, GPUs and scratch of the largest")


LONGEST = 1 << 30  # tokens beyond which nobody asks
PREFILL, TOKEN = 60.0, 0.1
"""Seconds that a reader of an answer waits for its first token, and for each further one, before we
call it too slow. Both are ours."""


def reaches(need: Callable[[int], float], limit: float) -> int | None:
    """The shortest text above the limit, by bisection; 0 if an empty one is; None if none is."""
    if need(0) > limit:
        return 0
    if need(LONGEST) <= limit:
        return None
    low, high = 0, LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if need(middle) > limit else (middle, high)
    return high


def limits(shape: Shape, gpus: int, rates: Rates) -> pd.DataFrame:
    """Return what runs out on so many accelerators, and from which length of one text on."""
    room = gpus * rates.assumed.reserve * rates.machine.memory
    held = work.weights(shape)
    needs: dict[str, tuple[Callable[[int], float], float]] = {
        "weights": (lambda n: held, room),
        "keys and values": (lambda n: held + work.cache(shape, n), room),
        "attention of all tokens, stored": (
            lambda n: held + work.cache(shape, n) + work.stored_attention(shape, n, "all"),
            room),
        "attention of the last token, stored": (
            lambda n: held + work.cache(shape, n) + work.stored_attention(shape, n, "row"),
            room),
        f"{PREFILL:.0f} s until the first token": (
            lambda n: reading(shape, n, rates, gpus), PREFILL),
        f"{TOKEN:g} s for each further token": (
            lambda n: writing(shape, n, 1, rates, gpus), TOKEN),
        "DPO, one pair at a time": (
            lambda n: gpus * work.states(shape, "fsdp", gpus)
            + work.activations(shape, 2 * n) + work.logits(shape, 2 * n), room),
    }
    rows = [{"what": what, "tokens": reaches(need, limit)} for what, (need, limit) in needs.items()]
    table = pd.DataFrame(rows).astype({"tokens": float})
    return table.sort_values("tokens", kind="stable", na_position="last", ignore_index=True)


def equal_work(shape: Shape) -> int | None:
    """From which length on attention works more than all matrices together in reading a text."""
    return reaches(lambda n: work.attention(shape, n) - (
        work.forward(shape, n, logits=0) - work.attention(shape, n)), 0.0)


def shares(shape: Shape, tokens: int, gpus: list[int], rates: Rates) -> pd.DataFrame:
    """Time to send beside time to compute, for a text that is read by several accelerators."""
    rows = []
    for count in gpus:
        computing = reading(shape, tokens, rates) / count
        rows.append({
            "gpus": count,
            "tensor parallel": rates.sending(
                work.tensor_parallel(shape, tokens, count)) / computing,
            "context parallel": rates.sending(
                work.context_parallel(shape, tokens, count)) / computing})
    return pd.DataFrame(rows)


@torch.inference_mode()
def reading_times(lm: LanguageModel, lengths: Sequence[int], rounds: int) -> pd.DataFrame:
    """Processor seconds of one thread to read texts of random tokens, all lengths in each round."""
    draw, rows = np.random.default_rng(0), []
    count = lm.model.config.vocab_size
    with one_thread():
        for number in range(rounds + 1):
            for length in lengths:
                ids = torch.from_numpy(draw.integers(0, count, (1, length)))
                started = time.process_time()
                kept = lm.model(ids, use_cache=True, logits_to_keep=1).past_key_values
                seconds = time.process_time() - started
                size = sum(t.nbytes for layer in kept.layers for t in (layer.keys, layer.values))
                rows.append({"round": number, "length": length, "seconds": seconds, "cache": size})
    table = pd.DataFrame(rows)
    return table[table["round"] > 0].reset_index(drop=True)


def prediction_ratio(times: pd.DataFrame,
                     work: dict[int, float]) -> tuple[float, np.ndarray, float]:
    """Predict the time to read the longest text from the shorter ones, and compare."""
    table = times.pivot(index="round", columns="length", values="seconds")
    ratios, rates = _ratio(draws(table.to_numpy()), [*table.columns], work)
    value, *ends = interval_of(ratios, bounds=POSITIVE, centred=True)
    return float(value), np.array(ends), float(rates[0])


def _ratio(means: np.ndarray, lengths: Sequence[int],
           work: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
    """(samples, lengths) -> measured over predicted, and operations per second."""
    *shorter, longest = sorted(range(len(lengths)), key=lambda i: lengths[i])
    known = np.array([work[lengths[i]] for i in shorter])
    # Relative errors count alike: short texts are not to be lost beside long ones.
    weights = 1 / means[:, shorter]
    rows = []
    for weight in weights:
        design = np.stack([np.ones_like(known), known], axis=1) * weight[:, None]
        rows.append(np.linalg.lstsq(design / design.max(0), np.ones(len(known)), rcond=None)[0]
                    / design.max(0))
    fixed, each = np.array(rows).T
    return means[:, longest] / (fixed + each * work[lengths[longest]]), 1 / each


@declare("reading-time-ratio", unit="times", place="fig-scale-clock", otherwise=(
    "The longest text takes {value} times {ci} as long as the work of {what} predicts."))
def reading_time_ratio(times: pd.DataFrame, work: dict[int, float], what: str) -> Measured:
    """Seconds to read the longest text over those that the shorter ones predict by their work."""
    ratio, (low, high), _ = prediction_ratio(times, work)
    return Measured(Interval(ratio, low, high), [], times["round"].nunique())
