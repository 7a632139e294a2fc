"""The steps of RetMask as commands, and the whole of it: `rmutils generate`, ..., `retmask`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from rmutils.cli import options
from rmutils.cli.from_configs import Part, configured
from rmutils.core.config import Config
from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.files import check_table, read_table, write_table
from rmutils.core.journal import default_workers
from rmutils.core.validation import Count
from rmutils.heads.masking import check_free, export_masked
from rmutils.models import LanguageModel, load_model
from rmutils.pipeline import retmask as pipeline
from rmutils.preference.instructions import SOURCES, draw_stored
from rmutils.preference.judges import GEMMA, Proxy, ServerJudge
from rmutils.preference.pairs import Pairs
from rmutils.preference.responses import BACKENDS, ResponseConfig, respond_stored
from rmutils.preference.strategies import STRATEGIES, contrast
from rmutils.training import RECIPES
from rmutils.training import train as train_model
from rmutils.training.compute_backend import ComputeBackend
from rmutils.training.encoding import COLUMNS
from rmutils.training.recipes import TrainRecipe

RESPONSES = Part(ResponseConfig(), skip=("heads",))


class Answering(Config):
    """Who answers."""

    backend: Annotated[str, BACKENDS] = "transformers"
    """Who answers on this machine."""


class Drawing(Config):
    """Which instructions are answered."""

    source: Annotated[str, SOURCES] = "world"
    """Where the instructions come from; a .jsonl file does, too."""
    count: Count = 100
    """How many instructions."""


@configured(drawing=Drawing(), choice=options.HeadChoice(), config=RESPONSES,
            answering=Answering())
@options.loads_models
def generate(
    ctx: typer.Context,
    model: options.Model,
    drawing: Drawing,
    choice: options.HeadChoice,
    config: ResponseConfig,
    answering: Answering,
    server: options.Servers = None,
    workers: options.Workers = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Sample a response to each instruction (section 3), from the whole model or a masked one.

    They are stored, and a run that was stopped goes on when the same command is given again.

    Example: rmutils generate smollm2-135m --source self --count 50 --policy retrieval
    """
    policy = choice.chosen_policy()
    tau = choice.threshold(model) if policy else None
    lm = options.load_chat_model(model)
    if policy or choice.heads:
        config = config.changed({"heads": sorted(choice.chosen_heads(lm, model))})
    drawn, _ = draw_stored(drawing.source, drawing.count, seed=config.seed, lm=lm)
    backend = options.backend_of(lm, model, answering.backend, server, workers)
    table, artifact = respond_stored(backend, drawn.instructions, config, compute=compute,
                                     command=options.command_line(ctx))
    lengths = options.mean(table["tokens"].to_numpy())
    file = artifact.path("responses.parquet")
    if as_json:
        print(json.dumps({
            "model": lm.name, "source": drawing.source, "seed": config.seed,
            "dropped": drawn.dropped, "policy": policy, "tau": tau, "top_k": choice.top_k,
            "heads": config.heads, "responses": len(table),
            "finished": int(table["finished"].sum()), "tokens": lengths,
            "artifact": artifact.name, "file": str(file)}, indent=1))
        return
    who = lm.name
    if config.heads:
        who += f", {len(config.heads)} heads masked ({policy or 'as given'})"
    print(f"{who}: {len(table)} responses, {table['finished'].sum()} of them finished; "
          f"{options.shown(lengths)} tokens on average.")
    print(f"Instructions left out: {options.counts(drawn.dropped)}.")
    print(f"Stored as {artifact.name}: {file}")


class Pairing(Config):
    """Where pairs come from."""

    strategy: Annotated[str, STRATEGIES] = "retmask"
    """Where the rejected responses come from; longreward reads released pairs."""
    source: Annotated[str, SOURCES] = "world"
    """Where the instructions come from; a .jsonl file does, too."""
    pairs: Count = 1000
    """How many instructions; pairs that teach nothing are dropped."""
    smaller: str | None = None
    """For smaller-model: the model of the rejected side."""
    judge: str = "proxy"
    """For win-lose-pair: the URL of a server with OpenAI's interface, or proxy, the model's own
    likelihoods (not the paper's judge)."""
    judge_model: str = GEMMA
    """The model behind that URL."""


@configured(pairing=Pairing(), choice=Part(options.HeadChoice(), skip=("policy", "heads")),
            config=RESPONSES, answering=Answering())
