"""Answers by vLLM, as in the paper, beside those by transformers."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rmutils.book.experiments.planned_runs import RETMASK, planned_runs
from rmutils.book.figures.report import number
from rmutils.core.config import Config
from rmutils.core.errors import UserError, require
from rmutils.core.experiment import Experiment, Plan
from rmutils.core.journal import Journal, one_thread, progress_bar
from rmutils.core.results import JOURNAL, Artifact, stored, write_tables
from rmutils.heads import mask_heads
from rmutils.heads.detection import load
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.engine.generation import generate
from rmutils.pipeline.retmask import RETMASK as RUN
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskRun, resolved, run_retmask
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import ResponseConfig
from rmutils.preference.vllm import VLLM
from rmutils.stats import contrast

OURS, THEIRS = "transformers", "vllm"
GREEDY, SAMPLED = "greedy", "sampled"
WHOLE, MASKED = "whole", "masked"
ALONE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""Environment in which vLLM computes in this process and in its threads, so that its processor
seconds are those of the process."""


class EnginesConfig(Config):
    """Which instructions of a stored run are answered again, and how."""

    model: str
    seed: int
    """Seed of the run of RetMask, which has the instructions and the masked heads."""
    instructions: int
    """So many of its first ones."""
    max_new_tokens: int
    temperature: float
    """At which answers are sampled."""


def planned(plan: Plan) -> Iterator[EnginesConfig]:
    p = plan.content
    for model, own in p["models"].items():
        yield EnginesConfig(model=model, **own, max_new_tokens=p["max_new_tokens"],
                            temperature=p["sampled"]["temperature"])


def run_of(config: EnginesConfig) -> RetMaskRun:
    """The stored run that is answered again."""
    own, = (one for one in planned_runs(config.model)
            if (one.strategy, one.seed) == (RETMASK, config.seed))
    return run_retmask(config.model, own, compute="never")


Answers = list[list[int]]


def _make(config: EnginesConfig, folder: Path) -> dict[str, Any]:
    """Write `answers`, one by one, and `seconds`, of the greedy ones of each engine and side."""
    if VLLM.version() != ENGINES.read_plan().content["engine"]:
        raise UserError(f"{VLLM.version()} is installed, and the plan is about "
                        f"{ENGINES.read_plan().content['engine']}. Install it: `make vllm`.")
    run, lm = run_of(config), load_model(config.model)
    asked = [Instruction(row.id, row.prompt)
             for row in run.pairs.head(config.instructions).itertuples()]
    prompts = [lm.render(one.text, thinking=True) for one in asked]
    journal, rows, spent = Journal(folder / JOURNAL), [], []
    sides = {side: ResponseConfig(heads=heads, max_new_tokens=config.max_new_tokens,
                                  temperature=0, seed=config.seed)
             for side, heads in ((WHOLE, ()), (MASKED, tuple(run.heads)))}

    def by_vllm(how: ResponseConfig) -> Answers:
        found: dict[int, list[int]] = {}
        vllm.write(asked, how, lambda index, tokens, _: found.update({index: tokens}))
        return [found[index] for index in range(len(asked))]

    def by_transformers(how: ResponseConfig) -> Answers:
        with mask_heads(lm, how.heads, how.how):
            said: Answers = generate(lm, prompts, max_new_tokens=how.max_new_tokens)
        return said

    def block(side: str, decoding: str, engine: str, how: ResponseConfig) -> Answers:
        name = f"{side} {decoding} {engine}"
        if name not in journal:
            journal[name] = _timed(by_vllm if engine == THEIRS else by_transformers, how)
        advance(1)
        if decoding == GREEDY:
            spent.append({"engine": engine, "side": side, **journal[name]["spent"]})
        answers: Answers = journal[name]["answers"]
        return answers

    with (patch.dict(os.environ, ALONE), one_thread(),
          progress_bar(f"engines of {config.model}", 6, unit="blocks") as advance):
        vllm = VLLM(lm)
        theirs, sampled = {}, {}
        for side, greedy in sides.items():
            if f"{side} {SAMPLED} {THEIRS}" not in journal:  # an engine starts, and masks
                vllm.write([Instruction.of("Hello.")], greedy.changed({"max_new_tokens": 1}),
                           lambda *_: None)
            theirs[side] = block(side, GREEDY, THEIRS, greedy)
            sampling = greedy.changed({"temperature": config.temperature})
            sampled[side] = block(side, SAMPLED, THEIRS, sampling)
        vllm.close()
        for side, greedy in sides.items():
            ours = block(side, GREEDY, OURS, greedy)
            with mask_heads(lm, greedy.heads, greedy.how):
                for one, prompt, *said in zip(asked, prompts, ours, theirs[side], sampled[side],
                                              strict=True):
                    rows += [{"side": side, "id": one.id, **row}
                             for row in _compared(lm, prompt, *said, config)]
    answers = pd.DataFrame(rows)
    answers["text"] = [lm.tokenizer.decode(tokens, skip_special_tokens=True)
                       for tokens in answers["tokens"]]
    write_tables({"answers": answers, "seconds": pd.DataFrame(spent)}, folder)
    return {"answers": len(answers)}


