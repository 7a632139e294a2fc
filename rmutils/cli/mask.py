"""`rmutils mask`: a model without some of its heads, as a folder."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from rmutils.errors import UserError

TAU = 0.1
"""For models without a name here. The paper is silent on them; it tunes tau "from {0.05, 0.10} for
each model" (appendix A)."""


def mask(
    model: Annotated[str, typer.Argument(help="Registry name, folder, .gguf file or hub id.")],
    out: Annotated[Path, typer.Option(help="Folder that takes the masked model.")],
    tau: Annotated[float | None, typer.Option(
        help="Lowest score of a retrieval head.", show_default="the model's own, else 0.1")] = None,
    top_k: Annotated[int | None, typer.Option(
        help="Instead of --tau: how many of the highest heads.")] = None,
    policy: Annotated[Literal["retrieval", "non-retrieval", "random"], typer.Option(
        help="Mask the retrieval heads, as many of the others, or as many of any.")] = "retrieval",
    seed: Annotated[int, typer.Option(help="Of the random policies.")] = 42,
    scores: Annotated[Path | None, typer.Option(
        help="Head scores as `rmutils detect --wu-json` writes them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a model with its retrieval heads masked (section 3), for any tool that loads models.

    Without --scores, the scores are those of `rmutils detect MODEL`, which runs if it has not yet.

    Example: rmutils mask smollm2-135m --out smollm2-masked --tau 0.1
    """
    from rmutils.heads import HeadScores, choose, export_masked
    from rmutils.heads.export import check_free
    from rmutils.heads.store import detect_stored
    from rmutils.models import REGISTRY, load_model

    if tau is not None and top_k is not None:
        raise UserError("--tau and --top-k exclude each other: give one of them.")
    if top_k is None and tau is None:
        tau = next((s.tau for s in REGISTRY.values() if model in (s.name, s.hub_id)), TAU)
    check_free(out)  # before a detection that may take hours
    lm = load_model(model)
    found = HeadScores.from_wu_json(scores, shape=lm.shape) if scores else detect_stored(lm)[0]
    heads = choose(found, policy, tau=tau, top_k=top_k, seed=seed)
    folder = export_masked(lm, heads, out)
    if as_json:
        print(json.dumps({"model": lm.name, "policy": policy, "tau": tau, "top_k": top_k,
                          "seed": seed, "heads": heads, "of": found.mean.size,
                          "folder": str(folder)}, indent=1))
        return
    print(f"{lm.name}: {len(heads)} of {found.mean.size} heads masked ({policy}).")
    print(f"Written to {folder}")
    print(f"Load it: rmutils.load_model({str(folder)!r}) or vllm serve {shlex.quote(str(folder))}")
