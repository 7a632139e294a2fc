"""Instructions that are kept: those that a model writes itself, which takes its time."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config
from rmutils.contrast.instructions import Drawn, Instruction, draw, sieve
from rmutils.contrast.synthesis import synthesize
from rmutils.models import LanguageModel

INSTRUCTIONS = Stage("instructions", version=1)
JOURNAL = ".journal.jsonl"
FILE = "instructions.json"


class DrawConfig(Config):
    """As the arguments of `rmutils.contrast.instructions.draw`."""

    count: int
    seed: int


def draw_stored(
    source: str, count: int, *, seed: int, lm: LanguageModel, compute: Compute = "auto",
    command: str | None = None,
) -> tuple[Drawn, tuple[Artifact, ...]]:
    """`draw`, but instructions of the source `self` are kept, and a stopped run goes on.

    The other sources are files at hand or in the hub's own cache, and cost nothing to read again.

    Returns
    -------
    Drawn, tuple of Artifact
        The instructions; and where they are kept, if they are.

    Raises
    ------
    UserError
        As `draw`.
    """
    if source != "self":
        return draw(source, count, seed=seed, lm=lm), ()

    def make(folder: Path) -> dict:
        drawn = sieve(synthesize(lm, count, seed, folder / JOURNAL), count, source)
        (folder / FILE).write_text(json.dumps(asdict(drawn), indent=1, ensure_ascii=False) + "\n",
                                   encoding="utf-8")
        return {"instructions": count, "dropped": drawn.dropped}

    artifact = INSTRUCTIONS.obtain(
        DrawConfig(count=count, seed=seed), {"model": lm.identity}, make, compute=compute,
        command=command or shlex.join(
            ["rmutils", "generate", lm.name, "--source", source, "--count", str(count),
             "--seed", str(seed)]))
    kept = json.loads(artifact.path(FILE).read_text(encoding="utf-8"))
    instructions = tuple(Instruction(**instruction) for instruction in kept["instructions"])
    return Drawn(instructions, kept["dropped"]), (artifact,)
