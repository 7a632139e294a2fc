"""All methods of `rmutils.longcontext.extension` side by side, as a stored result."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from rmutils.core.config import command_line
from rmutils.core.journal import Journal, one_thread, progress_bar
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.longcontext.extension import (
    Document,
    ExtensionConfig,
    extended,
    fine_tune,
    instances,
    window_wanted,
)
from rmutils.longcontext.reach import ReachConfig, guess, reach, readings
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.teaching import RECIPES
from rmutils.stats import ANY, DIFFERENCE, SHARE, Bounds, interval

TABLES = ("found", "losses", "training")


@dataclass(frozen=True)
class Extension:
    """Three tables."""

    # A row for each question: `method`, `tokens` (of the fine-tune so far), `length`, `text`,
    # `depth`, `found`.
    found: pd.DataFrame
    # `method`, `tokens`, `text`, `position`, `loss` (nats per token of the longest texts).
    losses: pd.DataFrame
    training: pd.DataFrame  # `method`, `step` (from 0), `loss` (on answers, nats per token)


EXTENSION = Stage.of_tables("extension", 1, Extension, lambda result: {
    "methods": result.training["method"].nunique(), "steps": result.training["step"].nunique()})


def extension(name: str, config: ExtensionConfig = ExtensionConfig(), *,
              journal: Path | None = None) -> Extension:
    """Extend, fine-tune and ask, method by method."""
    lm = load_model(name, dtype=torch.float32)
    kept = Journal(journal, [lm.state, RECIPES[name].digest(), config.identity()])
    packed = instances(lm, RECIPES[name], config)
    texts = len(config.reach.lengths) * config.reach.texts
    parts = {method: config.steps + texts * len(config.asked_after(method))
             for method in config.methods}
    done = sum(parts[method] for method in parts if method in kept)
    with one_thread(), progress_bar(  # so that the weights do not depend on the number of cores
            f"extensions of {name}", sum(parts.values()), unit="steps and texts",
            done=done) as advance:
        for method in config.methods:
            if method not in kept:
                kept[method] = run_method(
                    name, method, config, packed, advance, config.asked_after(method))
    return Extension(*(pd.concat([pd.DataFrame(kept[method][table]).assign(method=method)
                                  for method in config.methods], ignore_index=True)
                       for table in TABLES))


def extension_stored(name: str = "tiny-olmo3", config: ExtensionConfig = ExtensionConfig(), *,
                     compute: Compute = "auto") -> tuple[Extension, Artifact]:
    """`extension`, but a stored result is read instead; a stopped run goes on."""

    inputs = {"model": identify(name, torch.float32), "recipe": RECIPES[name].digest()}
    return EXTENSION.obtain(
        config, inputs, lambda journal: extension(name, config, journal=journal), compute=compute,
        command=command_line("run", "14_olmo3_recipe", "-p", "compute_extension", "auto"),
        model=name)


def answers_side_by_side(models: Mapping[str, LanguageModel], config: ReachConfig,
                         length: int) -> pd.DataFrame:
    """Ask several models about one text: a row for each fact, with what each model writes of it."""
    lm = next(iter(models.values()))
    reading = next(readings(lm, config, length))
    wrote = {name: guess(one, reading)[0] for name, one in models.items()}
    _, middle = lm.user_turn()

    def text(tokens: Sequence[int]) -> str:
        return lm.tokenizer.decode(tokens).strip()

    return pd.DataFrame([{
        "tokens back": round((1 - depth) * len(reading.shared)),
        "the answer begins": text(turn[:start]).partition(middle.strip())[2],
        **{name: f"{'✓' if said[i][0] == said[i][1] else '✗'} {text(said[i][0])}"
           for name, said in wrote.items()}}
        for i, (depth, turn, (start, _)) in enumerate(zip(
            reading.depths, reading.turns, reading.values, strict=True))])


def run_method(name: str, method: str, config: ExtensionConfig, packed: list[list[Document]],
               advance: Callable[[float], object], asked: Collection[int]) -> dict[str, list[dict]]:
    """One method, from the model as it was trained: the rows of `TABLES`, but for `method`."""
    lm = extended(load_model(name, dtype=torch.float32), method, config.factor, RECIPES[name])
    capacity = window_wanted(RECIPES[name], config.factor)
    rows: dict[str, list[dict]] = {table: [] for table in TABLES}

    def ask(steps: int) -> None:
        for table, part in zip(TABLES, reach(lm, config.reach, advance), strict=False):
            rows[table] += [{"tokens": steps * capacity} | row for row in part]

    if 0 in asked:
        ask(0)
    for step, loss in enumerate(fine_tune(lm, packed, capacity, config.rate)):
        rows["training"].append({"step": step, "loss": loss})
        advance(1)
        if step + 1 in asked:
            ask(step + 1)
    return rows


ENDS = ["value", "low", "high"]


def shares(found: pd.DataFrame) -> pd.DataFrame:
    """Share of facts found."""
    return _means(found, ["method", "tokens", "length"], "found", SHARE)


def at_start(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each method before its fine-tune."""
    return table[table["tokens"] == 0]


def at_end(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each method after its fine-tune."""
    return table[table["tokens"] == table.groupby("method")["tokens"].transform("max")]


def differences(found: pd.DataFrame, to: str) -> pd.DataFrame:
    """How much more each other method finds than this one, on the same facts."""
    shares = found.set_index(["method", "length", "text", "depth"])["found"].astype(float)
    return _less(shares, to, ["length"], DIFFERENCE)


def _less(values: pd.Series, to: str, by: Sequence[str], bounds: Bounds = ANY) -> pd.DataFrame:
    """Means, over texts, of what each other method has more than this one, row by row."""
    more = values - values.loc[to].reindex(values.index.droplevel("method")).to_numpy()
    others = more.drop(to, level="method").rename("more").reset_index()
    return _means(others, ["method", *by], "more", bounds)


def gained(found: pd.DataFrame, method: str) -> pd.DataFrame:
    """How much more a method finds after its fine-tune than before it, on the same facts."""
    own = found[found["method"] == method]
    fact = ["length", "text", "depth"]
    before, after = (own[own["tokens"] == own["tokens"].agg(which)].set_index(fact)["found"]
                     .astype(float) for which in ("min", "max"))
    more = (after - before).rename("difference").reset_index()
    return _means(more, ["length"], "difference", DIFFERENCE)


def loss_change(losses: pd.DataFrame, to: str, by: Sequence[str] = ("position",)) -> pd.DataFrame:
    """Loss of each other method less that of this one, on the same tokens."""
    return _less(losses.set_index(["method", "text", "position"])["loss"], to, by)


def _means(table: pd.DataFrame, by: list[str], column: str, bounds: Bounds) -> pd.DataFrame:
    rows = []
    for key, part in table.groupby(by, sort=False):
        found = interval(part[column], part["text"], bounds=bounds)
        rows.append(dict(zip(by, key, strict=True)) | found._asdict())
    return pd.DataFrame(rows)
