"""Commands about the heads of a model: `rmutils detect`, `rmutils mask`, `rmutils heads`."""

from __future__ import annotations

import json
import math
import shlex
import warnings
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import numpy as np
import typer

from rmutils.cli import options
from rmutils.cli.from_configs import Part, configured
from rmutils.core.errors import UserError, did_you_mean
from rmutils.heads import DetectConfig, export_masked
from rmutils.heads.detection import detect_stored
from rmutils.heads.masking import Ablation, check_free
from rmutils.heads.score_files import Format
from rmutils.heads.score_kinds import kind_of
from rmutils.heads.scores import DECIMALS, HeadScores
from rmutils.models import load_model
from rmutils.models.known_models import tau_of
from rmutils.stats import span


@configured(config=DetectConfig())
@options.loads_models
def detect(
    model: options.Model,
    config: DetectConfig,
    tau: options.Tau = None,
    compute: options.Compute = "auto",
    save: Annotated[list[str] | None, typer.Option(
        metavar="[FORMAT=]FILE", show_default=False,
        help="Also write the scores to a file: rmutils (the default, which LOCOS reads too), wu "
             "(Wu et al. and RetMask), qrhead or duo (DuoAttention); or draw the map of all heads: "
             "a file that ends in .svg, .png or .pdf. Can be given several times.",
    )] = None,
    workers: Annotated[int, typer.Option(
        min=1, help="Processes that answer side by side, each with a model of its own: one for "
                    "each GPU, say.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Find retrieval heads with needle-in-a-haystack cases (section 2).

    A run that was stopped goes on when the same command is given again.

    Example: rmutils detect smollm2-135m --lengths 256,512 --depths 0,0.5,1

    Example: rmutils detect qwen2.5-coder-0.5b --save heads.png
    """
    files = [_format_and_file(one) for one in save or ()]
    scores, artifact = detect_stored(model, config, compute=compute, workers=workers)
    note = kind_of(config).told(scores.cases)
    given, tau = tau, tau_of(model) if tau is None else tau
    highest, heads = None, []
    written: list[str] = []
    if len(scores.runs):  # that no needle is found is a result, too
        interval, highest = scores.interval(), float(np.nanmax(scores.mean).round(DECIMALS))
        chosen = scores.select(tau=tau) if highest >= tau else []
        for format, file in files:
            if format == "map":
                scores.plot(tau=tau if chosen else None).savefig(file)
                written.append(f"Written: {file}")
                continue
            config_of = load_model(model).model.config if format == "duo" else None
            written += _saved(scores, file, format, getattr(config_of, "num_key_value_heads", None))
        heads = [{"layer": layer, "head": head, "score": float(scores.mean[layer, head]),
                  **options.ends(*interval[layer, head])}
                 for layer, head in chosen]
    if as_json:
        print(json.dumps({"model": scores.model, "artifact": artifact.name, "tau": tau,
                          "cases": len(scores.cases), "successful": len(scores.runs),
                          "highest": highest, "note": note, "heads": heads}, indent=1))
        return
    print(f"{scores.model}: {len(scores.runs)} of {len(scores.cases)} needles found; "
          f"{len(heads)} heads at or above tau = {tau:g}"
          f"{' (the default for this model)' if given is None else ''}. Stored as {artifact.name}.")
    print(*([note] if note else []), *written, sep="\n", end="\n" * bool(note or written))
    if highest is None:
        print("No head has a score, because only cases count in which the needle is found. "
              f"The answers are in {artifact.path('cases.parquet')}.")
    elif not heads:
        print(f"The highest score is {highest:.3f}: choose a lower --tau to see heads.")
    for h in heads:
        print(f"layer {h['layer']:3}  head {h['head']:3}  {h['score']:.3f}  "
              + span(h["low"], h["high"], ".3f", what="needle"))


PICTURES = ".svg", ".png", ".pdf"  # endings of files that `detect --save` draws a map into


def _format_and_file(given: str) -> tuple[Format | Literal["map"], Path]:
    """Read `[FORMAT=]FILE`, checked before a detection that may take hours."""
    format, _, file = given.rpartition("=")
    known = get_args(Format)
    if format and format not in known:
        raise UserError(f"--save {given}: no format of scores is called {format!r}. There are "
                        f"{', '.join(known)}.{did_you_mean(format, known)}")
    options.check_room(Path(file))
    if not format and Path(file).suffix in PICTURES:
        return "map", Path(file)
    return cast(Format, format or "rmutils"), Path(file)


@configured(choice=Part(options.HeadChoice(policy="retrieval"), names={"head_seed": "--seed"}))
@options.loads_models
def mask(
    model: options.Model,
    out: Annotated[Path, typer.Option(help="Folder for the masked model.")],
    choice: options.HeadChoice,
    how: Annotated[Ablation, typer.Option(
        help="Masked heads write nothing, as in the paper; what they write on average; or they "
             "look everywhere alike.")] = "zero",
    as_json: options.Json = False,
) -> None:
    """Write a model with its retrieval heads masked (section 3), for any tool that loads models.

    Without --scores, the scores are those of `rmutils detect MODEL`, which runs if it has not yet.

    Example: rmutils mask smollm2-135m --out smollm2-masked --tau 0.1

    Example: rmutils mask tiny-llama --out tiny-masked --heads 3-7,3-11
    """
    check_free(out)  # before a detection that may take hours
    options.check_room(out, folder=True)
    lm = load_model(model)
    heads, of = choice.chosen_heads(lm, model), math.prod(lm.shape)
    folder = export_masked(lm, heads, out, how)
    if as_json:
        print(json.dumps({
            "model": lm.name, "policy": choice.chosen_policy(), "tau": choice.threshold(model),
            "top_k": choice.top_k, "seed": choice.head_seed, "heads": heads, "of": of, "how": how,
            "folder": str(folder)}, indent=1))
        return
    print(f"{lm.name}: {len(heads)} of {of} heads masked "
          f"({choice.chosen_policy() or 'as given'}).")
    print(f"Written to {folder}")
    print(f"Load it: rmutils.load_model({str(folder)!r}) or vllm serve {shlex.quote(str(folder))} "
          f"--dtype {str(lm.model.dtype).removeprefix('torch.')}")


heads_app = typer.Typer(no_args_is_help=True, add_completion=False, help="Files of head scores.")


@heads_app.callback()
def _heads() -> None:
    """Files of head scores."""


@heads_app.command()
def convert(
    scores: Annotated[Path, typer.Argument(
        help="Head scores of this project, Wu et al., RetMask, LOCOS, QRHead or DuoAttention.")],
    out: Annotated[Path, typer.Argument(help="The new file.")],
    to: Annotated[Format, typer.Option(
        help="rmutils, which LOCOS reads too; Wu et al. and RetMask; QRHead; DuoAttention.",
    )] = "rmutils",
    key_heads: Annotated[int | None, typer.Option(
        min=1, help="To write duo: key heads per layer of the model.")] = None,
    query_heads: Annotated[int | None, typer.Option(
        min=1, help="To read duo: query heads per layer of the model.")] = None,
) -> None:
    """Write head scores in another format; the content of the file tells which one it has.

    Example: rmutils heads convert scores.json gates.tsv --to duo --key-heads 8
    """
    options.check_room(out)
    found = HeadScores.load(scores, query_heads=query_heads)
    print(*_saved(found, out, to, key_heads), sep="\n")


def _saved(scores: HeadScores, out: Path, to: Format, key_heads: int | None) -> list[str]:
    """Write scores, and return what there is to say of it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        scores.save(out, to, key_heads=key_heads)
    return [f"Written: {out}", *(f"Warning: {one.message}" for one in told)]
