"""`rmutils generate`: responses of a model, whole or with heads masked."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rmutils.cli import options


def generate(
    ctx: typer.Context,
    model: options.Model,
    source: options.Source = "world",
    count: Annotated[int, typer.Option(min=1, help="How many instructions.")] = 100,
    policy: Annotated[options.Policy | None, typer.Option(
        help="Mask the retrieval heads meanwhile, as many of the others, or as many of any.",
        show_default="none are masked; retrieval, if --tau, --top-k or --scores is given")] = None,
    tau: options.Tau = None,
    top_k: options.TopK = None,
    scores: options.Scores = None,
    head_seed: options.HeadSeed = 42,
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
    """Sample a response to each instruction (section 3), from the whole model or a masked one.

    They are stored, and a run that was stopped goes on when the same command is given again.

    Example: rmutils generate smollm2-135m --source self --count 50 --policy retrieval
    """
    from rmutils.contrast.drawing import draw_stored
    from rmutils.contrast.responses import ResponseConfig, respond_stored

    if policy is None and (tau, top_k, scores) != (None, None, None):
        policy = "retrieval"
    tau = options.threshold(model, tau, top_k) if policy else None
    config = ResponseConfig().changed({
        "max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p,
        "thinking": thinking, "seed": seed})
    lm = options.load_chat_model(model)
    if policy:
        heads = options.choose_heads(lm, model, policy, tau=tau, top_k=top_k, seed=head_seed,
                                     scores=scores)
        config = config.changed({"heads": sorted(heads)})
    drawn, _ = draw_stored(source, count, seed=seed, lm=lm)
    backend = options.backend_of(lm, model, engine, server, workers)
    table, artifact = respond_stored(backend, drawn.instructions, config, compute=compute,
                                     command=options.command_line(ctx))
    lengths = options.mean(table["tokens"].to_numpy())
    file = artifact.path("responses.parquet")
    if as_json:
        print(json.dumps({
            "model": lm.name, "source": source, "seed": seed, "dropped": drawn.dropped,
            "policy": policy, "tau": tau, "top_k": top_k, "heads": config.heads,
            "responses": len(table), "finished": int(table["finished"].sum()), "tokens": lengths,
            "artifact": artifact.name, "file": str(file)}, indent=1))
        return
    who = f"{lm.name}, {len(config.heads)} heads masked ({policy})" if policy else lm.name
    print(f"{who}: {len(table)} responses, {table['finished'].sum()} of them finished; "
          f"{options.shown(lengths)} tokens on average.")
    print(f"Instructions left out: {options.counts(drawn.dropped)}.")
    print(f"Stored as {artifact.name}: {file}")
