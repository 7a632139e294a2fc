"""Needles that a model still finds when most of its key heads forget the middle of the text."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from pydantic import Field

from rmutils.attention.head_memory import memory_by_heads
from rmutils.book.experiments import real_models
from rmutils.book.figures.report import number
from rmutils.book.figures.style import BLUE, CALLED, GREY, ORANGE, new_axes
from rmutils.book.findings import Measured, declare
from rmutils.core.config import Config, digest
from rmutils.core.errors import NotStored, require
from rmutils.core.experiment import Experiment, Plan, Run
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import JOURNAL, Artifact
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases, detect_stored, inputs_of, material
from rmutils.heads.masking import draw_layer_matched
from rmutils.heads.scores import HeadScores
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk
from rmutils.models.loading import ModelRef
from rmutils.stats import DIFFERENCE, SHARE, Contrast, contrast, holm, interval

WHOLE, NONE, TOP, MATCHED, ANYWHERE = (
    "whole cache", "no key head", "top key heads", "same layers", "anywhere")
KEY = ["score", "policy", "share"]
KeyHead = tuple[int, int]


class MemoryConfig(Config):
    """Which key heads keep the whole text, and which needles are asked for."""

    detect: DetectConfig
    """Cases by which heads are ranked."""
    scores: tuple[str, ...]
    """Scores by which they are. The first also has controls."""
    shares: tuple[float, ...]
    """Shares of the key heads that keep all, rounded."""
    asked: DetectConfig
    """Lengths, depth, needle set and the longest answer."""
    skipped: Annotated[int, Field(ge=0)] = 16
    """The first needles of the set, which choose heads."""
    needles: Annotated[int, Field(ge=1)]
    """How many of the next ones are asked."""
    sinks: int = 8
    """First tokens that the other key heads keep."""
    recent: int = 64
    """Most recent tokens that they keep."""
    seed: int = 42
    """Seed of the random choices, which are new for each needle."""


def ranking(scores: HeadScores, key_heads: int) -> list[KeyHead]:
    """Return all key heads, highest first: each has the score of its highest query head."""
    layers, heads = scores.shape
    best = scores.mean.reshape(layers, key_heads, heads // key_heads).max(2)
    order = np.argsort(-best, axis=None, kind="stable")
    return [(int(i) // key_heads, int(i) % key_heads) for i in order]


def conditions_of(rankings: dict[str, list[KeyHead]], shape: tuple[int, int], config: MemoryConfig,
                  needle: int) -> list[tuple[str, str, float, list[KeyHead]]]:
    """Return score, policy, share and key heads of each condition for a needle."""
    rows: list[tuple[str, str, float, list[KeyHead]]] = [
        ("", WHOLE, 1.0, [*next(iter(rankings.values()))]), ("", NONE, 0.0, [])]
    total = shape[0] * shape[1]
    for place, (score, order) in enumerate(rankings.items()):
        for share in config.shares:
            top = order[: round(share * total)]
            rows.append((score, TOP, share, top))
            if place or 2 * len(top) > total:
                continue
            rows.append((score, MATCHED, share, draw_layer_matched(
                shape, top, exclude=top, seed=config.seed + needle)))
            others = order[len(top) :]
            drawn = np.random.default_rng(config.seed + needle).permutation(len(others))
            rows.append((score, ANYWHERE, share, [others[i] for i in drawn[: len(top)]]))
    return rows


def memory_needles(lm: LanguageModel, config: MemoryConfig, *,
                   journal: Path | None = None) -> pd.DataFrame:
    """Ask for needles under every condition; a stopped run goes on case by case."""
    key_heads = lm.model.config.num_key_value_heads
    rankings = {name: ranking(detect_stored(lm, config.detect.changed({"score": name}))[0],
                              key_heads) for name in config.scores}
    cases = build_cases(lm, _asked(config, lm.corpus))
    kept, trunk, parts = Journal(journal, [lm.state, config.identity(), rankings, [
        case.input_ids for case in cases]]), Trunk(lm.model, []), []
    with progress_bar(f"memory by heads of {lm.name}", len(cases)) as advance:
        for case in sorted(cases, key=lambda case: (case.needle_index, case.length)):
            rows = conditions_of(rankings, (lm.shape[0], key_heads), config, case.needle_index)
            if case.id not in kept:
                trunk = Trunk(lm.model, case.input_ids[:-1], before=trunk)
                kept[case.id] = [_answer(lm, case.input_ids, trunk, heads, config)
                                 for _, _, _, heads in rows]
            parts.append(pd.DataFrame([row[:3] for row in rows], columns=KEY).assign(
                length=case.length, needle=case.needle_index,
                success=[answer_recall(case.needle.real_needle, said) > SUCCESS_ROUGE
                         for said, _ in kept[case.id]],
                kept=[share for _, share in kept[case.id]],
                response=[said for said, _ in kept[case.id]]))
            advance(1)
    return pd.concat(parts, ignore_index=True)


@torch.inference_mode()
def _answer(lm: LanguageModel, prompt: tuple[int, ...], trunk: Trunk, whole: list[KeyHead],
            config: MemoryConfig) -> tuple[str, float]:
    """A greedy answer, and the share of the cache's bytes that is left after it."""
    share = lm.shape[1] // lm.model.config.num_key_value_heads
    heads = [(layer, head * share) for layer, head in whole]
    said, newest = list[int](), prompt[-1]
    with memory_by_heads(lm, heads, sinks=config.sinks, recent=config.recent) as read:
        cache = read(prompt, trunk)
        while len(said) < config.asked.max_new_tokens:
            logits = lm.model(torch.tensor([[newest]], device=lm.model.device),
                              past_key_values=cache).logits
            newest = int(logits[0, -1].argmax())
            if newest in lm.stop_ids:
                break
            said.append(newest)
    return str(lm.tokenizer.decode(said, skip_special_tokens=True)).strip(), cache.share