def _timed(write: Callable[[ResponseConfig], Answers], how: ResponseConfig) -> dict[str, Any]:
    """Return answers, and what they took; `load` is the machine's, in processes, after it."""
    started, used = time.perf_counter(), time.process_time()
    answers = write(how)
    return {"answers": answers, "spent": {
        "wall": time.perf_counter() - started, "processor": time.process_time() - used,
        "answers": len(answers), "load": os.getloadavg()[0]}}


def _compared(lm: LanguageModel, prompt: list[int], ours: list[int], theirs: list[int],
              sampled: list[int], config: EnginesConfig) -> Iterator[dict[str, Any]]:
    """The answers to an instruction. That by vLLM says where it leaves ours, `at`, and how much
    lower we put its token there, `gap`; the sampled one, how much it surprises more than expected,
    `surprise`, in all its `drawn` tokens together, in nats."""
    yield {"engine": OURS, "decoding": GREEDY, "tokens": ours}
    row: dict[str, Any] = {"engine": THEIRS, "decoding": GREEDY, "tokens": theirs,
                           "at": math.nan, "gap": math.nan}
    stop = min(lm.stop_ids)  # stands for all tokens that end an answer
    if ours != theirs:
        one, two = ([*tokens, stop] for tokens in (ours, theirs))
        at = next(i for i, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1])
        logits = _logits(lm, prompt, ours[:at], Tensor.amax)[-1]
        row |= {"at": at, "gap": float(logits[one[at]] - logits[two[at]])}
    yield row
    drawn = torch.tensor([*sampled, stop][: config.max_new_tokens])
    logits = _logits(lm, prompt, sampled, Tensor.logsumexp, config.temperature)
    odds = logits[: len(drawn)].softmax(-1)
    surprise = -odds[range(len(drawn)), drawn].log() - torch.special.entr(odds).sum(-1)
    yield {"engine": THEIRS, "decoding": SAMPLED, "tokens": sampled, "drawn": len(drawn),
           "surprise": float(surprise.sum())}


@torch.inference_mode()
def _logits(lm: LanguageModel, prompt: list[int], tokens: list[int], join: Callable[..., Tensor],
            temperature: float = 1) -> Tensor:
    """Return the logits that decide each token and the one after them. The first of the tokens
    that end an answer stands for all of them, joined."""
    logits = lm.model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :].double()
    logits, stops = logits / temperature, sorted(lm.stop_ids)
    joined = join(logits[:, stops], -1)
    logits[:, stops] = -torch.inf
    logits[:, stops[0]] = joined
    return logits


def _inputs(run: EnginesConfig) -> dict[str, str]:
    return {"model": identify(run.model), "run": run_of(run).artifact.key,
            "engine": ENGINES.read_plan().content["engine"]}


ENGINES = Experiment[EnginesConfig, Artifact](
    name="engines", config=EnginesConfig, plan="vllm_real", planned=planned, keys=("model",),
    make=_make, inputs=_inputs, notebook="09_data_and_training", parameter="compute_engines")


