"""`rmutils report`: any checkpoint on one page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from rmutils.cli import options


def report(
    ctx: typer.Context,
    model: options.Model,
    out: Annotated[Path | None, typer.Option(
        help="The page (.html). Its numbers go beside it (.json).",
        show_default="report-MODEL.html")] = None,
    tau: options.Tau = None,
    lengths: Annotated[str | None, typer.Option(
        help="Prompt lengths of the detection, comma-separated.", show_default="256,512")] = None,
    depths: Annotated[str | None, typer.Option(
        help="Needle depths from 0 to 1.", show_default="0,0.25,0.5,0.75,1")] = None,
    needles: Annotated[int | None, typer.Option(
        help="Only the first so many needles.", show_default="all")] = None,
    counts: Annotated[str | None, typer.Option(
        help="How many heads the sweep masks.", show_default="4,8,16,64")] = None,
    draws: Annotated[int | None, typer.Option(
        help="Random choices of other heads for each count.", show_default="3")] = None,
    samples: Annotated[int | None, typer.Option(
        help="Questions of each task in the sweep.", show_default="5")] = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Detect a model's retrieval heads, mask ever more of them, and foretell RetMask's gain.

    Writes a page that stands alone and prints on one sheet, and its numbers as JSON. A run that was
    stopped goes on when the same command is given again.

    Example: rmutils report ./my-checkpoint

    Example: rmutils report model.gguf --lengths 512,2048 --out my-model.html
    """
    from rmutils.book.model_findings import as_json as numbers
    from rmutils.book.model_findings import findings, forecasts
    from rmutils.book.model_page import page
    from rmutils.evaluation.own_model import OwnModelConfig, examine

    given = {"tau": tau, "detect.lengths": lengths, "detect.depths": depths,
             "detect.needles": needles, "sweep.counts": counts, "sweep.draws": draws,
             "sweep.samples": samples}
    config = OwnModelConfig().changed({k: v for k, v in given.items() if v is not None})
    own = examine(model, config, compute=compute, command=options.command_line(ctx))
    found = forecasts(own)
    target = out or Path(f"report-{re.sub(r'[^A-Za-z0-9.-]+', '-', own.name).strip('-.')}.html")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(own, found), encoding="utf-8")
    target.with_suffix(".json").write_text(numbers(own, found), encoding="utf-8")
    if as_json:
        print(numbers(own, found), end="")
        return
    print(f"{own.name}:", *findings(own, found), sep="\n- ")
    print(f"Written: {target} and {target.with_suffix('.json').name}")
