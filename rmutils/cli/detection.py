"""`rmutils detect`: the retrieval heads of a model.

`rmutils mask`: a model without some of its heads, as a folder.

`rmutils report`: any checkpoint on one page.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from rmutils.cli import options
from rmutils.core.errors import UserError


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
    from rmutils.heads.detection import DetectConfig, detect_stored

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


def mask(
    model: options.Model,
    out: Annotated[Path, typer.Option(help="Folder that takes the masked model.")],
    tau: options.Tau = None,
    top_k: options.TopK = None,
    policy: Annotated[options.Policy, typer.Option(
        help="Mask the retrieval heads, as many of the others, or as many of any.")] = "retrieval",
    seed: Annotated[int, typer.Option(help="Of the random policies.")] = 42,
    scores: options.Scores = None,
    as_json: options.Json = False,
) -> None:
    """Write a model with its retrieval heads masked (section 3), for any tool that loads models.

    Without --scores, the scores are those of `rmutils detect MODEL`, which runs if it has not yet.

    Example: rmutils mask smollm2-135m --out smollm2-masked --tau 0.1
    """
    from rmutils.heads import export_masked
    from rmutils.heads.masking import check_free
    from rmutils.models import load_model

    tau = options.threshold(model, tau, top_k)
    check_free(out)  # before a detection that may take hours
    lm = load_model(model)
    heads = options.choose_heads(lm, model, policy, tau=tau, top_k=top_k, seed=seed, scores=scores)
    of = math.prod(lm.shape)
    folder = export_masked(lm, heads, out)
    if as_json:
        print(json.dumps({"model": lm.name, "policy": policy, "tau": tau, "top_k": top_k,
                          "seed": seed, "heads": heads, "of": of,
                          "folder": str(folder)}, indent=1))
        return
    print(f"{lm.name}: {len(heads)} of {of} heads masked ({policy}).")
    print(f"Written to {folder}")
    print(f"Load it: rmutils.load_model({str(folder)!r}) or vllm serve {shlex.quote(str(folder))} "
          f"--dtype {str(lm.model.dtype).removeprefix('torch.')}")


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
    from rmutils.experiments.your_own_model import OwnModelConfig, examine
    from rmutils.site.model_report import as_json as numbers
    from rmutils.site.model_report import findings, forecasts, page

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