def compare_engines(answers: pd.DataFrame, seconds: pd.DataFrame) -> dict[str, Any]:
    """Compare the engines on a model: how many instructions have the same greedy answers, whole,
    masked and both; the largest gap where answers part; how much more than expected sampled answers
    surprise, in nats per token; processor seconds per greedy answer."""
    greedy = answers[(answers["decoding"] == GREEDY) & (answers["engine"] == THEIRS)]
    same = greedy.set_index(["id", "side"])["at"].isna().unstack()
    drawn = answers[answers["decoding"] == SAMPLED].groupby("id")[["surprise", "drawn"]].sum()
    spent = seconds.groupby("engine")[["processor", "answers"]].sum()
    return {"instructions": len(same), WHOLE: same[WHOLE].sum(), MASKED: same[MASKED].sum(),
            "pairs": same.all(axis=1).sum(), "gap": greedy["gap"].max(),
            "surprise": contrast(drawn["surprise"] / drawn["drawn"].mean()).interval,
            **(spent["processor"] / spent["answers"]).to_dict()}


def engines() -> dict[str, dict[str, Any]]:
    """Return `compare_engines` of each model whose run is stored."""
    runs = ENGINES.collect()
    if not runs.stored:
        require([*runs.missing.values()][:1])
    return {model: compare_engines(tables["answers"], tables["seconds"])
            for model, (tables, _) in runs.by_model().items()}


SAME = {WHOLE: "same answers, whole model", MASKED: "same answers, masked", "pairs": "same pairs"}
SURPRISE = "surprise, sampled (nats per token)"
SECONDS = {THEIRS: "vLLM (s per answer)", OURS: "transformers (s per answer)"}


def compared() -> pd.DataFrame:
    """Return `engines` as the chapter shows it, a row per model."""
    return pd.DataFrame([
        {"model": model, **{title: f"{one[name]} of {one['instructions']}"
                            for name, title in SAME.items()},
         SURPRISE: number(*one["surprise"]),
         **{title: one[name] for name, title in SECONDS.items()}}
        for model, one in engines().items()])


TRAINED = "tiny-llama"
"""The model whose whole run was repeated with answers by vLLM (`data/plans/vllm_pairs.yml`)."""


def runs_by_engine() -> pd.DataFrame:
    """Return what each stored run of RetMask on `TRAINED` gave, by who answered."""
    planned = [resolved(TRAINED, run) for run in planned_runs(TRAINED) if run.strategy == RETMASK]
    runs = {(one.manifest["inputs"].get("engine", OURS), one.manifest["config"]["seed"]): one
            for one in stored(RUN.name) if one.shipped and one.model == TRAINED
            and RetMaskConfig.from_identity(one.manifest["config"]) in planned}
    pairs = {key: pd.read_parquet(found.path("pairs.parquet")).set_index("id")
             for key, found in runs.items()}
    rows = []
    for (engine, seed), found in sorted(runs.items()):
        own, other = pairs[engine, seed], pairs.get((OURS, seed))
        after = load(found.folder, TRAINED, "copy")
        heads = json.loads(found.path("run.json").read_text())["heads"]
        rows.append({
            "engine": engine, "seed": seed, "pairs": len(own),
            **{side: own[f"{side}_tokens"].mean() for side in ("chosen", "rejected")},
            "found": after.cases["success"].mean(),
            "score": np.mean([after.mean[layer, head] for layer, head in heads]),
            **{f"same_{side}": np.nan if engine == OURS or other is None else
               (own[side] == other[side].reindex(own.index))[own.index.isin(other.index)].mean()
               for side in ("chosen", "rejected")}})
    return pd.DataFrame(rows)


ROWS = {"pairs": "pairs of answers", "chosen": "tokens of a chosen answer",
        "rejected": "tokens of a rejected answer",
        "found": "needles found after training (share)",
        "score": "score of the masked heads after it"}


def trained_on_answers() -> pd.DataFrame:
    """Return the run by vLLM beside those by transformers, as the chapter shows it."""
    runs = runs_by_engine().set_index("engine")
    ours, other = runs.loc[[OURS]], runs[runs.index != OURS].iloc[0]
    shown = pd.DataFrame([
        {"": title, "vLLM": f"{other[name]:.4g}",
         "transformers, same seed": f"{ours.loc[ours['seed'] == other['seed'], name].iloc[0]:.4g}",
         "transformers, all seeds": f"{ours[name].min():.4g} to {ours[name].max():.4g}"}
        for name, title in ROWS.items()])
    same = pd.DataFrame([
        {"": f"{side} answers equal to those of transformers",
         "vLLM": f"{other[f'same_{side}']:.0%}"} for side in ("chosen", "rejected")])
    return pd.concat([shown, same], ignore_index=True)
