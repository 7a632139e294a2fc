"""The evaluation: every answer of a model to every data set at every length, scored and stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils.attention.variants import AttachedModel
from rmutils.core.config import command_line
from rmutils.core.errors import UserError
from rmutils.core.extras import needed
from rmutils.core.journal import Journal, one_thread, progress_bar, side_by_side
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.core.validation import checked
from rmutils.corpora.world.writing import Question
from rmutils.evaluation.helmet.metrics import METRICS, NEEDS, GradingJudge, parse
from rmutils.evaluation.helmet.prompts import (
    Asked,
    EvaluateConfig,
    Prompter,
    prompter_of,
    questions,
)
from rmutils.evaluation.helmet.suite import DATASETS, Dataset
from rmutils.models import LanguageModel, load_model
from rmutils.models.language_model import counter, without_thoughts
from rmutils.models.loading import ModelRef

Grade = Callable[[str, Question], float | None]


def score(dataset: Dataset, metric: str, response: str, question: Question,
          grade: Grade | None = None) -> float:
    """0 to 100, of the better reading of a response; NaN if there is no score."""
    readings = {"raw": response.strip().removeprefix(dataset.begins(question)),
                "parsed": parse(response, dataset.begins(question))}
    read = [readings[name] for name in dataset.readings]
    if grade and read[-1].strip():
        given = grade(read[-1], question)
        return float("nan") if given is None else 100 * given
    return 100 * max(METRICS[metric](text, question) for text in read)


def rows(prompter: Prompter, asked: Sequence[Asked], responses: Sequence[str],
         score_of: Callable[[Asked, str, str], float]) -> Iterator[dict]:
    """A row per sample and metric, scored by `score_of` of question, metric and response."""
    d = prompter.dataset
    for ask, text in zip(asked, responses, strict=True):
        response = without_thoughts(text)
        said = response if prompter.chat else f"{d.begins(ask.question)} {response}"
        for metric in d.metrics:
            value = score_of(ask, metric, said)
            yield {"category": d.category, "dataset": d.name, "length": prompter.length,
                   "sample": ask.sample, "cluster": ask.cluster, "metric": metric, "score": value,
                   "unscored": value != value, "response": response,
                   "prompt_tokens": len(ask.prompt), "position": ask.question.depth}


@checked
def evaluate(lm: LanguageModel | str | Path, config: EvaluateConfig = EvaluateConfig(), *,
             journal: Path | None = None, judge: GradingJudge | None = None) -> pd.DataFrame:
    """Ask a model the questions of HELMET's seven categories, and score its answers.

    Parameters
    ----------
    lm : LanguageModel or str
        A model, or the name or folder of one.
    config : EvaluateConfig
    journal : Path, optional
        A file that takes each answer when it is given. What is there already, because an earlier
        run was stopped, is not asked again.
    judge : GradingJudge, optional
        Grades in place of rules, where HELMET has a model grade.

    Returns
    -------
    DataFrame
        A row per sample and metric: `category`, `dataset`, `length`, `sample`, `cluster` (number of
        its text), `metric`, `score` (0 to 100; NaN if unscored), `unscored`, `response` (without
        thoughts), `prompt_tokens`, `position` (of the supporting sentence in the text, from 0 to 1;
        NaN if there is not just one).

    Raises
    ------
    UserError
        A length over the model's window, or too short for a data set; a chat template is asked for
        and there is none.

    Examples
    --------
    >>> from rmutils import EvaluateConfig, evaluate
    >>> config = EvaluateConfig(datasets=("needle_rivals",), lengths=(300,), samples=2)
    >>> table = evaluate("tiny-llama", config)
    >>> table.groupby("dataset")["score"].mean().round(1).to_dict()
    {'needle_rivals': 100.0}
    """
    lm = ModelRef(lm).load()
    kept, found = Journal(journal, _depends(lm.state, config)), []
    done = sum("judged" not in name for name in kept)
    with config.attached(lm) as model, progress_bar(
            f"evaluation of {lm.name}", config.parts * config.samples, unit="answers",
            done=done) as advance, one_thread():
        for prompter in prompters_of(model.lm, config):
            found += answered_and_scored(model, prompter, config, kept, advance, judge)
    return pd.DataFrame(found)


def prompters_of(lm: LanguageModel, config: EvaluateConfig) -> list[Prompter]:
    """All data sets at all lengths, once it is sure that they fit."""
    config.check(lm)
    for name in config.datasets:
        for metric in DATASETS[name].metrics:  # what cannot be scored is refused at once
            _ = METRICS[metric]
            if library := NEEDS.get(metric):
                needed(library)
    count = counter(lm)
    prompters = [prompter_of(lm, DATASETS[name], length, config, count)
                 for length in config.lengths for name in config.datasets]
    for prompter in prompters:
        questions(prompter, 1)  # says what does not fit before anything runs
    return prompters


def answered_and_scored(model: AttachedModel, prompter: Prompter, config: EvaluateConfig,
                        kept: Journal, advance: Callable[[float], object],
                        judge: GradingJudge | None = None) -> list[dict]:
    """The rows of a data set at one length."""
    asked = _answer(model, prompter, config, kept, advance)
    return [*rows(prompter, asked, [kept[_key(prompter, ask)] for ask in asked],
                  partial(_score, prompter, judge, kept))]


def _answer(model: AttachedModel, prompter: Prompter, config: EvaluateConfig, kept: Journal,
            advance: Callable[[float], object]) -> list[Asked]:
    """Have all questions of a data set answered that are not yet; the questions."""
    asked = questions(prompter, config.samples)
    todo = [ask for ask in asked if _key(prompter, ask) not in kept]

    def done(index: int, tokens: list[int], share: float) -> None:
        kept[_key(prompter, todo[index])] = prompter.lm.tokenizer.decode(
            tokens, skip_special_tokens=True)
        advance(1)

    model.answer([ask.prompt for ask in todo], stop_ids=prompter.stop_ids, done=done,
                 max_new_tokens=prompter.dataset.max_new_tokens + config.thinking * config.thoughts)
    return asked


def _score(prompter: Prompter, judge: GradingJudge | None, kept: Journal, ask: Asked, metric: str,
           response: str) -> float:
    """The metric's score, or the judge's, which is kept once it is given."""
    grade = judge.metrics.get(metric) if judge else None
    name = f"judged {metric} {_key(prompter, ask)} {judge.identity}" if judge else ""
    if grade and name in kept:
        return kept[name]
    value = score(prompter.dataset, metric, response, ask.question, grade)
    if grade and value == value:
        kept[name] = value
    return value


def _key(prompter: Prompter, ask: Asked) -> str:
    return f"{prompter.dataset.name} {prompter.length} {ask.sample}"


def evaluate_side_by_side(model: str, config: EvaluateConfig, journal: Path,
                          workers: int) -> pd.DataFrame:
    """`evaluate` without a judge, by processes that each take every n-th data set and length."""
    shares = side_by_side(partial(_work, model, config), journal, workers, f"evaluation of {model}",
                          config.parts * config.samples,
                          of=_depends(ModelRef(model).identity, config))
    return pd.DataFrame([
        row for i in range(config.parts) for row in shares[i % workers][i // workers]])


def _depends(model: str, config: EvaluateConfig) -> list[Any]:
    """Return what the answers depend on, for their journal; grades name their judge."""
    return [model, config.identity(), config.outside()]


def _work(model: str, config: EvaluateConfig, kept: Journal, share: slice,
          done: Callable[[float], object]) -> list[list[dict]]:
    with config.attached(load_model(model)) as attached:
        return [answered_and_scored(attached, prompter, config, kept, done)
                for prompter in prompters_of(attached.lm, config)[share]]


def _facts(tables: Tables) -> dict[str, int]:
    table = tables["scores"]
    return {"answers": len(table.drop_duplicates(["dataset", "length", "sample"])),
            "unscored": int(table["unscored"].sum())}


EVALUATION = Stage[Tables]("evaluation", version=1, facts=_facts)


def evaluate_stored(model: LanguageModel | str, config: EvaluateConfig = EvaluateConfig(), *,
                    judge: GradingJudge | None = None, compute: Compute = "auto",
                    workers: int = 1) -> tuple[pd.DataFrame, Artifact]:
    """`evaluate`, but a result that is stored already is read instead; a stopped run goes on."""
    ref, several = ModelRef(model), min(workers, config.parts) > 1
    ref.check_workers(workers)

    def make(journal: Path) -> Tables:
        if several:
            table = evaluate_side_by_side(ref.name, config, journal, min(workers, config.parts))
        if judge or not several:  # a judge is asked by one process only
            table = evaluate(ref.load(), config, journal=journal, judge=judge)
        if judge and judge.trouble:
            raise UserError(f"{judge.trouble} All answers are kept: the same command goes on.")
        return {"scores": table}

    inputs = {"model": ref.identity} | ({"judge": judge.identity} if judge else {})
    tables, artifact = EVALUATION.obtain(
        config, inputs, make, compute=compute, model=ref.name,
        command=evaluation_command(ref.name, config, judge))
    return tables["scores"], artifact


def evaluation_command(name: str, config: EvaluateConfig, judge: GradingJudge | None = None) -> str:
    """Return the command line that makes an evaluation."""
    grading = ("--judge", judge.server.url, "--judge-model", judge.server.name) if judge else ()
    return command_line("evaluate", name, *grading, config=config)


BASELINES = Stage[Tables]("baselines", version=1)


def baselines(scores: np.ndarray, texts: np.ndarray) -> tuple[float, float]:
    """Score every answer against other questions: shuffled context, and best constant answer."""
    foreign, others = texts[:, None] != texts, ~np.eye(len(scores), dtype=bool)
    shuffled = scores[foreign].mean() if foreign.any() else np.nan
    constant = (scores * others).sum(0) / (len(scores) - 1) if len(scores) > 1 else [np.nan]
    return float(shuffled), float(np.max(constant))


def baselines_stored(model: str, config: EvaluateConfig, *,
                     compute: Compute = "auto") -> tuple[pd.DataFrame, Artifact]:
    """Compare a stored evaluation with answers that do not depend on their question."""
    table, evaluation = evaluate_stored(model, config, compute="never")
    responses = table.drop_duplicates(["dataset", "length", "sample"]).set_index(
        ["dataset", "length", "sample"])["response"]

    def make(_: object) -> Tables:
        rows = []
        for prompter in prompters_of(load_model(model), config):
            d, asked = prompter.dataset, questions(prompter, config.samples)
            said = [responses[d.name, prompter.length, ask.sample] for ask in asked]
            full = said if prompter.chat else [f"{d.begins(ask.question)} {text}"
                                               for ask, text in zip(asked, said, strict=True)]
            scores = np.array([[np.mean([score(d, metric, text, ask.question)
                                         for metric in d.metrics]) for text in full]
                               for ask in asked])
            texts = np.array([ask.cluster for ask in asked])
            (commonest, times), = Counter(said).most_common(1)
            rows.append((d.category, d.name, prompter.length, len(asked), len({*texts}),
                         np.diag(scores).mean(), *baselines(scores, texts), commonest, times))
        return {"baselines": pd.DataFrame(rows, columns=[
            "category", "dataset", "length", "questions", "texts", "score", "shuffled",
            "constant", "commonest", "times"])}

    tables, artifact = BASELINES.obtain(config, {"evaluation": evaluation.key}, make,
                                        compute=compute, command="rmutils claims", model=model)
    return tables["baselines"], artifact
