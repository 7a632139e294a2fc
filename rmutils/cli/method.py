"""`rmutils generate`: responses of a model, whole or with heads masked.

`rmutils pairs`: preference pairs by one of the paper's strategies.

`rmutils train`: a model from preference pairs.

`rmutils retmask`: the whole method in one command.
"""

from __future__ import annotations

import json
import os
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rmutils.cli import options
from rmutils.cli.project import parameter_pairs
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.models import LanguageModel
from rmutils.preference.judges import Judge
from rmutils.preference.pairs import Pairs


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
    from rmutils.preference.instructions import draw_stored
    from rmutils.preference.responses import ResponseConfig, respond_stored

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


def pairs(
    ctx: typer.Context,
    model: options.Model,
    out: Annotated[Path, typer.Option(help="File (.parquet) for the pairs.")],
    strategy: Annotated[str, typer.Option(
        help="retmask, smaller-model, win-lose-pair, non-retrieval-mask, random-mask, sft, longreward "
             "(which reads released pairs), or one that a package has added.")] = "retmask",
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
    from rmutils.preference.instructions import draw_stored
    from rmutils.preference.responses import ResponseConfig
    from rmutils.preference.strategies import STRATEGIES, contrast

    way = STRATEGIES[strategy]
    if way.smaller and not smaller:
        raise UserError(f"--strategy {strategy} needs --smaller MODEL.")
    tau = options.threshold(model, tau, top_k)
    config = ResponseConfig().changed({
        "max_new_tokens": max_new_tokens, "temperature": temperature, "top_p": top_p,
        "thinking": thinking, "seed": seed})
    options.check_room(out)
    lm = options.load_chat_model(model)
    if way.released:
        found, origin = way.released(lm, number, seed), {}
    else:
        heads = way.choose_heads(options.scores_of(lm, model, scores), tau=tau, top_k=top_k,
                                 seed=head_seed) if way.policy else []
        other = (options.backend_of(options.load_chat_model(smaller), smaller, engine,
                                    workers=workers)
                 if way.smaller else None)
        rater = _judge(judge, judge_model, lm, thinking) if way.judged else None
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
    from rmutils.preference.judges import Proxy, ServerJudge

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


def train(
    model: Annotated[str, typer.Argument(help="Registry name, folder, .gguf file or hub id.")],
    pairs: Annotated[Path, typer.Argument(
        help="Pairs (.parquet) with the columns prompt, chosen, rejected.")],
    out: Annotated[Path, typer.Option(help="Folder for the trained model.")],
    recipe: Annotated[str, typer.Option(help="paper, embedded or smoke.")] = "embedded",
    objective: Annotated[str, typer.Option(
        help="dpo, or sft on the chosen side only.")] = "dpo",
    learning_rate: Annotated[float | None, typer.Option(
        help="Another one than the recipe's; it falls to a tenth, as the paper's does.")] = None,
    lora: Annotated[int | None, typer.Option(
        help="Train LoRA matrices of this rank instead of all weights.")] = None,
    thinking: Annotated[bool, typer.Option(
        help="Whether the prompts leave room for thoughts, as they did when the answers came.",
    )] = True,
    seed: Annotated[int, typer.Option(help="Order of the pairs.")] = 42,
) -> None:
    """Train a model on preference pairs (section 3; appendix D for SFT); print where it is.

    A run that was stopped goes on when the same command is given again.

    Example: rmutils train tiny-llama pairs.parquet --recipe embedded --out trained

    On several GPUs, from a clone of the project (zero1.yaml, zero2.yaml or fsdp.yaml):
    accelerate launch --config_file rmutils/training/accelerate/zero1.yaml -m rmutils train
    llama-3.1-8b-instruct pairs.parquet --recipe paper --out trained
    """
    import pandas as pd

    from rmutils.training import RECIPES
    from rmutils.training import train as train_model

    if recipe not in RECIPES:
        raise UserError(f"--recipe {recipe}: one of {', '.join(RECIPES)}.")
    if not pairs.is_file():
        raise UserError(f"{pairs}: no such file. Write the table of "
                        f"`rmutils.preference.pairs.make_pairs` there.")
    given = {"objective": objective, "lora_rank": lora, "thinking": thinking, "seed": seed}
    if learning_rate is not None:
        given |= {"learning_rate": learning_rate, "min_learning_rate": learning_rate / 10}
    chosen = RECIPES[recipe].changed(given)
    try:
        table = pd.read_parquet(pairs)
    except (ValueError, OSError) as error:
        raise UserError(f"{pairs} is not a parquet file: {error}.") from error
    folder = train_model(model, table, chosen, out)
    if os.environ.get("RANK", "0") == "0":  # one of the processes of `accelerate launch`
        print(folder)


retmask_app = typer.Typer(add_completion=False)
BACKEND = "compute_backend."


# Typer has no repeatable option with two values, so `-p` arrives among the arguments.
@retmask_app.command("retmask", context_settings={"ignore_unknown_options": True})
def retmask(
    model: Annotated[str, typer.Argument(help="Registry name, folder or hub id.")],
    parameters: Annotated[list[str] | None, typer.Argument(
        metavar="[-p NAME VALUE]...", help="What is to be different; see --list.")] = None,
    show: Annotated[bool, typer.Option("--list", help="List names and values, and stop.")] = False,
    workers: options.Workers = None,
    compute: Annotated[str, typer.Option(help="auto, always or never.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Detect, mask, generate pairs, train, detect again (sections 2 and 3).

    A run that was stopped goes on when the same command is given again. The recipe is named
    (embedded, paper or smoke), and its values can be changed one by one. Those of
    `compute_backend` say who answers, and over how many GPUs the training is shared.

    Example: rmutils retmask tiny-llama -p instructions 500 -p recipe.learning_rate 5e-5
    """
    from rmutils.core.journal import default_workers
    from rmutils.pipeline.retmask import RetMaskConfig, run_retmask
    from rmutils.training import RECIPES
    from rmutils.training.compute_backend import ComputeBackend, with_new_names

    if compute not in ("auto", "always", "never"):
        raise UserError(f"--compute {compute}: one of auto, always, never.")
    given = with_new_names(parameter_pairs(parameters or []))
    name = given.pop("recipe", "embedded")
    if name not in RECIPES:
        raise UserError(f"-p recipe {name}: one of {', '.join(RECIPES)}.")
    backend = ComputeBackend().changed({key.removeprefix(BACKEND): given.pop(key)
                                        for key in [*given] if key.startswith(BACKEND)})
    config = RetMaskConfig(recipe=RECIPES[name]).changed(given)
    if show:
        _list(config)
        _list(backend, BACKEND)
        return
    run = run_retmask(model, config, compute=compute, compute_backend=backend,
                      workers=workers or backend.workers(default_workers()))
    summary = {
        "model": model, "artifact": run.artifact.name, "training": run.training,
        "heads": run.heads, "pairs": len(run.pairs), "dropped": run.dropped,
        "found_before": float(run.before.cases["success"].mean()),
        "found_after": float(run.after.cases["success"].mean()),
        "score_before": float(run.before.mean.mean()), "score_after": float(run.after.mean.mean()),
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    typer.echo(f"{len(run.pairs)} pairs, {sum(run.dropped.values())} dropped; "
               f"{len(run.heads)} heads masked.")
    typer.echo("needles found: {found_before:.3f} before, {found_after:.3f} after\n"
               "mean retrieval score of all heads: {score_before:.4f} before, {score_after:.4f} "
               "after".format(**summary))
    typer.echo(f"Stored as {run.artifact.name}; the weights are {run.training}.")


def _list(config: Config, before: str = "") -> None:
    for name in config.dotted_names():
        typer.echo(f"{before}{name} = {attrgetter(name)(config)}")