def _asked(config: MemoryConfig, corpus: str) -> DetectConfig:
    """The grid of the needles that are asked."""
    needles = material(config.asked, corpus)[1][config.skipped :][: config.needles]
    return config.asked.changed({"needles": tuple(needles)})


def planned(plan: Plan) -> Iterator[Run]:
    """Yield the run of each model."""
    p = plan.content
    grid = real_models.detection()
    for model, own in p["models"].items():
        yield Run(model, MemoryConfig(
            detect=grid, scores=tuple(p["scores"]), shares=tuple(p["shares"]),
            needles=own["needles"], skipped=p["skipped"], sinks=p["sinks"], recent=p["recent"],
            asked=DetectConfig(lengths=tuple(own["lengths"]), depths=(p["depth"],),
                               needle_set=p["set"], max_new_tokens=p["max_new_tokens"])))


def _inputs(run: Run) -> dict[str, str]:
    ref, config = ModelRef(run.model), run.config
    return inputs_of(ref.identity, config.detect, ref.corpus) | {
        "asked": digest(inputs_of(ref.identity, _asked(config, ref.corpus), ref.corpus))}


def _make(run: Run, folder: Path) -> dict[str, Any]:
    found = memory_needles(ModelRef(run.model).load(), run.config, journal=folder / JOURNAL)
    found.to_parquet(folder / "answers.parquet", index=False, compression="zstd")
    return {"answers": len(found)}


MEMORY = Experiment[Run, Artifact](
    name="memory-by-heads", config=MemoryConfig, plan="memory_by_heads", planned=planned,
    keys=("model",), make=_make, inputs=_inputs, notebook="memory_by_heads",
    parameter="compute_memory")
FOUND = replace(MEMORY, plan="memory_found", label=lambda run: "found")
"""The same on needles that the model finds with its whole cache."""
MORE = replace(MEMORY, plan="memory_more", label=lambda run: "more")
"""The same on more needles."""
LONGER = replace(MEMORY, plan="memory_longer", label=lambda run: "longer")
"""The same in longer texts, and by other scores."""
LINES = {TOP: (BLUE, "o", "key heads that copy"), MATCHED: (ORANGE, "^", "others, same layers"),
         ANYWHERE: (GREY, "s", "others, any layer")}
MAIN = 0.4  # share of the key heads that decides


@cache
def stored(experiment: Experiment[Run, Artifact] = MORE) -> dict[
        str, tuple[pd.DataFrame, Artifact]]:
    """Look up what the models of a plan answered."""
    found = {}
    for run in experiment.runs().values():
        with suppress(NotStored):
            artifact = experiment.obtain(run, compute="never")
            found[run.model] = pd.read_parquet(artifact.path("answers.parquet")), artifact
    return found


