"""`rmutils mask`: a model without some of its heads, as a folder."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

from rmutils.cli import options


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
    from rmutils.heads.export import check_free
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
