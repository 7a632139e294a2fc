"""Retrieval-head detection: the NIAH grid of section 2, resumable case by case, and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from rmutils.attention.decoding import Answer
from rmutils.core.config import Config, command_line, digest
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, progress_bar, side_by_side
from rmutils.core.paths import CORPORA
from rmutils.core.results import Artifact, Compute, Stage, find
from rmutils.core.validation import checked
from rmutils.corpora.niah import Haystack, Needle, NiahCase, load_haystacks, load_needles
from rmutils.heads.answering import SUCCESS_ROUGE, Watch
from rmutils.heads.residual import contributions_version
from rmutils.heads.score_files import CASES, RUNS
from rmutils.heads.score_kinds import SCORES, DetectConfig, ScoreKind, kind_of
from rmutils.heads.scores import HeadScores
from rmutils.models import LanguageModel, load_model
from rmutils.models.known_models import check
from rmutils.models.loading import ModelRef


def even_depths(count: int) -> tuple[float, ...]:
    """Return `count` depths from 0 to 1 at equal distances, as in the paper's grid."""
    return tuple(round(i / (count - 1), 4) for i in range(count)) if count > 1 else (0.5,)


def material(config: DetectConfig, corpus: str) -> tuple[list[Haystack], list[Needle]]:
    """Return haystacks and needles: those of the configuration, else those of a model's corpus."""
    home = CORPORA[config.corpus or corpus]
    if isinstance(config.needles, tuple):
        chosen = list(config.needles)
    else:
        needles = load_needles(config.needle_file or _folder(home, config.needle_set or "needles"))
        if config.needles and config.needles > len(needles):
            raise UserError(f"needles={config.needles}, but the set has {len(needles)}.")
        chosen = needles[: config.needles]
    _check_needles(tuple(chosen), kind_of(config), config.definition)
    return load_haystacks(config.haystack or home / "haystack"), chosen


@lru_cache(maxsize=256)  # each look-up of a detection asks it
def _check_needles(needles: tuple[Needle, ...], kind: type[ScoreKind], definition: str) -> None:
    for i, needle in enumerate(needles):
        if needle in needles[:i]:
            raise UserError(f"needle {i + 1} is needle {needles.index(needle) + 1} again: "
                            f"{needle.needle[:60]!r}. It would count as two.")
        recall, unit = kind.recall(needle.real_needle, needle.real_needle)
        if not recall:
            why = ("it has no letter or digit" if unit != "ROUGE-1" or needle.real_needle.isascii()
                   else f"{definition} counts ROUGE-1, which knows the letters a to z and digits "
                        "only. Choose another definition, such as paper")
            raise UserError(f"the answer {needle.real_needle[:40]!r} can never count as found: "
                            f"{why}.")


@lru_cache(maxsize=64)
def _hash(haystacks: tuple[Haystack, ...]) -> str:
    return digest([[h.name, h.text] for h in haystacks])


def _folder(home: Path, name: str) -> Path:
    """Folder of a needle set of a corpus."""
    there = sorted(path.parent.name for path in home.glob("*/*.jsonl"))
    if name not in there:
        raise UserError(f"no needle set of {home.name} is called {name!r}. Sets: "
                        f"{', '.join(there)}.")
    return home / name


def build_cases(lm: LanguageModel, config: DetectConfig) -> list[NiahCase]:
    """Return all cases of the grid, checked against the model's window before anything runs."""
    haystacks, needles = material(config, lm.corpus)
    longest = max(config.lengths) + config.max_new_tokens
    if longest > lm.window:
        raise UserError(
            f"a length of {max(config.lengths)} tokens plus {config.max_new_tokens} of answer "
            f"makes {longest}, but the window of {lm.name} has {lm.window}. Choose lengths up to "
            f"{lm.window - config.max_new_tokens}."
        )
    return kind_of(config)(lm, config).cases(haystacks, needles)


