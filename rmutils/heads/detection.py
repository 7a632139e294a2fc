"""Retrieval-head detection: the NIAH grid of section 2, resumable case by case."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.attention.retrieval_capture import capturing
from rmutils.config import Config
from rmutils.corpora.haystack import Haystack, load_haystacks
from rmutils.corpora.needles import Needle, load_needles
from rmutils.corpora.niah import NiahBuilder, NiahCase
from rmutils.errors import UserError
from rmutils.heads.decoding import Answer, decode
from rmutils.heads.scores import HeadScores
from rmutils.heads.scoring import SUCCESS_ROUGE, copy_counts, rouge_recall, wu_span
from rmutils.models import LanguageModel
from rmutils.models.prefixes import Trunk
from rmutils.paths import CORPORA
from rmutils.progress import progress_bar

BATCH_TOKENS = 4096
"""Prompt tokens decoded together, in one case at least: it bounds the memory. Prefill, which takes
most of the time, goes case by case anyway."""


class DetectConfig(Config):
    """The grid and the definition of a detection.

    The paper's grid is "20 different context lengths uniformly distributed between 0 and 5K, with
    the needle inserted at 10 depth positions for each length" (section 4.1), with three needles.
    The defaults are a grid that a laptop does in some minutes.
    """

    lengths: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (256, 512)
    """Prompt lengths in tokens. Section 4.1: "20 different context lengths uniformly distributed
    between 0 and 5K"."""
    depths: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1)] = (
        0.0, 0.5, 1.0)
    """Needle positions, from 0 (start of the context) to 1 (its end). Section 4.1: "the needle
    inserted at 10 depth positions for each length"."""
    needles: Annotated[int, Field(ge=1)] | None = None
    """How many needles of the set, from its start; None: all."""
    definition: Literal["paper", "wu"] = "paper"
    """`paper`: Equation 1 as a set overlap, exact needle span, answers end at the stop token.
    `wu`: the published code as it is (see `rmutils.heads.scoring`)."""
    max_new_tokens: Annotated[int, Field(ge=1)] = 50
    """The paper is silent; 50 in `retrieval_head_detection.py`."""
    haystack: Annotated[Path | None, Field(exclude=True)] = None
    """Folder of own haystack text; None: that of the model's corpus. Its content, not its path, is
    part of a result's identity."""
    needle_file: Annotated[Path | None, Field(exclude=True)] = None
    """File of own needles, likewise."""


def even_depths(count: int) -> tuple[float, ...]:
    """`count` depths from 0 to 1 at equal distances, as in the paper's grid."""
    return tuple(round(i / (count - 1), 4) for i in range(count)) if count > 1 else (0.5,)


def material(config: DetectConfig, corpus: str) -> tuple[list[Haystack], list[Needle]]:
    """Haystacks and needles: those of the configuration, else those of a corpus.

    Raises
    ------
    UserError
        They cannot be read, or the configuration asks for more needles than there are.
    """
    home = CORPORA[corpus]
    needles = load_needles(config.needle_file or home / "needles")
    if config.needles and config.needles > len(needles):
        raise UserError(f"needles={config.needles}, but the set has {len(needles)}.")
    return load_haystacks(config.haystack or home / "haystack"), needles[: config.needles]


def build_cases(lm: LanguageModel, config: DetectConfig) -> list[NiahCase]:
    """All cases of the grid, checked against the model's window before anything runs.

    Raises
    ------
    UserError
        A length that the window has no room for, or that needle or haystack do not fit.
    """
    haystacks, needles = material(config, lm.corpus)
    longest = max(config.lengths) + config.max_new_tokens
    if longest > lm.window:
        raise UserError(
            f"a length of {max(config.lengths)} tokens plus {config.max_new_tokens} of answer "
            f"makes {longest}, but the window of {lm.name} has {lm.window}. Choose lengths up to "
            f"{lm.window - config.max_new_tokens}."
        )
    builder = NiahBuilder(lm, haystacks, buffered=config.definition == "wu")
    return builder.grid(needles, config.lengths, config.depths)


