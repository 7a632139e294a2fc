"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import functools
import inspect
import math
import shlex
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from pydantic import Field, model_validator

from rmutils.core import registry
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.validation import Count, FrozenHeads

if TYPE_CHECKING:
    from rmutils.heads.scores import Head, HeadScores
    from rmutils.models import LanguageModel
    from rmutils.preference.responses import Backend

Model = Annotated[str, typer.Argument(
    help="Registry name, folder of a model or a LoRA adapter, .gguf file, hub id, or stored "
         "training (train-...).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Compute = Annotated[Literal["auto", "always", "never"], typer.Option(
    help="Use what is stored and else compute; always compute; use what is stored or fail.")]
List = Annotated[bool, typer.Option("--list", help="List names and values, and stop.")]
Tau = Annotated[float | None, typer.Option(
    help="Lowest score of a retrieval head.", show_default="the model's own, else 0.1")]
Workers = Annotated[int | None, typer.Option(
    min=1, help="Processes that answer side by side, each with a model of its own. The answers are "
                "the same, whatever their number.",
    show_default="one for each GPU, else one for each core, up to 4")]
Servers = Annotated[list[str] | None, typer.Option(
    "--server", metavar="ADDRESS[=CHECKPOINT]", show_default=False,
    help="Instead of --backend: the address of a server with OpenAI's interface, and the folder "
         "that it serves, if that is not MODEL but a masked one. Can be given several times.")]

LOADING = {
    "device": Annotated[str | None, typer.Option(
        help="Where models are loaded: cpu, cuda, cuda:1, ...", show_default="cuda, else cpu")],
    "dtype": Annotated[Literal["float32", "bfloat16", "float16"] | None, typer.Option(
        help="Precision of the models.",
        show_default="the model's own, else float32 on a CPU and bfloat16 elsewhere")],
    "revision": Annotated[str | None, typer.Option(
        help="Branch, tag or commit of MODEL, if it is one of the hub.", show_default="main")],
}


def loads_models(command: Callable) -> Callable:
    """Give a command the options that say how models are loaded, its `model` among them."""
    def run(*, device=None, dtype=None, revision=None, **values: Any) -> Any:
        from rmutils.models.loading import loaded_in, with_revision

        with loaded_in(device, dtype):
            return command(**values | {"model": with_revision(values["model"], revision)})

    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in LOADING.items()]
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in inspect.signature(
        command, eval_str=True).parameters.values()), *more]
    run.__signature__ = inspect.Signature(parameters)
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    functools.update_wrapper(run, command, ("__module__", "__name__", "__doc__"), ())
    del run.__wrapped__
    return run


Policy = Literal["retrieval", "non-retrieval", "random", "layer-matched-non-retrieval",
                 "layer-matched-random"]


class HeadChoice(Config):
    """Which heads are masked."""

    policy: Policy | None = None
    """Mask the retrieval heads, as many of the others, or as many of any; layer-matched: in the
    layers of the retrieval heads. None: no heads are masked; retrieval, if --tau, --top-k or
    --scores is given."""
    tau: float | None = None
    """Lowest score of a retrieval head. None: the model's own, else 0.1."""
    top_k: Count | None = None
    """How many of the highest heads, instead of --tau."""
    heads: Annotated[FrozenHeads, Field(min_length=1)] | None = None
    """Mask these heads, such as 3-7,3-11, instead of those that a policy chooses."""
    scores: Path | None = None
    """A file of head scores, as `rmutils heads convert` knows them, or a stored detection. None:
    those of a detection."""
    head_seed: int = 42
    """Seed of the random heads."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> HeadChoice:
        if self.heads and (self.tau, self.top_k, self.scores) != (None, None, None) or (
                self.heads and self.policy not in (None, "retrieval")):
            raise ValueError("--heads names the heads to mask: leave out --policy, --tau, --top-k "
                             "and --scores, which choose them")
        return self

    def chosen_policy(self) -> Policy | None:
        """Return the policy; any other option asks for the retrieval heads, but not --heads."""
        if self.heads:
            return None
        asked = (self.tau, self.top_k, self.scores) != (None, None, None)
        return self.policy or ("retrieval" if asked else None)

    def threshold(self, model: str) -> float | None:
        """Return `--tau`, or the model's own; None where `--top-k` or `--heads` is given."""
        from rmutils.models.known_models import tau_of

        if self.heads:
            return None
        if self.tau is not None and self.top_k is not None:
            raise UserError("--tau and --top-k exclude each other: give one of them.")
        return tau_of(model) if self.tau is None and self.top_k is None else self.tau

    def head_scores(self, lm: LanguageModel, model: str) -> HeadScores:
        """Return the scores of the file, or those of `rmutils detect MODEL`."""
        from rmutils.heads import HeadScores
        from rmutils.heads.detection import detect_stored
        from rmutils.models.known_models import check

        check(lm)
        return (HeadScores.load(self.scores, lm) if self.scores
                else detect_stored(lm, named=model)[0])

    def chosen_heads(self, lm: LanguageModel, model: str) -> list[Head]:
        """Return the heads to mask."""
        from rmutils.heads import choose

        if self.heads:
            return sorted(lm.checked_heads(self.heads))
        tau = self.threshold(model)
        return choose(self.head_scores(lm, model), self.chosen_policy(), tau=tau,
                      top_k=self.top_k, seed=self.head_seed)