@checked
def detect(lm: LanguageModel | str | Path, config: DetectConfig = DetectConfig(), *,
           journal: Path | None = None) -> HeadScores:
    """Measure how often each attention head copies the needle, or another score of it.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, or the name or folder of one.
    config : DetectConfig
    journal : Path, optional
        A file that takes each finished case. If it holds cases of this grid already, because an
        earlier run was stopped, they are not run again.

    Returns
    -------
    HeadScores
        With every case, failed ones included, in `.cases`.

    Raises
    ------
    UserError
        Needle or length do not fit the model's window, or its heads cannot be watched. It is no
        error if no needle is found: `.cases` has the answers then, and `.mean` raises.

    Examples
    --------
    >>> from rmutils import DetectConfig, detect, load_model
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> scores = detect(lm, DetectConfig(lengths=(256,), depths=(0.5,), needles=2,
    ...                                  max_new_tokens=16))
    >>> scores.runs.shape  # (successful runs, layers, heads)
    (2, 4, 16)
    >>> scores.select(tau=0.5)[:3]
    [(3, 7), (3, 6), (3, 12)]
    """
    lm = ModelRef(lm).load()
    scores = _detect_together(lm, config, journal)[config.score]
    return replace(scores, about=about(lm.state, config))


def _kinds(lm: LanguageModel, config: DetectConfig) -> dict[str, ScoreKind]:
    """Return the kinds that the run of one gives, by name, that one first."""
    together = kind_of(config).together
    names = dict.fromkeys((config.score, *(together if config.score in together else ())))
    asked = {name: config.changed({"score": name}) for name in names}
    return {name: kind_of(one)(lm, one) for name, one in asked.items()}


def _detect_together(lm: LanguageModel, config: DetectConfig,
                     journal: Path | None) -> dict[str, HeadScores]:
    runs, table = _run(lm, config, Journal(journal, _depends(lm, config)))
    return {name: kind.total(runs[name], table) for name, kind in _kinds(lm, config).items()}


@checked
def success_rate(lm: LanguageModel | str | Path, config: DetectConfig = DetectConfig()) -> float:
    """Return the share of the grid's needles that a model finds, 0 to 1; also under a mask.

    `detect(lm, config).success_rate` has its interval, too, and takes as long.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, or the name or folder of one.
    config : DetectConfig

    Examples
    --------
    >>> from rmutils import DetectConfig, detect, load_model, mask_heads, success_rate
    >>> lm = load_model("tiny-llama", device="cpu")
    >>> config = DetectConfig(lengths=(256,), depths=(0.5,), needles=2, max_new_tokens=16)
    >>> heads = detect(lm, config).select(top_k=10)
    >>> with mask_heads(lm, heads):
    ...     masked = success_rate(lm, config)
    >>> success_rate(lm, config), masked
    (1.0, 0.0)
    """
    return float(detect(lm, config).success_rate.value)


def run_cases(lm: LanguageModel, config: DetectConfig, *, journal: Path | None = None,
              watch: Watch | None = None, of: Any = None) -> tuple[np.ndarray, pd.DataFrame]:
    """Run the cases of `detect`, failed ones too: scores (cases, layers, heads), and a table."""
    runs, table = _run(lm, config, Journal(journal, _depends(lm, config, of)), watch)
    table["success"] |= not kind_of(config).only_found
    return runs[config.score], table


def _run(lm: LanguageModel, config: DetectConfig, records: Journal,
         watch: Watch | None = None) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """The scores of `run_cases` by kind, for all that this run gives."""
    check(lm)
    cases, kinds = build_cases(lm, config), _kinds(lm, config)
    todo = _missing(cases, kinds, records)
    with progress_bar(f"detecting heads of {lm.name}", len(cases),
                      done=len(cases) - len(todo)) as advance:
        _answer(kinds, todo, records, advance, watch)
    table = pd.DataFrame([records[case.id] for case in cases])
    runs = {name: np.zeros((len(table), *lm.shape)) for name in kinds}
    for row, by_kind in enumerate(table.pop("scores")):
        for name, own in runs.items():
            for head, score in by_kind[name].items():
                layer, index = map(int, head.split("-"))
                own[row, layer, index] = score
    for own in runs.values():
        own[:, [i for i in range(lm.shape[0]) if i not in lm.layers]] = np.nan
    return runs, table


