"""The evaluation: every answer of a model to every data set at every length, scored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from rmutils.evaluation.longcontext.judge import GradingJudge
from rmutils.evaluation.longcontext.prompts import Prompter, counter
from rmutils.evaluation.longcontext.samples import Asked, prompter_of, questions
from rmutils.evaluation.longcontext.scoring import rows, score
from rmutils.evaluation.longcontext.settings import EvaluateConfig
from rmutils.evaluation.longcontext.suite import DATASETS
from rmutils.journal import Journal
from rmutils.models import LanguageModel
from rmutils.models.generation import generate
from rmutils.progress import progress_bar
from rmutils.threads import one_thread


def evaluate(
    lm: LanguageModel, config: EvaluateConfig = EvaluateConfig(), *, journal: Path | None = None,
    judge: GradingJudge | None = None,
) -> pd.DataFrame:
    """Ask and score.

    Parameters
    ----------
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
    """
    prompters, kept, found = prompters_of(lm, config), Journal(journal), []
    done = sum("judged" not in name for name in kept)
    with progress_bar(f"evaluation of {lm.name}", len(prompters) * config.samples,
                      unit="answers", done=done) as advance, one_thread():
        for prompter in prompters:
            found += answered_and_scored(prompter, config, kept, advance, judge)
    return pd.DataFrame(found)


def prompters_of(lm: LanguageModel, config: EvaluateConfig) -> list[Prompter]:
    """All data sets at all lengths, once it is sure that they fit."""
    config.check(lm)
    count = counter(lm)
    prompters = [prompter_of(lm, DATASETS[name], length, config, count)
                 for length in config.lengths for name in config.datasets]
    for prompter in prompters:
        questions(prompter, 1)  # says what does not fit before anything runs
    return prompters


def answered_and_scored(
    prompter: Prompter, config: EvaluateConfig, kept: Journal, advance: Callable[[float], None],
    judge: GradingJudge | None = None,
) -> list[dict]:
    """The rows of a data set at one length."""
    asked = _answer(prompter, config, kept, advance)
    return [*rows(prompter, asked, [kept[_key(prompter, ask)] for ask in asked],
                  partial(_score, prompter, judge, kept))]


def _answer(
    prompter: Prompter, config: EvaluateConfig, kept: Journal, advance: Callable[[float], None]
) -> list[Asked]:
    """Have all questions of a data set answered that are not yet; the questions."""
    asked = questions(prompter, config.samples)
    todo = [ask for ask in asked if _key(prompter, ask) not in kept]

    def done(index: int, tokens: list[int]) -> None:
        kept[_key(prompter, todo[index])] = prompter.lm.tokenizer.decode(
            tokens, skip_special_tokens=True)
        advance(1)

    generate(prompter.lm, [ask.prompt for ask in todo], stop_ids=prompter.stop_ids, done=done,
             max_new_tokens=prompter.dataset.max_new_tokens + config.thinking * config.thoughts)
    return asked


def _score(
    prompter: Prompter, judge: GradingJudge | None, kept: Journal, ask: Asked, metric: str,
    response: str,
) -> float:
    """The metric's score, or the judge's, which is kept once it is given."""
    grade = judge.metrics.get(metric) if judge else None
    name = f"judged {metric} {_key(prompter, ask)}"
    if grade and name in kept:
        return kept[name]
    value = score(prompter.dataset, metric, response, ask.question, grade)
    if grade and value == value:
        kept[name] = value
    return value


def _key(prompter: Prompter, ask: Asked) -> str:
    return f"{prompter.dataset.name} {prompter.length} {ask.sample}"