def check_room(out: Path, *, folder: bool = False) -> None:
    """Refuse a file or folder that cannot be written, before what may take hours."""
    within = out if folder and out.is_dir() else out.parent
    try:
        within.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=within):
            pass
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}. Choose another "
                        f"{'folder' if folder else 'file'}.") from error
    if not folder and out.is_dir():
        raise UserError(f"{out} is a folder. Give a file.")
    if folder and out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file. Give a folder.")


def load_chat_model(model: str) -> LanguageModel:
    """A model that can be given instructions."""
    from rmutils.models import load_model

    lm = load_model(model)
    if not lm.chat:
        raise UserError(f"{lm.name} has no chat template, so there is no telling how its prompts "
                        f"are written. Take an instruction-tuned model.")
    return lm


def backend_of(
    lm: LanguageModel, model: str, engine: str, servers: list[str] | None = None,
    workers: int | None = None,
) -> Backend:
    """Who answers for a model, which was asked for by that name."""
    if servers:
        from rmutils.preference.served import Server

        parts = (server.partition("=") for server in servers)
        return Server(lm, {address: checkpoint or model for address, _, checkpoint in parts})
    import torch

    from rmutils.core.journal import default_workers
    from rmutils.preference.responses import BACKENDS
    from rmutils.training.compute_backend import ComputeBackend

    usual = max(1, torch.cuda.device_count()) if BACKENDS[engine].own_gpus else default_workers()
    return ComputeBackend(engine=engine).backend(lm, model, workers or usual)


NO_INFLUENCE = ("compute", "as_json", "workers", "device")


def command_line(ctx: typer.Context) -> str:
    """The command that was given, without what has no influence on the result."""
    words = []
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name)
        if value == parameter.default or parameter.name in NO_INFLUENCE:
            continue
        if parameter.param_type_name == "argument":
            words.insert(0, value)
        elif isinstance(value, bool):
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            for each in value if isinstance(value, (list, tuple)) else [value]:
                words += [parameter.opts[0], str(each)]
    return shlex.join(["rmutils", *registry.plugin_options(), ctx.info_name, *words])


def ends(low: float, high: float) -> dict[str, float | None]:
    """Return the ends of an interval for JSON, which has no NaN."""
    return {"low": None if math.isnan(low) else float(low),
            "high": None if math.isnan(high) else float(high)}


def mean(values: np.ndarray) -> dict[str, float | None]:
    """Mean of independent counts, and the ends of its 95 % interval."""
    from rmutils.stats import POSITIVE, interval

    groups = np.arange(len(values)) % 1000  # as good as single values, and never too many
    found = interval(values, groups, bounds=POSITIVE)
    return {"mean": float(found.value), **ends(found.low, found.high)}


def shown(found: dict[str, float | None]) -> str:
    """A mean as text."""
    from rmutils.stats import span

    return f"{found['mean']:.1f} ({span(found['low'], found['high'])})"


def counts(found: dict[str, int]) -> str:
    """Return what was left out, by reason, as text."""
    return ", ".join(f"{n} {why}" for why, n in found.items()) or "none"


def list_values(config: Config, before: str = "") -> None:
    """Print the names and values of a configuration."""
    for name in config.dotted_names():
        typer.echo(f"{before}{name} = {attrgetter(name)(config)}")