def _missing(cases: list[NiahCase], kinds: dict[str, ScoreKind],
             records: Journal) -> list[NiahCase]:
    """Return the cases that have not been answered yet."""
    return [case for case in cases
            if not kinds.keys() <= records.get(case.id, {}).get("scores", {}).keys()]


def _record(kinds: dict[str, ScoreKind], case: NiahCase, answer: Answer,
            seconds: float) -> dict[str, Any]:
    """Return the record of one case. Scores are sparse: {kind: {"layer-head": score}}."""
    kind = next(iter(kinds.values()))
    scores = {name: one.score(case, answer) for name, one in kinds.items()}
    response = str(kind.lm.tokenizer.decode(answer.tokens, skip_special_tokens=True)).strip()
    recall, unit = kind.recall(case.needle.real_needle, response)
    return {
        "case": case.id, "needle": case.needle_index, "length": case.length, "depth": case.depth,
        "prompt_tokens": len(case.input_ids), "needle_start": case.needle_span[0],
        "needle_tokens": kind.needle_tokens(case), "response": response,
        "rouge": recall, "recall": unit, "success": recall > SUCCESS_ROUGE,
        "seconds": round(seconds, 3),
        "scores": {name: {f"{i}-{j}": float(own[i, j]) for i, j in zip(*np.nonzero(own),
                                                                       strict=True)}
                   for name, own in scores.items()},
    }


