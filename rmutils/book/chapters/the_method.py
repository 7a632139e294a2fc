"""RetMask on one pair: the loss step by step, figures, and how often masking changes an answer."""

import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import PreTrainedModel

from rmutils.book.experiments.planned_runs import MODELS, RETMASK, planned_runs, stored_runs
from rmutils.book.figures import style
from rmutils.book.findings import SHOWN, Measured, declare, scaled
from rmutils.core.errors import NotStored
from rmutils.corpora.niah import NiahCase
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel
from rmutils.pipeline.retmask import RetMaskRun
from rmutils.stats import ANY, SHARE, Bounds, Interval, interval


def log_probability(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> Tensor:
    """Return log pi(y | x) of one answer, in nats: a scalar that gradients flow through."""
    ids = torch.tensor([[*prompt, *answer]], device=model.device)
    odds: Tensor = model(input_ids=ids).logits[0, len(prompt) - 1:-1].float().log_softmax(-1)
    return odds.gather(1, ids[0, len(prompt):, None]).sum()


def train_on_one_pair(lm: LanguageModel, encoded: Mapping[str, list[list[int]]], *, steps: int,
                      learning_rate: float, beta: float) -> pd.DataFrame:
    """Take a few plain gradient steps of Equation 5 on the first pair, with a copy of the model."""
    prompt, chosen, rejected = (encoded[f"{name}_ids"][0] for name in (
        "prompt", "chosen", "rejected"))
    model = deepcopy(lm.model).requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    rows: list[dict[str, float]] = []
    with torch.enable_grad():
        for step in range(steps + 1):
            better, worse = (log_probability(model, prompt, y) for y in (chosen, rejected))
            if not rows:
                reference = better.item() - worse.item()
            margin = beta * (better - worse - reference)
            loss = -logsigmoid(margin)
            rows.append({"step": step, "chosen": better.item(), "rejected": worse.item(),
                         "margin": margin.item(), "loss": loss.item()})
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return pd.DataFrame(rows)


AROUND = 5  # tokens on either side of the needle
FAINTEST = 0.02
"""Fainter attention is not drawn: hairlines between hundreds of empty cells would shine through."""
GROUND = to_hex(colormaps[style.SEQUENTIAL](0.0))


def overview(shape: tuple[int, int], heads: Collection[Head], prompt: str, chosen: str,
             rejected: str) -> Figure:
    """Draw the four steps of RetMask with the heads of a real model and its two answers."""
    figure = Figure(figsize=(style.WIDTH, 3.3))
    figure.set_layout_engine("none")  # all is placed by hand
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, style.WIDTH), ylim=(3.45, 0.05))
    axes.axis("off")
    _box(axes, 0.1, 1.5, 1.35, prompt, style.GREY, "instruction x")
    for top, name, colour, masked, text, side in (
            (0.42, r"whole model $\pi_\theta$", style.BLUE, (), chosen, "3 answer: chosen $y_w$"),
            (2.1, r"masked model $\pi_{\theta'}$", style.RED, heads, rejected,
             "3 answer: rejected $y_l$")):
        axes.text(1.95, top - 0.12, name, fontsize=10, weight="bold", color=colour)
        _heads(axes, 1.95, top, shape, heads, masked)
        _box(axes, 4.0, top, 1.95, text, colour, side)
        middle = top + 0.5
        _arrow(axes, (1.5, 1.95), (1.88, middle))
        _arrow(axes, (3.55, middle), (3.95, middle))
        _arrow(axes, (6.0, middle), (6.33, 1.95))
    said = f"1 find: {len(heads)} heads, black\n2 mask them (a row is a layer)"
    axes.text(1.95, 1.62, said, fontsize=9, va="center", color=style.INK)
    _box(axes, 6.38, 1.5, 1.12, r"prefer $y_w$ to $y_l$", style.GREEN, "4 train: DPO")
    return figure


def _box(axes: Axes, left: float, top: float, width: float, text: str, colour: str,
         title: str) -> None:
    lines = textwrap.wrap(text.replace("$", r"\$") if "$y" not in text else text, int(width * 12.5))
    lines = [*lines[:4], *(["…"] if len(lines) > 4 else [])]
    height = 0.26 + 0.17 * max(2, len(lines))
    axes.add_patch(_rectangle(left, top, width, height, colour))
    axes.text(left, top - 0.08, title, fontsize=9.5, color=colour, weight="bold")
    axes.text(left + 0.08, top + height / 2, "\n".join(lines), fontsize=9, va="center",
              color=style.INK)


def _rectangle(left: float, top: float, width: float, height: float, colour: str,
               fill: str = "none") -> Rectangle:
    return Rectangle((left, top), width, height, facecolor=fill, edgecolor=colour, lw=1)


def _heads(axes: Axes, left: float, top: float, shape: tuple[int, int], heads: Collection[Head],
           masked: Collection[Head]) -> None:
    """A cell for each head, a row for each layer; masked ones are empty and crossed out."""
    size = 1.55 / shape[1]
    for layer, head in np.ndindex(shape):
        x, y = left + head * size, top + layer * (1.0 / shape[0])
        here = (layer, head)
        colour = style.INK if here in heads else style.GREY
        axes.add_patch(_rectangle(x, y, 0.8 * size, 0.8 / shape[0], colour,
                                  style.INK if here in heads and here not in masked else "none"))
        if here in masked:
            axes.plot([x, x + 0.8 * size], [y + 0.8 / shape[0], y], color=style.RED, lw=1.2)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": style.GREY, "lw": 1.2})


