"""Instructions to train on: one interface to all sources, and what is left out of them.

RetMask "is applicable to any dataset containing user instructions" (section 4.1). Of a conversation
only the first user turn is taken, as in section 4.6 ("first-turn instructions").
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rmutils.config import digest
from rmutils.contrast.hub import DATASETS, Candidate, first_user_turn, stream
from rmutils.contrast.pii import REDACTED, pii
from rmutils.contrast.synthesis import synthesize
from rmutils.corpora.world.instructions import instructions as world_instructions
from rmutils.errors import UserError
from rmutils.files import parse_json
from rmutils.models import LanguageModel
from rmutils.progress import progress_bar

MAX_CHARACTERS = 2048
"""Longer instructions are dropped. The paper is silent; the authors' trainer cuts prompts to 512
tokens (a default, see `max_prompt_length` of TRL 0.24), which is about as much English. Characters,
so that every model gets the same instructions."""


@dataclass(frozen=True)
class Instruction:
    """A user turn.

    Attributes
    ----------
    id : str
        Hash of the text: the same in every source and every draw.
    text : str
    """

    id: str
    text: str

    @classmethod
    def of(cls, text: str) -> Instruction:
        return cls(digest(text)[:16], text)


@dataclass(frozen=True)
class Drawn:
    """What a source gave.

    Attributes
    ----------
    instructions : tuple of Instruction
        No two are the same.
    dropped : dict of str to int
        How many were drawn and left out, by reason. One with several faults counts once.
    """

    instructions: tuple[Instruction, ...]
    dropped: dict[str, int]


Source = Callable[[int, int, LanguageModel | None], Drawn]
"""Draws from a count, a seed and a model."""


def draw(source: str, count: int, *, seed: int = 0, lm: LanguageModel | None = None) -> Drawn:
    """Draw `count` different instructions.

    Parameters
    ----------
    source : str
        `world`: the short instructions of this project's invented world. `self`: the model writes
        them. `lmsys`, `wildchat`, `guru`: data sets of the hub. Or a path that ends in `.jsonl`.
    count : int
    seed : int
        The same seed draws the same instructions.
    lm : LanguageModel, optional
        The model that writes them, for `self`.

    Raises
    ------
    UserError
        Unknown source, one that cannot be read or reached, or one with fewer instructions.
    """
    if source.endswith(".jsonl"):
        return sieve(_read_jsonl(Path(source), seed), count, source)
    if source not in SOURCES:
        raise UserError(f"no source of instructions is called {source!r}. Known sources: "
                        f"{', '.join(SOURCES)}; or give a file that ends in .jsonl.")
    return SOURCES[source](count, seed, lm)


def _world(count: int, seed: int, lm: LanguageModel | None) -> Drawn:
    """Not sieved: the persons of the world are invented, and no two of its prompts are the same."""
    samples = world_instructions(count, seed)
    return Drawn(tuple(Instruction.of(sample.prompt) for sample in samples), {})


def _self(count: int, seed: int, lm: LanguageModel | None) -> Drawn:
    if lm is None:
        raise UserError('the source "self" needs a model that writes the instructions.')
    return sieve(synthesize(lm, count, seed), count, "self")


def _hub(name: str) -> Source:
    return lambda count, seed, lm: sieve(stream(DATASETS[name], seed), count, name)


SOURCES: dict[str, Source] = {
    "world": _world, "self": _self, **{name: _hub(name) for name in DATASETS}}


def sieve(candidates: Iterable[Candidate], count: int, source: str) -> Drawn:
    """Take the first `count` candidates that may stay, and count the others by reason.

    Duplicates are told without regard to case and spacing, on which the paper is silent; the
    authors' code compares Japanese translations (`duplicate_user_instruction_ja`).

    Raises
    ------
    UserError
        The candidates come to an end before that.
    """
    kept: dict[str, Instruction] = {}
    dropped: Counter[str] = Counter()
    with progress_bar(f"instructions from {source}", count, unit="instructions") as advance:
        for text, reason in candidates:
            key = " ".join(text.split()).casefold()
            reason = reason or fault(text.strip()) or ("duplicate" if key in kept else None)
            if reason:
                dropped[reason] += 1
                continue
            kept[key] = Instruction.of(text.strip())
            advance(1)
            if len(kept) == count:
                return Drawn(tuple(kept.values()), dict(dropped))
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.most_common())
    raise UserError(f"{source}: {count} instructions are wanted, but only {len(kept)} are left of "
                    f"{len(kept) + dropped.total()} (dropped: {reasons or 'none'}). Ask for fewer, "
                    f"or choose another source.")


def fault(text: str) -> str | None:
    """Why an instruction is dropped on its text alone; None if it may stay."""
    if not text:
        return "empty"
    if len(text) > MAX_CHARACTERS:
        return "too long"
    if REDACTED.search(text):
        return "redacted"
    return "pii" if pii(text) else None


FORMS = ('"instruction" or "prompt" (a text), or "messages" or "conversation" (a list of '
         '{"role": ..., "content": ...})')


def _read_jsonl(path: Path, seed: int) -> Iterable[Candidate]:
    """The user turns of a file with an object per line, in an order that depends on the seed."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}).") from error
    found = [_parse(line, f"{path}, line {n}") for n, line in enumerate(lines, 1) if line.strip()]
    random.Random(seed).shuffle(found)
    return found


def _parse(line: str, place: str) -> Candidate:
    try:
        record = parse_json(line)
        turn = next(record[key] for key in ("instruction", "prompt", "messages", "conversation")
                    if key in record)
        text = turn if isinstance(turn, str) else first_user_turn(turn)
        return text.strip(), "redacted" if record.get("redacted") else None
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration) as error:
        raise UserError(f"{place}: expected a JSON object with {FORMS}.") from error
