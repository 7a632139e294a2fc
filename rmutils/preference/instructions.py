"""Instructions to train on: one interface to all sources, and what is left out of them."""

from __future__ import annotations

import ipaddress
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rmutils.core.config import Config, command_line, digest
from rmutils.core.errors import UserError
from rmutils.core.files import numbered_lines
from rmutils.core.journal import progress_bar
from rmutils.core.registry import Registry
from rmutils.core.results import Artifact, Stage
from rmutils.core.validation import parse_json
from rmutils.corpora.world.knowledge import instructions as world_instructions
from rmutils.models import LanguageModel
from rmutils.preference.sources import DATASETS, Candidate, first_user_turn, stream, synthesize

REDACTED = re.compile(r"\bNAME_\d+\b|<PRESIDIO_ANONYMIZED_\w+>")
"""Placeholders that LMSYS-Chat-1M and WildChat write for a name."""


def pii(text: str) -> str | None:
    """Return the kind of personal data in a text; None if none is found."""
    return next((kind for kind, (pattern, check) in PII.items()
                 if any(check(match.group()) for match in pattern.finditer(text))), None)


def _luhn(number: str) -> bool:
    """The check digit of payment cards: from the right, every second digit counts double."""
    digits = [int(c) for c in number if c.isdecimal()][::-1]
    doubled = [sum(divmod(2 * d, 10)) for d in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _iban(number: str) -> bool:
    """ISO 13616: the first four characters moved to the end, letters from A = 10; 1 modulo 97."""
    plain = number.replace(" ", "")
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _of_someone(address: str) -> bool:
    """True for a public address; one of a private network, such as 192.168.0.1, is nobody's."""
    try:
        return ipaddress.IPv4Address(address).is_global
    except ValueError:
        return False


def _long_enough(number: str) -> bool:
    """E.164 allows 15 digits. With 8 it may be a pair of years."""
    return 9 <= sum(c.isdecimal() for c in number) <= 15


PII: dict[str, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    kind: (re.compile(pattern, re.ASCII), check) for kind, pattern, check in (
        ("e-mail", r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{2,}(?![\w(])", bool),
        ("IPv4", r"(?<![\w.])(?<![vV]ersion )\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)", _of_someone),
        ("card", r"(?<![\w.+-])[2-6](?:\d{12,18}|\d{3}([ -])\d{4}\1\d{4}\1\d{1,7}"
                 r"|\d{3}([ -])\d{6}\2\d{5})(?!\.?\w)", _luhn),
        ("IBAN", r"\b[A-Z]{2}\d{2}(?: ?[A-Z\d]{4}){2,7}(?: ?[A-Z\d]{1,3})?\b", _iban),
        ("phone", r"(?<![\w+.-])(?:"
                  r"\+\d{1,3}(?:[ .-]?(?:\(\d{1,4}\)|\d{2,})){1,6}"  # international
                  r"|(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[.-])[2-9]\d\d[.-]\d{4}"  # US, Canada
                  r"|0\d{1,3}-\d{3,4}-\d{3,4}"  # with the 0 before an area code
                  r"|(?i:phone|tel|call|mobile|fax|whatsapp)\b[^\d\n+]{0,20}"
                  r"\(?\d{2,}\)?(?:[ .-]?\d{2,})*"
                  r")(?![\w-])", _long_enough),
    )
}


MAX_CHARACTERS = 2048
"""Longer instructions are dropped; characters, so that every model gets the same. The paper is
silent; the authors' trainer cuts prompts to 512 tokens, which is about as much English."""


@dataclass(frozen=True)
class Instruction:
    """A user turn."""

    id: str  # hash of the text: the same in every source and every draw
    text: str

    @classmethod
    def of(cls, text: str) -> Instruction:
        return cls(digest(text)[:16], text)


@dataclass(frozen=True)
class Drawn:
    instructions: tuple[Instruction, ...]  # no two are the same
    # how many were left out, by reason; one with several faults counts once
    dropped: dict[str, int]


Source = Callable[[int, int, LanguageModel | None], Drawn]  # draws from a count, a seed and a model


def draw(source: str, count: int, *, seed: int = 0, lm: LanguageModel | None = None) -> Drawn:
    """Draw `count` different instructions from a source: `world`, `self`, the hub, or a file."""
    if source.endswith(".jsonl"):
        return sieve(_read_jsonl(Path(source), seed), count, source)
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


class Sources(Registry[Source]):
    """Sources by name; in place of a name, a field takes a file, too."""

    def unknown(self, name: str) -> str:
        """Say what there is besides files."""
        return f"{super().unknown(name)} Or give a file that ends in .jsonl."

    def _check(self, name: str) -> str:
        return name if name.endswith(".jsonl") else super()._check(name)


SOURCES = Sources("source of instructions", "rmutils.sources")
for _name, _source in {"world": _world, "self": _self,
                       **{name: _hub(name) for name in DATASETS}}.items():
    SOURCES.add(_name, _source)


def sieve(candidates: Iterable[Candidate], count: int, source: str) -> Drawn:
    """Take the first `count` candidates that may stay, and count the others by reason."""
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
    """Say why an instruction is dropped for its text alone; None if it may stay."""
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
    found = [_parse(line, f"{path}, line {n}") for n, line in numbered_lines(path)]
    random.Random(seed).shuffle(found)
    return found


def _parse(line: str, place: str) -> Candidate:
    try:
        record = parse_json(line)
        turns = [record[key] for key in ("instruction", "prompt", "messages", "conversation")
                 if key in record]
        text, *others = (turn if isinstance(turn, str) else first_user_turn(turn)
                         for turn in turns)
        if any(other.strip() != text.strip() for other in others) or record.get("input"):
            raise UserError(f"{place}: which text is the instruction? Give one of {FORMS}, with "
                            f"all that a user says, and no input beside it.")
        return text.strip(), {None: None, False: None, True: "redacted"}[record.get("redacted")]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{place}: expected a JSON object with {FORMS}.") from error


FILE = "instructions.json"


class DrawConfig(Config):
    """As the arguments of `rmutils.preference.instructions.draw`."""

    count: int
    seed: int


def draw_stored(source: str, count: int, *, seed: int,
                lm: LanguageModel) -> tuple[Drawn, tuple[Artifact, ...]]:
    """`draw`, but instructions of the source `self`, which cost time, are stored."""
    if source != "self":
        return draw(source, count, seed=seed, lm=lm), ()
    drawn, artifact = INSTRUCTIONS.obtain(
        DrawConfig(count=count, seed=seed), {"model": lm.state},
        lambda journal: sieve(synthesize(lm, count, seed, journal), count, source),
        compute="auto", model=lm.name, label=f"{count}-seed{seed}",
        command=command_line("generate", lm.name, "--source", source, "--count", str(count),
                             "--seed", str(seed)))
    return drawn, (artifact,)


def _write(drawn: Drawn, folder: Path) -> None:
    (folder / FILE).write_text(json.dumps(asdict(drawn), indent=1, ensure_ascii=False) + "\n",
                               encoding="utf-8")


def _read(folder: Path) -> Drawn:
    kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return Drawn(tuple(Instruction(**one) for one in kept["instructions"]), kept["dropped"])


INSTRUCTIONS = Stage[Drawn](
    "instructions", version=1, write=_write, read=_read, facts=lambda drawn: {
        "instructions": len(drawn.instructions), "dropped": drawn.dropped})