@options.loads_models
def pairs(
    ctx: typer.Context,
    model: options.Model,
    out: Annotated[Path, typer.Option(
        help="File for the pairs: .parquet, .jsonl or .csv.")],
    pairing: Pairing,
    choice: options.HeadChoice,
    config: ResponseConfig,
    answering: Answering,
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
    strategy, seed = pairing.strategy, config.seed
    way = STRATEGIES[strategy]
    if way.smaller and not pairing.smaller:
        raise UserError(f"--strategy {strategy} needs --smaller MODEL.")
    tau = choice.threshold(model)
    options.check_room(out)
    check_table(out)
    lm = options.load_chat_model(model)
    if way.released:
        found, origin = way.released(lm, pairing.pairs, seed), {}
    else:
        heads = way.choose_heads(choice.head_scores(lm, model), tau=tau, top_k=choice.top_k,
                                 seed=choice.head_seed) if way.policy else []
        other = (options.backend_of(options.load_chat_model(pairing.smaller), pairing.smaller,
                                    answering.backend, workers=workers) if way.smaller else None)
        rater = None
        if way.judged:
            rater = (Proxy(lm, config.thinking) if pairing.judge == "proxy"
                     else ServerJudge(pairing.judge, pairing.judge_model))
        drawn, _ = draw_stored(pairing.source, pairing.pairs, seed=seed, lm=lm)
        made = contrast(
            strategy, options.backend_of(lm, model, answering.backend, server, workers),
            drawn.instructions, config, heads=heads, other=other, judge=rater, compute=compute,
            command=options.command_line(ctx))
        found = made.pairs
        origin = {"source": pairing.source, "seed": seed, "left_out": drawn.dropped,
                  "heads": heads, "judge": rater and rater.name,
                  "artifacts": [a.name for a in made.artifacts]}
    write_table(found.table, out)
    record = {"model": lm.name, "strategy": strategy, "pairs": len(found.table),
              "dropped": found.dropped, "tokens": _tokens(lm, found), **origin, "file": str(out)}
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        _show(record)


def _tokens(lm: LanguageModel, found: Pairs) -> dict[str, dict[str, float]]:
    """Mean lengths, as Table 12 has them."""
    prompts = [len(lm.encode(text)) for text in found.table["prompt"]]
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


@configured(changes=Part(TrainRecipe(), raw=True, names={"lora_rank": "--lora"}))
@options.loads_models
def train(
    model: options.Model,
    pairs: Annotated[Path, typer.Argument(
        help="Pairs with the columns prompt, chosen, rejected: .parquet, .jsonl or .csv.")],
    out: Annotated[Path, typer.Option(help="Folder for the trained model.")],
    changes: dict[str, str],
    recipe: Annotated[str, typer.Option(
        metavar=f"[{'|'.join(RECIPES)}]", help="The values that are not given.")] = "embedded",
) -> None:
    """Train a model on preference pairs (section 3; appendix D for SFT); print where it is.

    A learning rate that is given falls to a tenth, as the paper's does. A run that was stopped goes
    on when the same command is given again.

    Example: rmutils train tiny-llama pairs.parquet --recipe embedded --out trained

    On several GPUs, from a clone of the project (zero1.yaml, zero2.yaml or fsdp.yaml):
    accelerate launch --config_file rmutils/training/accelerate/zero1.yaml -m rmutils train
    llama-3.1-8b-instruct pairs.parquet --recipe paper --out trained
    """
    if recipe not in RECIPES:
        raise UserError(f"--recipe {recipe}: one of {', '.join(RECIPES)}."
                        f"{did_you_mean(recipe, RECIPES)}")
    chosen = RECIPES[recipe].changed(changes)
    if "learning_rate" in changes and "min_learning_rate" not in changes:
        chosen = chosen.changed({"min_learning_rate": chosen.learning_rate / 10})
    options.check_room(out, folder=True)
    table = read_table(pairs, text=COLUMNS)
    folder = train_model(model, table, chosen, out)
    if os.environ.get("RANK", "0") == "0":  # one of the processes of `accelerate launch`
        print(folder)


@options.loads_models
def merge(
    model: options.Model,
    out: Annotated[Path, typer.Argument(help="Folder for the whole model.")],
) -> None:
    """Write a model as one folder (safetensors, tokenizer, settings), which transformers and vLLM
    load; the adapter of a LoRA training is merged into the weights. Print where it is.

    Example: rmutils merge my-adapter whole-model
    """
    check_free(out)
    print(export_masked(load_model(model), [], out))


@configured(config=Part(pipeline.RetMaskConfig(), names={"responses.how": "--how"}),
            backend=Part(ComputeBackend(), prefix="compute_backend."))
@options.loads_models
def retmask(
    model: options.Model,
    config: pipeline.RetMaskConfig,
    backend: ComputeBackend,
    show: options.List = False,
    workers: options.Workers = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Detect, mask, generate pairs, train, detect again (sections 2 and 3).

    A run that was stopped goes on when the same command is given again. `--recipe` names a recipe
    (embedded, paper or smoke), and its values can be changed one by one. Those of
    `compute_backend` say who answers, and over how many GPUs the training is shared.

    Example: rmutils retmask tiny-llama --instructions 500 --recipe.learning-rate 5e-5
    """
    if show:
        options.list_values(config)
        options.list_values(backend, "compute_backend.")
        return
    run = pipeline.run_retmask(model, config, compute=compute, compute_backend=backend,
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
