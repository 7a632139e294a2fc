"""What retrieval heads look at on ordinary text, beside the other heads of their layers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils.book.chapters.heads_at_work.ordinary_texts import sources, windows
from rmutils.book.experiments import real_models
from rmutils.core.config import Config, digest
from rmutils.core.experiment import Experiment, Plan, Run
from rmutils.core.journal import progress_bar
from rmutils.core.results import Artifact, write_tables
from rmutils.heads.attention_kinds import KINDS, Looks, copyable, looks
from rmutils.heads.detection import DetectConfig, detect_stored, inputs_of
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef

LOOKED = KINDS.index("copy")
"""From this kind on, a token was looked at for what it is, not for where it stands."""
BEFORE = 24
"""Tokens of an example that are shown."""


class WatchConfig(Config):
    """Which heads are retrieval heads, and on which texts heads are watched."""

    detect: DetectConfig
    """Cases by which heads are ranked."""
    tau: float
    """Retrieval heads have at least this copy score."""
    tokens: int
    """Tokens of each window."""
    windows: int
    """Windows of each kind of text."""


class HeadsAtWorkConfig(WatchConfig):
    """Which examples are kept, besides."""

    examples: int = 3
    """Positions of the highest head that are kept, for each kind of text."""


def heads_at_work(lm: LanguageModel, scores: HeadScores,
                  config: HeadsAtWorkConfig) -> dict[str, pd.DataFrame]:
    """Watch all heads of the layers that have retrieval heads, on all windows."""
    chosen = set(scores.select(tau=config.tau))
    layers = tuple(sorted({layer for layer, _ in chosen}))
    heads = heads_of(layers, scores, chosen)
    parts, about, examples = [], [], []
    every = [*windows(lm, config.tokens, config.windows)]
    with progress_bar(f"heads of {lm.name} at work", len(every), unit="windows") as advance:
        for text, window, ids in every:
            seen = looks(lm, ids, layers)
            about.append((text, window, len(ids) - 2, copyable(ids).sum()))
            counts = (seen.kinds[..., None] == np.arange(len(KINDS))).sum(2)
            parts.append(heads[["layer", "head"]].assign(
                text=text, window=window,
                **{kind: counts[..., i].ravel().astype("int16") for i, kind in enumerate(KINDS)},
                distance=seen.distance.mean(-1).ravel(), entropy=seen.entropy.mean(-1).ravel()))
            examples += [(text, window, *one) for one in hardest(
                lm, seen, scores.ranking()[0], config.examples)]
            advance(1)
    kept = pd.DataFrame(examples, columns=[
        "text", "window", "position", "at", "weight", "kind", "before", "seen", "here", "next"])
    kept["rank"] = kept.groupby("text")["weight"].rank(ascending=False, method="first").astype(int)
    return {"heads": heads, "kinds": pd.concat(parts, ignore_index=True),
            "windows": pd.DataFrame(about, columns=["text", "window", "positions", "copyable"]),
            "examples": kept[kept["rank"] <= config.examples].sort_values(["text", "rank"])}


def heads_of(layers: Iterable[int], scores: HeadScores, chosen: Collection[Head]) -> pd.DataFrame:
    """Return `layer`, `head`, `score` and `retrieval` of all heads of some layers."""
    return pd.DataFrame([(layer, head, scores.mean[layer, head], (layer, head) in chosen)
                         for layer in layers for head in range(scores.mean.shape[1])],
                        columns=["layer", "head", "score", "retrieval"])


def around(lm: LanguageModel, ids: Sequence[int], here: int, looked: int,
           before: int = BEFORE) -> tuple[str, ...]:
    """Return `before`, `seen`, `here` and `next`: the text around a token and the one looked at."""
    return tuple(str(lm.tokenizer.decode(ids[max(start, 0) : end])) for start, end in (
        (looked - before, looked), (looked, looked + 1), (here + 1 - before, here + 1),
        (here + 1, here + 2)))


def hardest(lm: LanguageModel, seen: Looks, head: tuple[int, int],
            count: int) -> Iterator[tuple[Any, ...]]:
    """Yield where a head looks hardest in a window, if that is further back than the last token."""
    place = seen.layers.index(head[0]), head[1]
    kinds, at, weight = (table[place] for table in (seen.kinds, seen.at, seen.weight))
    order = np.argsort(-np.where(kinds >= LOOKED, weight, -1.0), kind="stable")
    for i in order[: min(count, (kinds >= LOOKED).sum())]:
        here, looked = int(i) + 1, int(at[i])
        yield (here, looked, float(weight[i]), KINDS[kinds[i]], *around(lm, seen.ids, here, looked))


def planned(plan: Plan) -> Iterator[Run]:
    """Yield the run of each model."""
    p, texts = plan.content, plan.content["texts"]
    count, = {*texts["windows"].values()}
    for model in p["models"]:
        yield Run(model, HeadsAtWorkConfig(detect=real_models.detection(), tau=p["heads"]["tau"],
                                           tokens=texts["tokens"], windows=count))


def inputs_of_watch(run: Run) -> dict[str, str]:
    """Return what a run's result depends on: the model, the detection and the texts."""
    ref = ModelRef(run.model)
    return inputs_of(ref.identity, run.config.detect, ref.corpus) | {"texts": digest(sources())}


def watching(watch: Callable[..., dict[str, pd.DataFrame]]) -> Callable[[Run, Path], dict]:
    """Return what makes a run: it watches the heads of the stored detection."""
    def make(run: Run, folder: Path) -> dict[str, Any]:
        lm = ModelRef(run.model).load()
        scores, _ = detect_stored(lm, run.config.detect)
        found = watch(lm, scores, run.config)
        write_tables(found, folder)
        return {"heads": int(found["heads"]["retrieval"].sum()), "windows": len(found["windows"])}
    return make


HEADS_AT_WORK = Experiment[Run, Artifact](
    name="heads-at-work", config=HeadsAtWorkConfig, plan="heads_at_work", planned=planned,
    keys=("model",), make=watching(heads_at_work), inputs=inputs_of_watch,
    notebook="heads_at_work", parameter="compute_work")