def needles_kept(answers: pd.DataFrame) -> pd.DataFrame:
    """Return the needles found and the share of bytes kept, by condition."""
    rows = []
    for (_, policy, share), part in answers.groupby(KEY, sort=False):
        found = part.groupby("needle")["success"].mean()
        rows.append((policy, share, *interval(found, bounds=SHARE, cases=len(found)),
                     part["kept"].mean()))
    return pd.DataFrame(rows, columns=["policy", "share", "value", "low", "high", "kept"])


def top_minus_others(answers: pd.DataFrame, share: float, others: str = MATCHED) -> Contrast:
    """Compare the needles found with top key heads and with others, needle by needle."""
    part = answers[(answers["share"] == share) & (answers["score"] == "copy")]
    by_needle = part.pivot_table(index="needle", columns="policy", values="success")
    return contrast((by_needle[TOP] - by_needle[others]).to_numpy(), bounds=DIFFERENCE)


def primary() -> pd.DataFrame:
    """Apply the plan's rule: at 40 % of the key heads, Holm over the models."""
    rows = [{"model": model, **found.columns, "needles": found.clusters}
            for model, (answers, _) in stored().items()
            for found in [top_minus_others(answers, MAIN)]]
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"])) if rows else table


@cache
def longer() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Apply the plan's rules to longer texts: top key heads against others of the same layers by
    length, at 40 %; and the copy score against the others by score and share. Holm within each."""
    if not (found := stored(LONGER)):
        return pd.DataFrame(), pd.DataFrame()
    (answers, _), = found.values()
    lengths = pd.DataFrame([{"length": length, **top_minus_others(part, MAIN).columns}
                            for length, part in answers.groupby("length")])
    top = answers[answers["policy"] == TOP].pivot_table(
        index="needle", columns=["share", "score"], values="success")
    scores = pd.DataFrame([
        {"share": share, "score": score,
         **contrast((top[share]["copy"] - top[share][score]).to_numpy(), bounds=DIFFERENCE).columns}
        for share, score in top.columns if score != "copy"])
    return tuple(table.assign(p_holm=holm(table["p"])) for table in (lengths, scores))


def longer_table() -> pd.DataFrame:
    """Return the needles found in longer texts by who keeps them, as readers see them."""
    (answers, _), = stored(LONGER).values()
    rows = []
    for length, part in answers.groupby("length"):
        found = part.groupby(["score", "policy", "share"])["success"].sum()
        rows.append({
            "tokens": f"{length:,}", "bytes kept (%)": round(100 * part[part["share"] == MAIN][
                "kept"].mean()), "all": found["", WHOLE, 1.0]} | {
            name: found["copy", policy, MAIN] for policy, name in (
                (TOP, "that copy"), (MATCHED, "others, same layers"),
                (ANYWHERE, "others, any layer"))} | {
            score: found[score, TOP, MAIN] for score in ("attention", "dla", "locos")})
    return pd.DataFrame(rows)


def memory_figure(results: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the needles found by the share of key heads that keep the whole text."""
    figure, panels = new_axes(3.0, columns=len(results), sharey=True, flat=True)
    for axes, (model, answers) in zip(panels, results.items(), strict=True):
        table = needles_kept(answers)
        ends = table.set_index("policy")
        for shift, (policy, (colour, marker, label)) in enumerate(LINES.items()):
            part = pd.concat([ends.loc[[NONE]], ends.loc[[policy]], *(
                [ends.loc[[WHOLE]]] if policy == TOP else [])])
            place = 100 * part["share"] + 0.8 * (shift - 1)
            axes.plot(place, 100 * part["value"], color=colour, marker=marker, ms=4, lw=1.3,
                      label=label)
            axes.vlines(place, 100 * part["low"], 100 * part["high"], color=colour, lw=1)
        axes.set_ylim(-3, 103)
        axes.set_title(CALLED.get(model, model), fontsize=10)
        axes.tick_params(labelsize=9)
        axes.set_xlabel("key heads that keep the whole text (%)", fontsize=9)
    panels[0].set_ylabel("needles found (%)", fontsize=9)
    panels[-1].legend(fontsize=9, loc="lower right")
    return figure


def kept_table(experiment: Experiment[Run, Artifact] = MORE) -> pd.DataFrame:
    """Return all conditions of a plan as readers see them."""
    return pd.DataFrame([{
        "model": model, "whole text": row.policy,
        "of the key heads (%)": round(100 * row.share),
        "bytes of the cache (%)": round(100 * row.kept),
        "needles found (%)": number(100 * row.value, 100 * row.low, 100 * row.high)}
        for model, (answers, _) in stored(experiment).items()
        for row in needles_kept(answers).itertuples()])


