"""Which score finds the heads that matter? Heads ranked by several scores, the highest masked.

`rmutils run which_heads -p compute auto` makes what is missing of `data/plans/which_heads.yml`; a
stopped run goes on masking by masking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rmutils.core.config import Config, added, digest, run_notebook
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.evaluation.answers import find_needles
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.evaluation.likelihoods import log_probabilities
from rmutils.experiments.sweep_questions import KNOWN_TOKENS, PASSAGE
from rmutils.heads import DetectConfig, mask_heads
from rmutils.heads.detection import build_cases, detect_stored, inputs_of
from rmutils.heads.masking import Ablation, draw_layer_matched
from rmutils.heads.one_run import WatchedAnswer
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import DECIMALS, Head
from rmutils.models import LanguageModel
from rmutils.models.language_model import passages
from rmutils.models.loading import ModelRef
from rmutils.pipeline.planned_runs import Plan
from rmutils.stats import ANY, DIFFERENCE, Interval, holm, interval, sign_flip_test

WHOLE, TOP, MATCHED = "whole", "top heads", "same layers"
COPY, WRITE = "paper", "dla"
"""The score that says which heads copy, and the one that says which write."""
SCORE = {COPY: "copy", **{name: name for name in (
    "attention", WRITE, "locos", "anchor", "query", "patching")}}
"""Scores of the plans as `DetectConfig.score`, and figures, name them."""
PRIMARY, TASK, PLAIN_TEXT = "literal", "task", "plain text"


class WhichHeadsConfig(Config):
    """The scores, the maskings and the questions."""

    detect: DetectConfig
    """Cases from which every score is taken."""
    kinds: tuple[str, ...]
    """Scores, as the plan names them (`SCORE`)."""
    top: tuple[int, ...]
    """How many of the highest heads are masked."""
    draws: int
    """Random choices of as many others of the same layers, for each score and number."""
    seed: int
    """Seed of the first of them."""
    asked: DetectConfig
    """Cases of the needles that are asked of the masked model."""
    sets: tuple[str, ...]
    """Needle sets that are asked."""
    task: EvaluateConfig
    """A data set of the evaluation."""
    plain_text: int
    """Passages of plain text."""
    how: Ablation = added("zero")
    """What masked heads do instead of their work."""


@dataclass(frozen=True)
class WhichHeads:
    """Scores, and what is left under each masking.

    Attributes
    ----------
    scores : DataFrame
        `kind`, `layer`, `head`, `score`: the mean over the cases in which the needle was found.
    outcomes : DataFrame
        `kind`, `policy` (`whole`, `top heads` or `same layers`), `count`, `draw`, `outcome` (a
        needle set, `task` or `plain text`), `sample`, `value`: the share that is right, 0 to 1; of
        plain text the log-probability per token, nats.
    answer : DataFrame
        One answer of the whole model: `step`, `token`, `kind`, `layer`, `head`, `copies` (the head
        looks hardest at the needle's token that is written), `attention` (on the needle), `adds`
        (to the logit of that token); the five highest heads by copy score and by what they write.
    """

    scores: pd.DataFrame
    outcomes: pd.DataFrame
    answer: pd.DataFrame

    def map_of(self, kind: str) -> np.ndarray:
        """Return the scores of a kind, (layers, heads)."""
        return self.scores[self.scores["kind"] == kind].pivot(
            index="layer", columns="head", values="score").to_numpy()

    def ranking(self, kind: str) -> list[Head]:
        """Return all heads, highest first; ties in the order of layer and head."""
        return _ranked(self.map_of(kind))


WHICH_HEADS = Stage.of_tables("which-heads", 1, WhichHeads)

TASK_LENGTHS = {"smollm2-135m": 320}
"""Tokens of a question of the task where the planned 256 do not hold one, with its examples."""


def planned(plan: Plan, how: Ablation = "zero") -> dict[str, WhichHeadsConfig]:
    """Return the configuration for each model of the plan, in its order."""
    p = plan.content
    grid = p["detection"]
    found = {}
    for model in p["models"]:
        found[model] = WhichHeadsConfig(
            detect=DetectConfig(lengths=tuple(grid["lengths"]), depths=tuple(grid["depths"]),
                                needles=grid["needles"][model],
                                max_new_tokens=grid["max_new_tokens"]),
            kinds=tuple(p["scores"]), top=tuple(p["masks"]["top"][model]),
            draws=p["masks"]["draws"][model], seed=p["masks"]["seed"],
            asked=DetectConfig(lengths=tuple(grid["lengths"]), depths=(0.5,),
                               max_new_tokens=grid["max_new_tokens"]),
            sets=tuple(p["outcomes"]["sets"]),
            task=EvaluateConfig(datasets=(p["outcomes"]["task"],),
                                lengths=(TASK_LENGTHS.get(model, *grid["lengths"]),), samples=20),
            plain_text=p["outcomes"]["plain_text"], how=how)
    return found


def which_heads(
    lm: LanguageModel, config: WhichHeadsConfig, *, journal: Path | None = None
) -> WhichHeads:
    """Score all heads in several ways, then ask the model under every masking."""
    kept = Journal(journal)
    means = {kind: detect_stored(lm, config.detect.changed({"score": SCORE[kind]}))[0].mean
             for kind in config.kinds}
    plan: list[tuple[str, str, int, int, list[Head]]] = [("", WHOLE, 0, 0, [])]
    for kind, mean in means.items():
        for count in config.top:
            top = _ranked(mean)[:count]
            plan.append((kind, TOP, count, 0, top))
            plan += [(kind, MATCHED, count, draw, draw_layer_matched(
                lm.shape, top, exclude=top, seed=config.seed + draw))
                for draw in range(config.draws)]
    masked = {_names(heads): heads for *_, heads in plan}  # a set that two scores choose: once
    todo = [name for name in masked if name not in kept]
    with progress_bar(f"maskings of {lm.name}", len(masked), unit="maskings",
                      done=len(masked) - len(todo)) as advance:
        for name in todo:
            with mask_heads(lm, masked[name], config.how):
                kept[name] = _ask(lm, config).to_dict("list")
            advance(1)
    outcomes = pd.concat([
        pd.DataFrame(kept[_names(heads)]).assign(kind=kind, policy=policy, count=count, draw=draw)
        for kind, policy, count, draw, heads in plan], ignore_index=True)
    rows = [(kind, layer, head, mean[layer, head]) for kind, mean in means.items()
            for layer, head in np.ndindex(*mean.shape)]
    return WhichHeads(pd.DataFrame(rows, columns=["kind", "layer", "head", "score"]), outcomes,
                      watch_answer(lm, config.detect, means))


def _ask(lm: LanguageModel, config: WhichHeadsConfig) -> pd.DataFrame:
    """What is left: `outcome`, `sample`, `value`."""
    parts = {name: find_needles(lm, config.asked.changed({"needle_set": name})).groupby("needle")[
        "success"].mean() for name in config.sets}
    parts[TASK] = evaluate(lm, config.task).groupby("sample")["score"].mean() / 100
    texts, turn = passages(lm, config.plain_text, PASSAGE)
    known = turn + KNOWN_TOKENS
    nats = log_probabilities(lm, [text[:known] for text in texts], [text[known:] for text in texts])
    parts[PLAIN_TEXT] = pd.Series(nats) / (PASSAGE - KNOWN_TOKENS)
    return pd.concat([pd.DataFrame({"outcome": name, "sample": part.index, "value": part.to_numpy(
        float)}) for name, part in parts.items()], ignore_index=True)


def _names(heads: Iterable[Head]) -> str:
    return " ".join(f"{layer}-{head}" for layer, head in sorted(heads))


def _ranked(mean: np.ndarray) -> list[Head]:
    order = np.argsort(-mean.round(DECIMALS).ravel(), kind="stable")
    return [divmod(int(i), mean.shape[1]) for i in order]


def watch_answer(
    lm: LanguageModel, config: DetectConfig, means: Mapping[str, np.ndarray], top: int = 5
) -> pd.DataFrame:
    """Watch one answer token by token: the table `answer` of `WhichHeads`.

    It is the answer that has most of its needle, the first of those that are alike.

    Parameters
    ----------
    means : mapping
        Score -> (layers, heads).
    top : int
        How many of the highest heads by `COPY` and by `WRITE`.
    """
    kind = SCORES[WRITE](lm, config.changed({"score": WRITE}))
    answered = kind.answers(build_cases(lm, config.changed({"needles": 4})), None)
    case, answer, _ = max(answered, key=lambda one: kind.recall(
        one[0].needle.real_needle, lm.tokenizer.decode(one[1].tokens))[0])
    start, end = case.needle_span
    assert isinstance(answer, WatchedAnswer)
    rows = []
    for i, step in enumerate(answer.steps):
        token = int(answer.tokens[step])
        for name in (COPY, WRITE):
            for head in _ranked(means[name])[:top]:
                place = int(answer.positions[step, *head])
                copies = start <= place < end and case.input_ids[place] == token
                rows.append((step, lm.tokenizer.decode([token]), name, *head, copies,
                             float(answer.attention[i, *head]),
                             float(answer.from_all[i, *head])))
    return pd.DataFrame(rows, columns=["step", "token", "kind", "layer", "head", "copies",
                                       "attention", "adds"])


def which_heads_stored(
    model: str, config: WhichHeadsConfig, *, compute: Compute = "auto"
) -> tuple[WhichHeads, Artifact]:
    """`which_heads` of a model by its name, but a stored result is read instead."""
    ref = ModelRef(model)
    inputs = inputs_of(ref.identity, config.detect, ref.corpus) | {
        name: digest(inputs_of(ref.identity, config.asked.changed({"needle_set": name}),
                               ref.corpus)) for name in config.sets}
    return WHICH_HEADS.obtain(
        config, inputs, lambda journal: which_heads(ref.load(), config, journal=journal),
        compute=compute, model=model,
        command=run_notebook("which_heads", {"compute": "auto", "models": f'["{model}"]'}))


def costs(result: WhichHeads) -> pd.DataFrame:
    """Return what each masking loses, and how much of it is due to the heads.

    Returns
    -------
    DataFrame
        `outcome`, `kind`, `count`, `whole` (of the unmasked model), `lost` and `control` (by the
        top heads, and by as many others of the same layers), each an `Interval` over samples (and
        draws), `difference` (an `Interval`), `p` (sign flips of samples), `p_holm` (over the
        scores, for each outcome and number).
    """
    rows = []
    for (outcome, kind, count), part in result.outcomes[
            result.outcomes["policy"] != WHOLE].groupby(["outcome", "kind", "count"], sort=False):
        whole = result.outcomes.query("policy == @WHOLE and outcome == @outcome").set_index(
            "sample")["value"]
        lost = {policy: (whole.to_numpy()[:, None] - group.pivot(
            index="sample", columns="draw", values="value").loc[whole.index].to_numpy())
            for policy, group in part.groupby("policy")}
        bounds = ANY if outcome == PLAIN_TEXT else DIFFERENCE
        beyond = lost[TOP] - lost[MATCHED]
        rows.append((outcome, kind, count, whole.mean(), interval(lost[TOP][:, 0], bounds=bounds),
                     interval(lost[MATCHED], seeds=True, bounds=bounds),
                     interval(beyond, seeds=True, bounds=bounds), sign_flip_test(beyond)))
    table = pd.DataFrame(rows, columns=["outcome", "kind", "count", "whole", "lost", "control",
                                        "difference", "p"])
    return table.assign(p_holm=table.groupby(["outcome", "count"])["p"].transform(holm))


def compare_kinds(result: WhichHeads, outcome: str, count: int, base: str = COPY) -> pd.DataFrame:
    """Compare what the top heads of each score lose with what those of another do.

    Returns
    -------
    DataFrame
        `kind`, `more` (`Interval` over the same samples of how much more is lost).
    """
    part = result.outcomes.query(
        "policy == @TOP and outcome == @outcome and count == @count").pivot(
            index="sample", columns="kind", values="value")
    bounds = ANY if outcome == PLAIN_TEXT else DIFFERENCE
    return pd.DataFrame([{"kind": kind, "more": interval(part[base] - part[kind], bounds=bounds)}
                         for kind in result.scores["kind"].unique() if kind != base])


def agreement(result: WhichHeads, count: int, tau: float = 0.1) -> pd.DataFrame:
    """Compare each score with the copy score.

    Returns
    -------
    DataFrame
        `kind`, `correlation` (Spearman's, over all heads), `common` (of the top `count`), `layers`
        (lowest, middle and highest of the top), `like_tau` (the score that as many heads reach as
        reach `tau` by the copy score; NaN if none does).
    """
    base, mean = result.ranking(COPY)[:count], result.map_of(COPY)
    reached = int((mean.round(DECIMALS) >= tau).sum())
    rows = []
    for kind in result.scores["kind"].unique():
        ranked, scores = result.ranking(kind), result.map_of(kind)
        layers = sorted(layer for layer, _ in ranked[:count])
        rows.append((kind, pd.Series(mean.ravel()).corr(pd.Series(scores.ravel()), "spearman"),
                     len({*ranked[:count]} & {*base}),
                     f"{layers[0]} to {layers[-1]}, median {np.median(layers):g}",
                     scores[ranked[reached - 1]] if reached else np.nan))
    return pd.DataFrame(rows, columns=["kind", "correlation", "common", "layers", "like_tau"])


def finding(
    model: str, result: WhichHeads, table: pd.DataFrame, bounds: tuple[float, float], level: float
) -> str:
    """Say which scores find heads that matter, by the rule of the plan.

    Scores that choose the same heads are named together: nothing can tell them apart.

    Parameters
    ----------
    table : DataFrame
        Rows of `costs` for one number of heads.
    """
    part = table[table["outcome"] == PRIMARY]
    count, whole = int(part["count"].iloc[0]), part["whole"].iloc[0]
    if whole < bounds[0]:
        return f"- **{model}** finds {whole:.0%} of the literal needles, too few to lose any."
    alike: dict[tuple[frozenset[Head], str], list[str]] = {}
    for row in part.itertuples():
        verdict = ("undecided" if not _clear(row, level) else "these heads matter"
                   if row.difference.low > 0 else "they matter less than others")
        heads = frozenset(result.ranking(row.kind)[:count])
        said = (f"{_share(row.lost)}, {_others(heads, result.map_of(row.kind).shape[1])} "
                f"{_share(row.control)} (difference {_share(row.difference)}, "
                f"p = {row.p_holm:.2g}: {verdict})")
        alike.setdefault((heads, said), []).append(SCORE[row.kind])
    lines = [f"{' and '.join(names)}{', the same heads,' * (len(names) > 1)} {said}"
             for (_, said), names in alike.items()]
    return (f"- **{model}** finds {whole:.0%} of the literal needles. Masking the top {count} "
            f"heads loses, by score, of all needles: {'; '.join(lines)}.")


def headlines(
    stored: Mapping[str, WhichHeads], tables: Mapping[tuple[str, int], pd.DataFrame], level: float
) -> list[str]:
    """Say how alike the scores choose, what their heads are worth, and the planned test.

    Parameters
    ----------
    tables : mapping
        Model and number of heads -> rows of `costs`.
    """
    most = {model: max(count for name, count in tables if name == model) for model in stored}
    fewest = {model: min(count for name, count in tables if name == model) for model in stored}
    alike: dict[bool, list[str]] = {True: [], False: []}
    lost, clear, tests = [], 0, 0
    for model, result in stored.items():
        shared = agreement(result, most[model])["common"].min()
        alike[2 * shared >= most[model]].append(f"{shared} of {most[model]} on `{model}`")
        row = tables[model, most[model]].query("outcome == @PRIMARY and kind == @COPY").iloc[0]
        lost.append(f"{_share(row.lost)} on `{model}` (others of the same layers "
                    f"{_share(row.control)})")
        planned = tables[model, fewest[model]].query("outcome == @PRIMARY")
        clear += sum(_clear(row, level) for row in planned.itertuples())
        tests += len(planned)
    return [
        " ".join(said + f"{', '.join(shares)}." for said, shares in (
            ("The scores choose much the same heads: of the top heads by copy score, every other "
             "score also chooses at least ", alike[True]),
            ("The scores disagree: some score chooses, of the top heads by copy score, only ",
             alike[False])) if shares),
        f"Masking the top {_either(most)} heads by copy score loses, of the literal needles, "
        f"{'; '.join(lost)}.",
        f"The plan's own test masks the top {_either(fewest)} and is clear in {clear} of {tests} "
        f"pairs of a model and a score; the others are undecided."]


def _either(counts: Mapping[str, int]) -> str:
    return " or ".join(map(str, sorted({*counts.values()})))


def _clear(row: Any, level: float) -> bool:
    """Whether a row of `costs` decides by the rule of the plan."""
    return bool(row.p_holm < level and (row.difference.low > 0 or row.difference.high < 0))


def _others(heads: frozenset[Head], width: int) -> str:
    """Name the control; where its layers have no more heads than it masks, each draw is the same.
    """
    left = width * len({layer for layer, _ in heads}) - len(heads)
    return ("as many others of the same layers" if left > len(heads)
            else "the only others of the same layers")


def _share(found: Interval) -> str:
    value, low, high = (f"{100 * end + 0:.0f}".replace("-", "−") for end in found)
    return f"{value} % [{low}, {high}]"


def off_floor(costs_of: pd.DataFrame, bounds: tuple[float, float]) -> list[str]:
    """Return the outcomes that have room for a loss; plain text always has."""
    whole = costs_of.groupby("outcome", sort=False)["whole"].first()
    return [name for name, value in whole.items() if name == PLAIN_TEXT or value >= bounds[0]]

