"""The paper's claims: where each is made, what decides it here, and the verdict on it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import Field, ValidationError, model_validator

from rmutils.book import verdicts
from rmutils.book.chapters import failure_modes, general_abilities
from rmutils.book.chapters.data_and_training import findings as data_and_training
from rmutils.book.chapters.main_tables import task_effects
from rmutils.book.chapters.masking_sweep import findings as masking_sweep
from rmutils.book.chapters.score_distribution import findings as score_distribution
from rmutils.book.chapters.training_effect import findings as training_effect
from rmutils.book.verdicts import together
from rmutils.core.config import Config
from rmutils.core.errors import NotStored, UserError
from rmutils.core.files import intact, read_yaml
from rmutils.core.journal import progress_bar
from rmutils.core.paths import restore
from rmutils.paper.tables import PAPER

MEASURED = (data_and_training, failure_modes, general_abilities, masking_sweep, score_distribution,
            task_effects, training_effect)
"""Modules whose quantities decide the claims. None computes for long: a result that is not stored
is a `NotStored` that names the command which makes it."""
CLAIMS = "claims.yml"
Text = Annotated[str, Field(min_length=1)]
Quantities = Mapping[str, verdicts.Quantity]


class Saying(Config):
    """A place where a claim is made."""

    source: Literal["en", "ja"]
    place: Text
    """As in `text_numbers.csv`; or a table, a figure or a footnote."""
    paragraph: str = ""
    """The heading within the section, if there is one."""
    as_printed: Text

    @property
    def where(self) -> str:
        """As `en Section 4.2`."""
        return f"{self.source} {self.place}"


class Measure(verdicts.Claimed):
    """A quantity that decides a claim, or a part of it."""

    quantity: Text
    of: Annotated[tuple[str | tuple[str | int, ...], ...], Field(min_length=1)]
    """Where it is measured, one entry per part of the claim: a model, or a model and more."""
    decides: bool = True
    """False for effects that are shown beside those that decide: of this book's models where the
    paper's own published numbers decide, and of controls that the paper does not have."""


class Claim(Config):
    """One claim."""

    id: Text
    said: Annotated[tuple[Saying, ...], Field(min_length=1)]
    test: Text
    """A test of it, for models of this size where possible."""
    measures: tuple[Measure, ...] = ()
    untestable: str = ""
    """Why it is not testable at this size."""

    @model_validator(mode="after")
    def _decided(self) -> Self:
        if any(measure.decides for measure in self.measures) == bool(self.untestable):
            raise ValueError("give either measures or the reason why it is untestable")
        return self


@dataclass(frozen=True)
class Part:
    """A part of a claim, and its effect; None if its result is not stored, as `note` says."""

    measure: Measure
    of: tuple[str | int, ...]
    effect: verdicts.Effect | None
    answer: verdicts.PartVerdict
    sentence: str
    scale: float
    note: str


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict; `note` says why there is none."""

    claim: Claim
    parts: tuple[Part, ...]
    verdict: verdicts.Verdict
    note: str

    @property
    def deciding(self) -> list[Part]:
        """The parts of the claim, without what is only shown beside them."""
        return [part for part in self.parts if part.measure.decides]

    @property
    def words(self) -> str:
        """The verdict, and how many parts have which: `partly shown: 2 of 4 parts shown`."""
        counted = [verdicts.tally([part.answer.verdict for part in self.deciding])]
        small = sum(part.answer.verdict == verdicts.SMALLER for part in self.deciding)
        counted.append(f"{small} smaller than claimed" if small else "")
        return ": ".join([self.verdict, *filter(None, [", ".join(filter(None, counted))])])

    @property
    def telling(self) -> Part | None:
        """The part that says most: with the claim's verdict, the smallest p."""
        like = {verdicts.SHOWN: (verdicts.SHOWN, verdicts.REACHED),
                verdicts.REACHED: (verdicts.REACHED,), verdicts.SMALLER: (verdicts.SMALLER,),
                verdicts.AGAINST: (verdicts.AGAINST,), verdicts.EXCLUDED: (verdicts.EXCLUDED,),
                verdicts.UNDECIDED: (verdicts.UNDECIDED, verdicts.EXCLUDED),
                verdicts.BLIND: (verdicts.BLIND,)}.get(self.verdict, verdicts.THERE)
        known = [part for part in self.deciding if part.effect]
        first = [part for part in known if part.answer.verdict in like] or known
        return min(first, key=lambda part: np.nan_to_num(part.answer.p, nan=2), default=None)


