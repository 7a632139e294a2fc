"""`rmutils detect`: the retrieval heads of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rmutils.cli import options
from rmutils.errors import UserError


def detect(
    model: Annotated[str, typer.Argument(help="Registry name, folder, .gguf file or hub id.")],
    lengths: Annotated[str | None, typer.Option(help="Prompt lengths, comma-separated.")] = None,
    depths: Annotated[str | None, typer.Option(help="Needle depths from 0 to 1.")] = None,
    needles: Annotated[int | None, typer.Option(help="Only the first so many needles.")] = None,
    definition: Annotated[str | None, typer.Option(help="paper or wu.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Longest answer.")] = None,
    haystack: Annotated[Path | None, typer.Option(help="Own folder of .txt files.")] = None,
    needle_file: Annotated[Path | None, typer.Option(help="Own needles (.jsonl).")] = None,
    tau: Annotated[float, typer.Option(help="Show the heads at or above this score.")] = 0.1,
    compute: Annotated[str, typer.Option(help="auto, always or never.")] = "auto",
    wu_json: Annotated[Path | None, typer.Option(
        help='Also write {"layer-head": \\[score, ...]}.')] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find retrieval heads with needle-in-a-haystack cases (section 2).

    A run that was stopped goes on when the same command is given again.

    Example: rmutils detect smollm2-135m --lengths 256,512 --depths 0,0.5,1
    """
    from rmutils.heads.detection import DetectConfig
    from rmutils.heads.store import detect_stored

    if compute not in ("auto", "always", "never"):
        raise UserError(f"--compute {compute}: one of auto, always, never.")
    given = {"lengths": lengths, "depths": depths, "needles": needles, "definition": definition,
             "max_new_tokens": max_new_tokens, "haystack": haystack, "needle_file": needle_file}
    config = DetectConfig().changed({k: v for k, v in given.items() if v is not None})
    if wu_json:
        options.check_room(wu_json)
    scores, artifact = detect_stored(model, config, compute=compute)
    if wu_json:
        scores.to_wu_json(wu_json)
    interval = scores.interval()
    heads = [{"layer": layer, "head": head, "score": float(scores.mean[layer, head]),
              "low": float(interval[layer, head, 0]), "high": float(interval[layer, head, 1])}
             for layer, head in scores.select(tau=tau)]
    if as_json:
        print(json.dumps({"model": scores.model, "artifact": artifact.name, "tau": tau,
                          "cases": len(scores.cases), "successful": len(scores.runs),
                          "heads": heads}, indent=1))
        return
    print(f"{scores.model}: {len(scores.runs)} of {len(scores.cases)} needles found; "
          f"{len(heads)} heads at or above {tau:g}. Stored as {artifact.name}.")
    for h in heads:
        print(f"layer {h['layer']:3}  head {h['head']:3}  {h['score']:.3f}  "
              f"95 % interval {h['low']:.3f} to {h['high']:.3f}")
