"""`rmutils pairs`: preference pairs by one of the paper's strategies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from rmutils.cli import options
from rmutils.errors import UserError

if TYPE_CHECKING:
    from rmutils.contrast.judges import Judge
    from rmutils.contrast.pairs import Pairs
    from rmutils.models import LanguageModel


def pairs(
    ctx: typer.Context,
    model: options.Model,
    out: Annotated[Path, typer.Option(help="File (.parquet) for the pairs.")],
    strategy: Annotated[str, typer.Option(
        help="retmask, smaller-model, win-lose-pair, non-retrieval-mask, random-mask, sft; or "
             "longreward, which reads released pairs.")] = "retmask",
    source: options.Source = "world",
    number: Annotated[int, typer.Option(
        "--pairs", min=1, help="How many instructions. Pairs that teach nothing are dropped.")
    ] = 1000,
    tau: options.Tau = None,
    top_k: options.TopK = None,
    scores: options.Scores = None,
    head_seed: options.HeadSeed = 42,
    smaller: Annotated[str | None, typer.Option(
        help="For smaller-model: the model of the rejected side.")] = None,
    judge: Annotated[str, typer.Option(
        help="For win-lose-pair: the URL of a server with OpenAI's interface, or proxy, the "
             "model's own likelihoods (not the paper's judge).")] = "proxy",
    judge_model: Annotated[str, typer.Option(
        help="The model behind that URL.")] = "google/gemma-3-27b-it",
    max_new_tokens: options.MaxNewTokens = 2048,
    temperature: options.Temperature = 0.6,
    top_p: options.TopP = 1.0,
    thinking: options.Thinking = True,
    seed: options.Seed = 0,
    engine: options.Engine = "transformers",
    server: options.Servers = None,
    workers: options.Workers = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Make preference pairs (sections 3 and 4.1) and write them to a file for `rmutils train`.

    The responses are stored, and a run that was stopped goes on when the same command is given
    again.

    Example: rmutils pairs tiny-llama --strategy retmask --pairs 1000 --out pairs.parquet
    """
    from rmutils.contrast.drawing import draw_stored
    from rmutils.contrast.longreward import longreward_pairs
    from rmutils.contrast.responses import ResponseConfig
    from rmutils.contrast.strategies import STRATEGIES, contrast

    if strategy not in (*STRATEGIES, "longreward"):
        raise UserError(f"--strategy {strategy}: one of {', '.join(STRATEGIES)}, longreward.")
    if strategy == "smaller-model" and not smaller:
        raise UserError("--strategy smaller-model needs --smaller MODEL.")
    tau = options.threshold(model, tau, top_k)
    config = ResponseConfig().changed({
        "max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p,
        "thinking": thinking, "seed": seed})
    options.check_room(out)
    lm = options.load_chat_model(model)
    if strategy == "longreward":
        found, origin = longreward_pairs(lm, number, seed=seed), {}
    else:
        policy = STRATEGIES[strategy].policy
        heads = options.choose_heads(lm, model, policy, tau=tau, top_k=top_k, seed=head_seed,
                                     scores=scores) if policy else []
        other = (options.backend_of(options.load_chat_model(smaller), smaller, engine,
                                    workers=workers)
                 if strategy == "smaller-model" else None)
        rater = _judge(judge, judge_model, lm, thinking) if strategy == "win-lose-pair" else None
        drawn, _ = draw_stored(source, number, seed=seed, lm=lm)
        made = contrast(
            strategy, options.backend_of(lm, model, engine, server, workers), drawn.instructions,
            config, heads=heads, other=other, judge=rater, compute=compute,
            command=options.command_line(ctx))
        found = made.pairs
        origin = {"source": source, "seed": seed, "left_out": drawn.dropped, "heads": heads,
                  "judge": rater and rater.name, "artifacts": [a.name for a in made.artifacts]}
    found.table.to_parquet(out, index=False)
    record = {"model": lm.name, "strategy": strategy, "pairs": len(found.table),
              "dropped": found.dropped, "tokens": _tokens(lm, found), **origin, "file": str(out)}
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        _show(record)


def _judge(which: str, model: str, lm: LanguageModel, thinking: bool) -> Judge:
    from rmutils.contrast.judges import Proxy, ServerJudge

    return Proxy(lm, thinking) if which == "proxy" else ServerJudge(which, model)


def _tokens(lm: LanguageModel, found: Pairs) -> dict[str, dict[str, float]]:
    """Mean lengths, as Table 12 has them."""
    prompts = [len(lm.tokenizer(text, add_special_tokens=False)["input_ids"])
               for text in found.table["prompt"]]
    return {"prompt": options.mean(np.array(prompts)),
            **{side: options.mean(found.table[f"{side}_tokens"].to_numpy())
               for side in ("chosen", "rejected")}}


def _show(record: dict) -> None:
    total = record["pairs"] + sum(record["dropped"].values())
    print(f"{record['model']}, {record['strategy']}: {record['pairs']} of {total} pairs; dropped: "
          f"{options.counts(record['dropped'])}.")
    for side, found in record["tokens"].items():
        print(f"{side}: {options.shown(found)} tokens on average")
    if record.get("left_out"):
        print(f"Instructions left out: {options.counts(record['left_out'])}.")
    if record.get("heads"):
        print(f"Heads masked for the rejected side: {len(record['heads'])}.")
    if record.get("judge"):
        print(f"Judge: {record['judge']}.")
    if record.get("artifacts"):
        print(f"Made from {', '.join(record['artifacts'])}.")
    print(f"Written to {record['file']}")