def detect(
    lm: LanguageModel, config: DetectConfig = DetectConfig(), *, journal: Path | None = None
) -> HeadScores:
    """Find out how often each attention head copies the needle.

    Parameters
    ----------
    lm : LanguageModel
    config : DetectConfig
    journal : Path, optional
        A file that takes each finished case. If it holds cases of this grid already, because an
        earlier run was stopped, they are not run again.

    Returns
    -------
    HeadScores
        With every case, failed ones included, in `.cases`.
    """
    cases = build_cases(lm, config)
    records = {r["case"]: r for r in _read_journal(journal)}
    todo = [case for case in cases if case.id not in records]
    with progress_bar(f"detecting heads of {lm.name}", len(cases),
                      done=len(cases) - len(todo)) as advance:
        for record in _run(lm, config, todo):
            records[record["case"]] = record
            if journal:
                with journal.open("a") as out:
                    out.write(json.dumps(record) + "\n")
            advance(1)
    return _collect(lm, cases, records)


def _run(lm: LanguageModel, config: DetectConfig, cases: list[NiahCase]) -> Iterator[dict]:
    """Run the cases haystack by haystack, in batches of one length; a record for each."""
    stop_ids = lm.stop_ids if config.definition == "paper" else set()
    by_haystack = sorted(cases, key=lambda c: (c.haystack, c.length))
    with capturing(lm.model) as recorder:
        for _, part in groupby(by_haystack, key=lambda c: c.haystack):
            part = list(part)
            deepest = max(part, key=lambda c: c.inserted_span[0])
            trunk = Trunk(lm.model, deepest.input_ids[: deepest.inserted_span[0]])
            for _, alike in groupby(part, key=lambda c: c.length):
                alike = list(alike)
                size = max(BATCH_TOKENS // len(alike[0].input_ids), 1)
                for batch in (alike[i : i + size] for i in range(0, len(alike), size)):
                    started = time.perf_counter()
                    prompts = [case.input_ids for case in batch]
                    answers = decode(
                        lm.model, recorder, prompts, [trunk.read(p) for p in prompts],
                        max_new_tokens=config.max_new_tokens, stop_ids=stop_ids,
                    )
                    seconds = (time.perf_counter() - started) / len(batch)
                    for case, answer in zip(batch, answers, strict=True):
                        yield _record(lm, config, case, answer, seconds)


def _record(
    lm: LanguageModel, config: DetectConfig, case: NiahCase, answer: Answer, seconds: float
) -> dict:
    """What is kept of one case. Counts of needle tokens are sparse: {"layer-head": count}."""
    span, size = case.needle_span, case.needle_span[1] - case.needle_span[0]
    if config.definition == "wu":
        ids = lm.tokenizer(case.needle.real_needle, add_special_tokens=False)["input_ids"]
        span, size = wu_span(case.input_ids, ids), len(ids)
    counts = copy_counts(answer, case.input_ids, span, repeats=config.definition == "wu")
    nonzero = zip(*np.nonzero(counts), strict=True)
    response = lm.tokenizer.decode(answer.tokens, skip_special_tokens=True).strip()
    recall = rouge_recall(case.needle.real_needle, response)
    return {
        "case": case.id, "needle": case.needle_index, "length": case.length, "depth": case.depth,
        "prompt_tokens": len(case.input_ids), "needle_start": case.needle_span[0],
        "needle_tokens": size, "response": response,
        "rouge": recall, "success": recall > SUCCESS_ROUGE, "seconds": round(seconds, 3),
        "counts": {f"{i}-{j}": int(counts[i, j]) for i, j in nonzero},
    }


def _read_journal(journal: Path | None) -> Iterator[dict]:
    """Records of an earlier run; a last line cut off by a kill is dropped from the file."""
    if journal is None or not journal.exists():
        return
    whole = [line for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
    temporary = journal.with_suffix(".tmp")
    temporary.write_text("".join(whole))
    temporary.replace(journal)
    yield from map(json.loads, whole)


def _collect(lm: LanguageModel, cases: list[NiahCase], records: dict[str, dict]) -> HeadScores:
    """Scores and case table in the order of the grid, whatever the order of the runs."""
    table = pd.DataFrame([records[case.id] for case in cases])
    runs = np.zeros((len(table), *lm.shape))
    counted = zip(table.pop("counts"), table["needle_tokens"], strict=True)
    for row, (counts, size) in enumerate(counted):
        for head, count in counts.items():
            layer, index = map(int, head.split("-"))
            runs[row, layer, index] = count / size
    success = table["success"].to_numpy()
    return HeadScores(runs[success], lm.name, table["needle"].to_numpy()[success], table)
