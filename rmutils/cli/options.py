"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer

from rmutils.core.errors import UserError

if TYPE_CHECKING:
    from rmutils.heads.scores import Head, HeadScores
    from rmutils.models import LanguageModel
    from rmutils.preference.responses import Backend

Model = Annotated[str, typer.Argument(help="Registry name, folder, .gguf file or hub id.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Compute = Annotated[Literal["auto", "always", "never"], typer.Option(
    help="Use what is stored and else compute; compute anew; use what is stored or fail.")]

Policy = Literal["retrieval", "non-retrieval", "random"]
Tau = Annotated[float | None, typer.Option(
    help="Lowest score of a retrieval head.", show_default="the model's own, else 0.1")]
TopK = Annotated[int | None, typer.Option(help="Instead of --tau: how many of the highest heads.")]
Scores = Annotated[Path | None, typer.Option(
    help="Head scores as `rmutils detect --wu-json` writes them.")]
HeadSeed = Annotated[int, typer.Option(help="Of the heads that are drawn at random.")]

Engine = Annotated[Literal["transformers", "vllm"], typer.Option(
    "--backend", help="Who answers on this machine.")]
Servers = Annotated[list[str] | None, typer.Option(
    "--server", metavar="ADDRESS[=CHECKPOINT]", show_default=False,
    help="Instead: the address of a server with OpenAI's interface, and the folder that it "
         "serves, if that is not MODEL but a masked one. Can be given several times.")]

Workers = Annotated[int | None, typer.Option(
    min=1, help="Processes that answer side by side, each with a model of its own. The answers are "
                "the same, whatever their number.",
    show_default="one for each GPU, else one for each core, up to 4")]

Source = Annotated[str, typer.Option(
    help="Of the instructions: world, self, lmsys, wildchat, guru, or a .jsonl file.")]
Seed = Annotated[int, typer.Option(help="Of the instructions and the responses.")]
Temperature = Annotated[float, typer.Option(help="0: greedy.")]
TopP = Annotated[float, typer.Option(help="Sample from the most probable tokens of this sum.")]
MaxNewTokens = Annotated[int, typer.Option(
    help="Longest response; the authors give Qwen3 4096.")]
Thinking = Annotated[bool, typer.Option(
    help="Whether a response may begin with thoughts, where the model knows them.")]


def threshold(model: str, tau: float | None, top_k: int | None) -> float | None:
    """`--tau`, or the model's own; None where `--top-k` stands in its place."""
    from rmutils.models.registry import tau_of

    if tau is not None and top_k is not None:
        raise UserError("--tau and --top-k exclude each other: give one of them.")
    return tau_of(model) if tau is None and top_k is None else tau


def choose_heads(
    lm: LanguageModel, model: str, policy: Policy, *, tau: float | None, top_k: int | None,
    seed: int, scores: Path | None,
) -> list[Head]:
    """The heads to mask, by the scores of `scores_of`."""
    from rmutils.heads import choose

    return choose(scores_of(lm, model, scores), policy, tau=tau, top_k=top_k, seed=seed)


def scores_of(lm: LanguageModel, model: str, file: Path | None) -> HeadScores:
    """The head scores of a file, or those of `rmutils detect MODEL`."""
    from rmutils.heads import HeadScores
    from rmutils.heads.detection import detect_stored
    from rmutils.models.registry import check

    check(lm)
    return (HeadScores.from_wu_json(file, shape=lm.shape) if file
            else detect_stored(lm, named=model)[0])


def check_room(out: Path) -> None:
    """Refuse a file that cannot be written, before what may take hours."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}.") from error
    if out.is_dir():
        raise UserError(f"{out} is a folder. Give a file.")


def load_chat_model(model: str) -> LanguageModel:
    """A model that can be given instructions."""
    from rmutils.models import load_model

    lm = load_model(model)
    if not lm.chat:
        raise UserError(f"{lm.name} has no chat template, so there is no telling how its prompts "
                        f"are written. Take an instruction-tuned model.")
    return lm


def backend_of(
    lm: LanguageModel, model: str, engine: str, servers: Sequence[str] | None = None,
    workers: int | None = None,
) -> Backend:
    """Who answers for a model, which was asked for by that name."""
    if servers:
        from rmutils.preference.served import Server

        parts = (server.partition("=") for server in servers)
        return Server(lm, {address: checkpoint or model for address, _, checkpoint in parts})
    import torch

    from rmutils.core.journal import default_workers
    from rmutils.preference.backends import BACKENDS
    from rmutils.training.compute_backend import ComputeBackend

    usual = max(1, torch.cuda.device_count()) if BACKENDS[engine].own_gpus else default_workers()
    return ComputeBackend(engine=engine).backend(lm, model, workers or usual)


def command_line(ctx: typer.Context) -> str:
    """The command that was given, without what has no influence on the result."""
    words = []
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name)
        if value == parameter.default or parameter.name in ("compute", "as_json", "workers"):
            continue
        if parameter.param_type_name == "argument":
            words.insert(0, value)
        elif isinstance(value, bool):
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            for each in value if isinstance(value, (list, tuple)) else [value]:
                words += [parameter.opts[0], str(each)]
    return shlex.join(["rmutils", ctx.info_name, *words])


def mean(values: np.ndarray) -> dict[str, float]:
    """Mean of independent values, and the ends of its 95 % interval."""
    from rmutils.stats import interval

    groups = np.arange(len(values)) % 1000  # as good as single values, and never too many
    return dict(zip(("mean", "low", "high"), map(float, interval(values, groups)), strict=True))


def shown(found: dict[str, float]) -> str:
    """A mean as text."""
    return "{mean:.1f} (95 % interval {low:.1f} to {high:.1f})".format(**found)


def counts(found: dict[str, int]) -> str:
    """What was left out, by reason, as text."""
    return ", ".join(f"{n} {why}" for why, n in found.items()) or "none"