FIGURE = "fig-memory-by-heads"


@declare("memory-kept", unit="percentage points", place=FIGURE, otherwise=(
    "On {model}, keeping the whole text for 40 % of the key heads saves {value} percentage "
    "points {more|fewer} needles {ci} if these heads copy than if others of the same layers do "
    "so: {verdict}."))
def kept(model: str) -> Measured:
    """Top key heads minus others of the same layers, at 40 %."""
    answers, artifact = _answers(model)
    p = primary().set_index("model").loc[model, "p_holm"]
    return Measured.contrast(top_minus_others(answers, MAIN), [artifact], p=p)


@declare("memory-kept-longer", unit="percentage points", place="memory-longer", otherwise=(
    "In texts of {length} tokens, keeping them for 40 % of the key heads saves {value} percentage "
    "points {more|fewer} needles {ci} if these heads copy than if others of the same layers do "
    "so: {verdict}."))
def kept_longer(length: int) -> Measured:
    """Top key heads of `qwen2.5-coder-0.5b` minus others of the same layers, at 40 %."""
    return _longer(0, length=length)


@declare("memory-by-copy", unit="percentage points", place="memory-longer", otherwise=(
    "With {percent} % of the key heads, those that copy save {value} percentage points "
    "{more|fewer} needles {ci} than those chosen by {score}: {verdict}."))
def by_copy(score: str, share: float) -> Measured:
    """Needles found in longer texts with key heads by copy score, minus those by another."""
    found = _longer(1, score=score, share=share)
    return replace(found, words={"percent": round(100 * share)})


def _longer(which: int, **key: object) -> Measured:
    require([] if stored(LONGER) else [LONGER.command])
    table, (answers, artifact) = longer()[which], stored(LONGER)["qwen2.5-coder-0.5b"]
    row, = (row for _, row in table.iterrows() if all(row[k] == v for k, v in key.items()))
    return Measured.row(row, [artifact], 100, clusters=answers["needle"].nunique(), p="p_holm")


@declare("memory-needles", unit="percent", place=FIGURE, otherwise="{value} % {ci}.")
def needles(model: str, share: float, policy: str = TOP) -> Measured:
    """Needles found when so many key heads keep the whole text, by default those that copy."""
    answers, artifact = _answers(model)
    table = needles_kept(answers)
    row = table[(table["policy"] == {0: NONE, 1: WHOLE}.get(share, policy))
                & (table["share"] == share)]
    return Measured.row(row.iloc[0], [artifact], 100, clusters=answers["needle"].nunique(),
                        verdict="")


def counted(model: str, share: float, policy: str = TOP) -> dict[str, object]:
    """Count the needles asked and found in a condition, for prose; dashes before any result."""
    if model not in stored():
        return {"found": "–", "asked": "–"}
    answers = stored()[model][0]
    success = answers[(answers["policy"] == policy) & (answers["share"] == share)]["success"]
    return {"found": int(success.sum()), "asked": len(success)}


def one_needle(model: str) -> pd.DataFrame:
    """Return what a model answers about the first needle that it finds with its whole cache, under
    the conditions that decide."""
    answers = stored()[model][0]
    found = answers[(answers["policy"] == WHOLE) & answers["success"]]
    answers = answers[answers["needle"] == found["needle"].min()]
    keepers = {(WHOLE, 1.0): "all heads",
               (TOP, MAIN): f"the {100 * MAIN:.0f}\N{NO-BREAK SPACE}% that copy most",
               (MATCHED, MAIN): "the same number of others in the same layers"}
    said = answers.set_index(["policy", "share"])["response"]
    return pd.DataFrame({"who keeps the text": keepers.values(),
                         "answer": [said[condition] for condition in keepers]})


def bytes_kept(model: str, share: float) -> int:
    """Return the percent of the cache's bytes that are left."""
    table = needles_kept(_answers(model)[0])
    row = table[(table["policy"] == TOP) & (table["share"] == share)]
    return round(100 * row["kept"].iloc[0])


def _answers(model: str) -> tuple[pd.DataFrame, Artifact]:
    require([] if model in stored() else [MORE.command])
    return stored()[model]
