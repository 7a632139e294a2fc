"""Seconds of accelerators that read and write texts, bound by work or memory, and what single steps
of the method cost: detection, generation, judging, training, evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmutils.experiments.scale import work
from rmutils.experiments.scale.work import Assumptions, Machine, Shape
from rmutils.heads import DetectConfig
from rmutils.heads.answering import BATCH_TOKENS
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
    """Seconds to read a text (prefill), which work bounds; so many accelerators share each layer,
    and send in turn."""
    return (rates.computing(work.forward(shape, tokens, logits=1)) / share
            + rates.sending(work.tensor_parallel(shape, tokens, share)))


def writing(shape: Shape, cached: int, at_once: int, rates: Rates, share: int = 1) -> float:
    """Seconds per token of all texts together.

    Each step reads all weights once, and the keys and values of each text; it computes a token of
    each. The slower of both counts.
    """
    moved = work.weights(shape) + at_once * work.cache(shape, cached)
    flops = at_once * work.forward(shape, 1, cached)
    seconds = max(rates.moving(moved), rates.computing(flops)) / share
    return (seconds + rates.sending(work.tensor_parallel(shape, at_once, share))) / at_once


def fitting(shape: Shape, tokens: int, rates: Rates, share: int = 1) -> int:
    """Texts of so many tokens whose keys and values fit beside the weights, as far as they are
    wanted at once; at least one."""
    room = share * rates.assumed.reserve * rates.machine.memory - work.weights(shape)
    return int(max(1, min(rates.assumed.together, room // work.cache(shape, tokens))))


HOUR = 3600.0
GROUPS = tuple(2**i for i in range(12))
"""How many accelerators may share a model."""
FULL = 0.8
"""Share of their memory that weights or states may take, so that something is left for texts."""
TEXT = 4
"""Bytes of text per token, about, in English."""


@dataclass(frozen=True)
class Cost:
    """Cost of a step, or of several.

    Attributes
    ----------
    gpu_hours : float
        Of all accelerators together.
    gpus : int
        How many work side by side.
    memory : float
        Bytes on each of them.
    disk, scratch : float
        Bytes that are kept, and bytes besides while it goes on.
    why : str
        How it was derived.
    """

    gpu_hours: float = 0.0
    gpus: int = 0
    memory: float = 0.0
    disk: float = 0.0
    scratch: float = 0.0
    why: str = "reads what is stored"

    @property
    def hours(self) -> float:
        """By the clock."""
        return self.gpu_hours / max(1, self.gpus)


def fetching(shape: Shape) -> Cost:
    """The weights in half precision, as they are published."""
    return Cost(disk=work.weights(shape), why="2 bytes for each weight")


def detecting(shape: Shape, lengths: list[int], answer: int, at_once: int, rates: Rates,
              share: int = 1) -> Cost:
    """Prefill of each case, then its answer.

    What cases share is read once by this project, which is left out here.

    Parameters
    ----------
    at_once : int
        Prompt tokens that are answered together.
    share : int
        Accelerators that share the model.
    """
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
    """Epochs over pairs, and before them the reference model once over all where both sides count.

    Parameters
    ----------
    tokens : int
        Of a sequence of prompt and answer, after it was cut.
    sides : int
        2 for DPO, 1 for SFT.
    per_device : int
        Pairs in a GPU's memory at once.
    """
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
    """The method from detection to training, by step, by the paper's recipe; both sides generated.

    As many accelerators share the model as hold it with room for texts, and as hold the states of
    its training under FSDP.

    Parameters
    ----------
    cases : list of int
        Prompt tokens of each case of the detection.
    count : int
        Instructions.
    prompt, answer : float
        Their tokens, and those of a response.
    """
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