def attention_at_needle(case: NiahCase, rows: np.ndarray, prompt: Sequence[str],
                        written: Sequence[str]) -> Figure:
    """Draw one head's attention at the needle while it answers."""
    start, end = case.needle_span
    first, last = max(0, start - AROUND), min(len(prompt), end + AROUND)
    figure, axes = style.new_axes(1.7 + 0.21 * len(written))
    ticks = np.arange(len(written))
    seen = rows[:, first:last]
    mesh = axes.pcolormesh(np.arange(first, last + 1) - 0.5, np.arange(len(written) + 1) - 0.5,
                           np.where(seen > FAINTEST, seen, np.nan), cmap=style.SEQUENTIAL, vmin=0,
                           vmax=1)
    axes.add_patch(_rectangle(first - 0.5, -0.5, last - first, len(ticks), "none", GROUND)
                   ).set_zorder(0)
    for edge in (start, end):
        axes.axvline(edge - 0.5, color=style.ORANGE, lw=1.4)
    axes.set(xlim=(first - 0.5, last - 0.5), ylabel="token of the answer", yticks=ticks,
             xlabel="token of the prompt")
    axes.set_yticklabels([word.strip().replace("$", r"\$") for word in written])
    axes.set_xticks(range(first, last), [word.strip().replace("$", r"\$")
                                         for word in prompt[first:last]], rotation=60, ha="right",
                    rotation_mode="anchor")
    axes.invert_yaxis()
    figure.colorbar(mesh, ax=axes, label="attention", pad=0.02)
    return figure


def loss_by_margin(steps: pd.DataFrame) -> Figure:
    """Draw the loss of Equation 5 as a function of the margin, and the steps of one training."""
    figure, (curve, answers) = style.new_axes(3.0, columns=2)
    last = max(1.0, 1.25 * float(steps["margin"].max()))
    margins = np.linspace(-last, last, 200)
    curve.plot(margins, np.log1p(np.exp(-margins)), color=style.GREY, lw=1.2)
    curve.plot(steps["margin"], steps["loss"], "o-", color=style.BLUE, ms=5)
    curve.axhline(np.log(2), color=style.GREY, lw=0.8, ls=":")
    curve.annotate("log 2, before\nthe first step", (-last, np.log(2)), xytext=(0, -4),
                   textcoords="offset points", va="top", fontsize=9)
    curve.set(xlabel="margin", ylabel="loss of the pair")
    for side, colour in (("chosen", style.BLUE), ("rejected", style.RED)):
        change = steps[side] - steps[side].iloc[0]
        answers.plot(steps["step"], change, "o-", color=colour, ms=4)
        answers.annotate(side, (steps["step"].iloc[-1], change.iloc[-1]), xytext=(5, 0),
                         textcoords="offset points", color=colour, va="center", fontsize=9.5)
    answers.axhline(0, color=style.GREY, lw=0.8, ls=":")
    answers.set(xlabel="step", ylabel="change of log π(y | x), nats",
                xlim=(-0.3, 1.25 * steps["step"].max()))
    return figure


LAST_STEPS = 5
"""Steps at the end of a training over which log-probabilities are averaged: a batch says little."""


@cache
def runs_of(model: str) -> list[RetMaskRun]:
    """Look up the planned runs of RetMask on a model."""
    runs, missing = stored_runs(model, [c for c in planned_runs(model) if c.strategy == RETMASK])
    if not runs:
        raise NotStored(f"No run of RetMask on {model} is stored. `{missing[0]}` makes one.")
    return runs


def _over_runs(model: str, measure: Callable[[RetMaskRun], float],
               bounds: Bounds) -> tuple[Interval, list[str]]:
    runs = runs_of(model)
    return (interval([measure(run) for run in runs], bounds=bounds),
            [run.artifact.name for run in runs])


@declare("instructions-that-become-pairs", unit="percent", place="fig-method", otherwise=(
    "Masking the retrieval heads of {model} changes the answer to {value} % of the instructions "
    "{ci}."))
def instructions_that_become_pairs(model: str) -> Measured:
    """Share of instructions whose two answers differ; over runs."""
    def share(run: RetMaskRun) -> float:
        return len(run.pairs) / int(run.artifact.manifest["config"]["instructions"])

    found, names = _over_runs(model, share, SHARE)
    return Measured(scaled(found), names, len(names), verdict=SHOWN)


@declare("answers-move", unit="nats", place="fig-first-steps", otherwise=(
    "Training {model} changes the log-probability of {side} answers by {value} nats {ci}: "
    "{verdict}."))
def answers_move(model: str, side: Literal["chosen", "rejected"]) -> Measured:
    """Change of the log-probability of an answer by the end of a training; over runs."""
    def change(run: RetMaskRun) -> float:
        beta = float(run.artifact.manifest["config"]["recipe"]["beta"])
        return float(run.curve[f"{side}_reward"].tail(LAST_STEPS).mean()) / beta

    found, names = _over_runs(model, change, ANY)
    return Measured(found, names, len(names))


def first_losses() -> dict[str, float]:
    """Return the largest distance of a first loss from log 2, by the precision of the training."""
    found: dict[str, float] = {}
    for model in MODELS:
        for run in runs_of(model):
            precision = run.artifact.manifest["config"]["recipe"]["precision"]
            found[precision] = max(found.get(precision, 0.0),
                                   abs(float(run.curve["loss"].iloc[0]) - float(np.log(2))))
    return found
