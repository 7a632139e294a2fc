"""What a judge says of two responses to each instruction, kept one by one."""

from __future__ import annotations

from multiprocessing.pool import ThreadPool
from pathlib import Path

import pandas as pd

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config, digest
from rmutils.contrast.judges import Judge
from rmutils.journal import Journal
from rmutils.progress import progress_bar

JUDGED = Stage("judged", version=1)
JOURNAL = ".journal.jsonl"


class JudgeConfig(Config):
    """Nothing is left to configure: judge and responses are inputs."""


def judge_stored(
    judge: Judge, first: pd.DataFrame, second: pd.DataFrame, *, compute: Compute = "auto",
    command: str | None = None,
) -> tuple[pd.DataFrame, Artifact]:
    """A judge's scores of two responses to each instruction; a stopped run goes on.

    Parameters
    ----------
    judge : Judge
    first, second : DataFrame
        As from `rmutils.contrast.responses.respond`, on the same instructions.
    compute : {"auto", "always", "never"}
    command : str, optional
        The command line that makes these scores, for the manifest.

    Returns
    -------
    DataFrame, Artifact
        `id`, `first`, `second`: the scores, NaN where the judge gave none; and where they are kept.
    """
    def make(folder: Path) -> dict:
        table = _judge(judge, first, second, folder / JOURNAL)
        table.to_parquet(folder / "scores.parquet", index=False)
        return {"pairs": len(table), "unscored": int(table.isna().any(axis=1).sum())}

    inputs = {"judge": judge.identity, "instructions": digest(first["id"].tolist()),
              "first": digest(first["text"].tolist()), "second": digest(second["text"].tolist())}
    artifact = JUDGED.obtain(
        JudgeConfig(), inputs, make, compute=compute,
        command=command or "rmutils pairs MODEL --strategy win-lose-pair --out FILE")
    return pd.read_parquet(artifact.path("scores.parquet")), artifact


def _judge(judge: Judge, first: pd.DataFrame, second: pd.DataFrame, journal: Path) -> pd.DataFrame:
    kept = Journal(journal)
    todo = [(a.id, a.instruction, [a.text, b.text])
            for a, b in zip(first.itertuples(), second.itertuples(), strict=True)
            if a.id not in kept]

    def ask(pair: tuple[str, str, list[str]]) -> tuple[str, list[float | None]]:
        name, instruction, texts = pair
        return name, judge.score(instruction, texts)

    with (progress_bar(f"judgements of {judge.name}", len(first), unit="pairs",
                       done=len(kept)) as advance,
          ThreadPool(judge.at_once) as pool):  # its threads never keep a stopped run waiting
        for name, scores in pool.imap_unordered(ask, todo):
            kept[name] = scores
            advance(1)
    rows = [[name, *kept[name]] for name in first["id"]]
    table = pd.DataFrame(rows, columns=["id", "first", "second"])
    return table.astype({"first": float, "second": float})