def _work(model: str, config: DetectConfig, known: Journal, share: slice,
          done: Callable[[float], object]) -> None:
    """Answer the cases of one process: neighbours, as they share much of their text."""
    lm = load_model(model)
    kinds = _kinds(lm, config)
    cases = _missing(build_cases(lm, config), kinds, known)
    first, size = share.start, -(-len(cases) // share.step)
    _answer(kinds, cases[first * size:(first + 1) * size], known, done)


def _answer(kinds: dict[str, ScoreKind], cases: list[NiahCase], records: Journal,
            done: Callable[[float], object], watch: Watch | None = None) -> None:
    for case, answer, seconds in next(iter(kinds.values())).answers(cases, watch):
        records[case.id] = _record(kinds, case, answer, seconds)
        done(1)


def save(scores: HeadScores, folder: Path) -> None:
    """Write `cases.parquet` and `scores.safetensors`."""
    scores.cases.to_parquet(folder / CASES, index=False)
    save_file({"runs": np.ascontiguousarray(scores.runs)}, folder / RUNS)


def load(folder: Path, model: str = "", score: str = "copy") -> HeadScores:
    """Read what `save` wrote."""
    cases = pd.read_parquet(folder / CASES)
    runs = load_file(folder / RUNS)["runs"]
    return HeadScores(runs, model, cases["needle"].to_numpy()[cases["success"]], cases, score)


def _save_together(found: dict[str, HeadScores], folder: Path) -> None:
    """Write `cases.parquet` and, by kind, `scores.safetensors`."""
    found["copy"].cases.to_parquet(folder / CASES, index=False)
    save_file({name: np.ascontiguousarray(scores.runs) for name, scores in found.items()},
              folder / RUNS)


def _load_together(folder: Path) -> dict[str, HeadScores]:
    table = pd.read_parquet(folder / CASES)
    found = {}
    for name, runs in load_file(folder / RUNS).items():
        cases = table.assign(success=table["success"] | (not SCORES[name].only_found))
        needles = cases["needle"].to_numpy()[cases["success"]]
        found[name] = HeadScores(runs, "", needles, cases, name)
    return found


DETECT = Stage[HeadScores](
    "detect", version=1, write=save, read=load, facts=lambda scores: {
        "cases": len(scores.cases), "successful": len(scores.runs),
        "case_seconds": round(float(scores.cases["seconds"].sum()), 1)})
TOGETHER = Stage[dict[str, HeadScores]](
    "scores", version=1, write=_save_together, read=_load_together,
    facts=lambda found: DETECT.facts(found["copy"]))
"""All kinds of score that one run gives. Their configuration is that of the copy score."""


def detect_stored(model: LanguageModel | str, config: DetectConfig = DetectConfig(), *,
                  compute: Compute = "auto", named: str | None = None,
                  workers: int = 1) -> tuple[HeadScores, Artifact]:
    """Look a detection up, or run `detect` and store it; a stopped run goes on case by case."""
    ref = ModelRef(model)
    ref.check_workers(workers)

    def make(journal: Path) -> dict[str, HeadScores]:
        lm = ref.load()
        check(lm)
        cases = build_cases(lm, config)
        if (several := min(workers, len(cases))) > 1:
            side_by_side(partial(_work, ref.name, config), journal, several,
                         f"detecting heads of {lm.name}", len(cases), unit="cases",
                         of=_depends(lm, config))
        return _detect_together(lm, config, journal)

    inputs, shown = inputs_of(ref.identity, config, config.corpus or ref.corpus), named or ref.name
    inputs_together = inputs | contributions_version(ref.family)
    how: dict[str, Any] = {
        "compute": compute, "model": shown, "label": label_of(config),
        "command": command_line("detect", shown, config=config)}
    whole: Artifact | None
    if config.score in kind_of(config).together:
        found, artifact = TOGETHER.obtain(
            config.changed({"score": "copy"}), inputs_together, make, **how)
        scores = found[config.score]
    elif compute != "always" and not find(DETECT.key(config, inputs)) and (
            # Copy scores are the same whichever way contributions were computed.
            whole := find(TOGETHER.key(config, inputs_together)) or find(
                TOGETHER.key(config, inputs))):
        scores, artifact = TOGETHER.read(whole.folder)[config.score], whole
    else:
        scores, artifact = DETECT.obtain(
            config, inputs, lambda journal: make(journal)[config.score], **how)
    return replace(scores, model=ref.name, score=config.score,
                   about=about(ref.identity, config)), artifact


def depends_on(lm: LanguageModel, config: Config, *grids: DetectConfig) -> list[Any]:
    """Return what results of a configuration with these grids depend on, for their journal."""
    return [lm.state, config.identity(), config.outside(),
            [inputs_of(lm.identity, grid, lm.corpus) for grid in grids]]


def _depends(lm: LanguageModel, config: DetectConfig, also: Any = None) -> list[Any]:
    """Return the same for all kinds of score that come from one run."""
    together = config.score in kind_of(config).together
    grid = config.changed({"score": "copy"}) if together else config
    return [*depends_on(lm, grid, grid), also]


def about(identity: str, config: DetectConfig) -> dict[str, Any]:
    """Return `HeadScores.about` of a detection: the model's weights, and the grid."""
    return {"weights": identity, "grid": config.identity()}


def label_of(config: DetectConfig) -> str:
    """Return how a folder's name tells a detection from others: its lengths, `256-512`."""
    return "-".join(map(str, sorted({min(config.lengths), max(config.lengths)})))


def inputs_of(identity: str, config: DetectConfig, corpus: str) -> dict[str, str]:
    """Return what a detection depends on besides its configuration: weights, texts, needles."""
    haystacks, needles = material(config, corpus)
    version = kind_of(config).version
    name = config.definition if config.score == "copy" else config.score
    return {"model": identity, "haystack": _hash(tuple(haystacks)),
            "needles": digest([vars(n) for n in needles]),
            **({"score": f"{name} {version}"} if version > 1 else {})}