def load_claims(folder: Path = PAPER) -> tuple[Claim, ...]:
    """All claims, in the order of the file."""
    path = Path(folder) / CLAIMS
    fix = f"Restore it with: {restore(path)}"
    try:
        records = read_yaml(intact(path))
    except UserError as error:
        raise UserError(f"{error} {fix}") from error
    if not isinstance(records, list):
        raise UserError(f"{path}: a list of claims is expected. {fix}")
    claims = tuple(_claim(record, number, path) for number, record in enumerate(records, 1))
    ids = [claim.id for claim in claims]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise UserError(f"{path}: {', '.join(twice)}: more than one claim has this id.")
    return claims


def _claim(record: Any, number: int, path: Path) -> Claim:
    name = record.get("id", number) if isinstance(record, dict) else number
    try:
        claim = Claim.model_validate(record)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'together'}: {e['msg']}"
                          for e in error.errors())
        raise UserError(f"{path}, claim {name}: {wrong}.") from error
    if unknown := {measure.quantity for measure in claim.measures} - set(verdicts.QUANTITIES):
        raise UserError(f"{path}, claim {name}: there is no quantity {', '.join(sorted(unknown))}. "
                        f"Known ones: {', '.join(verdicts.QUANTITIES)}.")
    return claim


def judge(claims: Sequence[Claim], quantities: Quantities = verdicts.QUANTITIES) -> list[Judged]:
    """Measure what decides the claims, from stored results only, and judge them."""
    judged = []
    with progress_bar("claims", len(claims), unit="claims") as advance:
        for claim in claims:
            judged.append(_judge(claim, quantities))
            advance(1)
    return judged


def _judge(claim: Claim, quantities: Quantities) -> Judged:
    if claim.untestable:
        return Judged(claim, (), verdicts.UNTESTABLE, claim.untestable)
    parts = tuple(_answered([_part(measure, (of,) if isinstance(of, str) else of, quantities)
                             for measure in claim.measures for of in measure.of]))
    deciding = [part for part in parts if part.measure.decides]
    notes = list(dict.fromkeys(part.note for part in deciding if part.note))
    more = f" And {len(notes) - 1} more." if len(notes) > 1 else ""
    return Judged(claim, parts, together([part.answer.verdict for part in deciding]),
                  notes[0] + more if notes else "")


def _part(measure: Measure, of: tuple[str | int, ...], quantities: Quantities) -> Part:
    """Measure; not judged yet."""
    asked, effect, note = quantities[measure.quantity], None, ""
    try:
        effect = asked(*of)
    except verdicts.CannotShow as blind:
        effect = blind.effect
    except NotStored as missing:
        note = str(missing)[0].upper() + str(missing)[1:]
    return Part(measure, of, effect, verdicts.PartVerdict(verdicts.NOT_RUN, np.nan),
                asked.said(*of), asked.scale, note)


def _answered(parts: Sequence[Part]) -> Iterator[Part]:
    """Judge the parts that are known: those that decide, and by themselves those beside them."""
    found = {}
    for decides in (True, False):
        own = [i for i, part in enumerate(parts) if part.effect and part.measure.decides == decides]
        found |= dict(zip(own, verdicts.answers([(parts[i].effect, parts[i].measure) for i in own]),
                          strict=True))
    for i, part in enumerate(parts):
        yield replace(part, answer=found[i]) if i in found else part


def claim_table(judged: Sequence[Judged]) -> pd.DataFrame:
    """A row per claim: places, verdict in words, note."""
    return pd.DataFrame([{
        "id": j.claim.id, "source": j.claim.said[0].source, "place": j.claim.said[0].place,
        "as_printed": j.claim.said[0].as_printed,
        "also": ", ".join(dict.fromkeys(saying.where for saying in j.claim.said[1:])),
        "test": j.claim.test, "verdict": j.verdict, "words": j.words, "note": j.note}
        for j in judged])


def part_table(judged: Sequence[Judged]) -> pd.DataFrame:
    """A row per part of a claim whose result is stored."""
    rows = [{"id": j.claim.id, "quantity": part.measure.quantity,
             "of": ", ".join(map(str, part.of)), "claimed": part.measure.words,
             "claimed_in_units": part.measure.words_in_units(part.scale),
             "value": e.value, "low": e.low, "high": e.high, "unit": e.unit,
             "clusters": e.clusters, "p": part.answer.p, "verdict": part.answer.verdict,
             "decides": part.measure.decides, "telling": part is j.telling,
             "size_excluded": part.answer.size_excluded, "smallest": e.smallest, "over": e.note,
             "blocked": e.blocked, "sentence": part.sentence, "scale": part.scale,
             "artifacts": list(e.artifacts)}
            for j in judged for part in j.parts if (e := part.effect)]
    return pd.DataFrame(rows, columns=[
        "id", "quantity", "of", "claimed", "claimed_in_units", "value", "low", "high", "unit",
        "clusters", "p", "verdict", "decides", "telling", "size_excluded", "smallest", "over",
        "blocked", "sentence", "scale", "artifacts"]).astype({"clusters": "Int64"})
