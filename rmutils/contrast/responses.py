"""Responses of a whole or masked model to instructions, kept one by one.

Section 3 names no sampling settings; the defaults are those of the authors' `2_*` scripts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Protocol

import pandas as pd
from pydantic import Field

from rmutils.artifacts import Artifact, Compute, Stage
from rmutils.config import Config, digest
from rmutils.contrast.instructions import Instruction
from rmutils.heads.scores import Head
from rmutils.progress import progress_bar

RESPONSES = Stage("responses", version=1)
JOURNAL = ".journal.jsonl"


class ResponseConfig(Config):
    """How responses are sampled, and from which variant of the model."""

    heads: tuple[Head, ...] = ()
    """Heads (layer, head) that are masked meanwhile; none: the original model."""
    temperature: Annotated[float, Field(ge=0)] = 0.6
    """The paper is silent; 0.6 in the authors' scripts."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The paper is silent; 1.0 in the authors' scripts."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 2048
    """The paper is silent; 2,048 in the authors' scripts, 4,096 for Qwen3."""
    thinking: bool = True
    """Section 4.1: "enable reasoning during contrastive response generation". Without effect where
    the chat template knows no thinking."""
    seed: int = 0
    """The paper is silent: one sample per instruction."""

    def seed_of(self, instruction: Instruction) -> int:
        """The seed of one request. Those of a masked and of the whole model are not the same."""
        return int(digest([self.seed, sorted(self.heads), instruction.id])[:8], 16)


@dataclass(frozen=True)
class Response:
    """What a model said to an instruction.

    Attributes
    ----------
    id : str
        Of the instruction.
    text : str
        Without the turn's end; thoughts included, between `<think>` and `</think>`.
    tokens : int
    finished : bool
        False if it was cut at `max_new_tokens`.
    """

    id: str
    text: str
    tokens: int
    finished: bool


class Backend(Protocol):
    """Something that answers."""

    name: str
    identity: str

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        """Call `done` with each response, in any order."""

    def close(self) -> None:
        """Free the memory of an engine, where there is one."""


def respond(
    backend: Backend, instructions: Sequence[Instruction], config: ResponseConfig,
    journal: Path | None = None,
) -> pd.DataFrame:
    """One response to each instruction, in their order.

    Parameters
    ----------
    journal : Path, optional
        Takes each response as it comes; those that are there already are not asked for again.

    Returns
    -------
    DataFrame
        `id`, `instruction`, `text`, `tokens`, `finished`.
    """
    known = {r.id: r for r in _read(journal)} if journal else {}
    missing = [i for i in instructions if i.id not in known]
    who = f"{backend.name}, {len(config.heads)} heads masked" if config.heads else backend.name
    with progress_bar(f"responses of {who}", len(instructions), unit="responses",
                      done=len(instructions) - len(missing)) as advance:
        def done(response: Response) -> None:
            known[response.id] = response
            if journal:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(response)) + "\n")
            advance(1)

        backend.respond(missing, config, done)
    table = pd.DataFrame([asdict(known[i.id]) for i in instructions])
    table.insert(1, "instruction", [i.text for i in instructions])
    return table


def _read(journal: Path) -> list[Response]:
    """What a stopped run has kept; a line that was being written when it stopped is left out."""
    if not journal.exists():
        return []
    *lines, rest = journal.read_text(encoding="utf-8").split("\n")
    if rest:
        journal.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [Response(**json.loads(line)) for line in lines]


def respond_stored(
    backend: Backend, instructions: Sequence[Instruction], config: ResponseConfig, *,
    compute: Compute = "auto", command: str | None = None,
) -> tuple[pd.DataFrame, Artifact]:
    """`respond`, but a stored result is read instead, and a stopped run goes on.

    Parameters
    ----------
    compute : {"auto", "always", "never"}
    command : str, optional
        The command line that makes these responses, for the manifest. Only the caller knows where
        the instructions come from.
    """

    def make(folder: Path) -> dict:
        table = respond(backend, instructions, config, folder / JOURNAL)
        table.to_parquet(folder / "responses.parquet", index=False)
        return {"responses": len(table), "tokens": int(table["tokens"].sum()),
                "finished": int(table["finished"].sum())}

    inputs = {"model": backend.identity, "instructions": digest([i.id for i in instructions])}
    artifact = RESPONSES.obtain(
        config, inputs, make, compute=compute,
        command=command or shlex.join(["rmutils", "generate", backend.name]))
    return pd.read_parquet(artifact.path("responses.parquet")), artifact
