"""Are the heads that copy necessary and sufficient for an answer, and the same at every token?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from rmutils.core.config import Config, digest, run_notebook
from rmutils.core.errors import UserError
from rmutils.core.experiment import Plan
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.corpora.niah import NiahCase
from rmutils.heads import DetectConfig, HeadScores, detect
from rmutils.heads.answering import SUCCESS_ROUGE
from rmutils.heads.detection import build_cases, depends_on, inputs_of
from rmutils.heads.masking import draw_layer_matched
from rmutils.heads.one_run import WatchedAnswer
from rmutils.heads.patching import GivenAnswer, single_heads, without_needle
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import DECIMALS, Head, Values
from rmutils.models import LanguageModel
from rmutils.models.loading import ModelRef

RESTORE, REMOVE, ZERO = "restore", "remove", "zero"
NONE, TOP, MATCHED, OWN, SHIFTED = "none", "top heads", "same layers", "own", "shifted"
COPY = "copy"


class IsItCausalConfig(Config):
    """The cases, and the heads that are exchanged."""

    choice: DetectConfig
    """Cases by which the heads are ranked."""
    kinds: tuple[str, ...]
    """Scores by which they are."""
    cases: DetectConfig
    """Cases whose answers are exchanged."""
    top: tuple[int, ...]
    """How many of the highest heads are exchanged together; the first is the primary number."""
    draws: int
    """Random choices of the same number of others of the same layers, for each score and number."""
    seed: int
    """Seed of the first of them."""


class LeadersConfig(Config):
    """Heads that are restored alone, length by length."""

    cases: DetectConfig
    heads: tuple[Head, ...]


@dataclass(frozen=True, eq=False)
class IsItCausal:
    """What exchanging heads does to the answers in which the needle is found."""

    scores: pd.DataFrame  # `kind`, `layer`, `head`, `score`
    # `case`, `needle`, `way` (`restore`, `remove`, `zero`), `kind`, `policy` (`none`, `top heads`,
    # `same layers`, `own`, `shifted`), `count`, `draw`, `right` (share of the answer's tokens that
    # are the first choice), `whole` (all are), `nats` (log-probability of the answer).
    sets: pd.DataFrame
    # `case`, `needle`, `step`, `token`, `layer`, `head`, `restored`, `removed`: by how much the
    # head alone raises or lowers the log-probability of the token, nats.
    singles: pd.DataFrame

    def ranking(self, kind: str) -> list[Head]:
        """Return all heads, highest first; ties in the order of layer and head."""
        part = self.scores[self.scores["kind"] == kind]
        part = part.assign(score=-part["score"].round(DECIMALS)).sort_values(
            ["score", "layer", "head"])
        return list(part[["layer", "head"]].itertuples(index=False, name=None))


@dataclass(frozen=True)
class Leaders:
    """What two heads restore, length by length."""

    # `needle`, `length`, `layer`, `head`, `restored` (nats of the answer), `gap` (nats that all
    # heads restore).
    table: pd.DataFrame


IS_IT_CAUSAL = Stage.of_tables("is-it-causal", 1, IsItCausal)
LEADERS = Stage.of_tables("leaders", 1, Leaders)


def planned(plan: Plan) -> dict[str, IsItCausalConfig]:
    """Return the configuration for each model of the plan, in its order."""
    p, found = plan.content, {}
    choice, cases = p["choice"], p["cases"]
    for model in p["models"]:
        found[model] = IsItCausalConfig(
            choice=DetectConfig(
                lengths=tuple(choice["lengths"]), depths=tuple(choice["depths"]),
                needles=choice["needles"][model], max_new_tokens=cases["max_new_tokens"]),
            kinds=tuple(choice["scores"]),
            cases=DetectConfig(
                lengths=tuple(cases["lengths"]), depths=tuple(cases["depths"][model]),
                needles=cases["needles"].get(model), needle_set=cases["set"],
                max_new_tokens=cases["max_new_tokens"]),
            top=tuple(p["heads"]["top"][model]), draws=p["heads"]["draws"],
            seed=p["heads"]["seed"])
    return found


def planned_leaders(plan: Plan, scores: HeadScores) -> LeadersConfig:
    """Return the configuration of the plan's part about lengths."""
    p, every = plan.content, scores.cases["length"]
    return LeadersConfig(
        cases=DetectConfig(
            lengths=tuple(p["lengths"]["lengths"]), depths=tuple(p["lengths"]["depths"]),
            needles=p["lengths"]["needles"], needle_set=p["cases"]["set"],
            max_new_tokens=p["cases"]["max_new_tokens"]),
        heads=tuple(scores.where((every == n).to_numpy()).ranking()[0]
                    for n in (every.min(), every.max())))


def is_it_causal(lm: LanguageModel, config: IsItCausalConfig, *,
                 journal: Path | None = None) -> IsItCausal:
    """Rank the heads, then exchange them in every answer that has its needle."""
    kept = Journal(journal, depends_on(lm, config, config.choice, config.cases))
    for kind in config.kinds:
        if f"score {kind}" not in kept:
            kept[f"score {kind}"] = detect(lm, config.choice.changed({"score": kind})).mean.tolist()
    means = {kind: np.array(kept[f"score {kind}"]) for kind in config.kinds}
    scores = pd.DataFrame([(kind, *head, mean[head]) for kind, mean in means.items()
                           for head in np.ndindex(*lm.shape)],
                          columns=["kind", "layer", "head", "score"])
    ranked = IsItCausal(scores, *[pd.DataFrame()] * 2)
    rows, sets = choices(lm.shape, {kind: ranked.ranking(kind) for kind in config.kinds},
                         config.top, config.draws, config.seed)
    for case, answer in found_answers(lm, config.cases, kept):
        kept[case.id] = _exchanged(lm, case, answer, rows, sets, config.top[0]) if answer else {}
    done = answers(lm, config.cases, kept)
    return IsItCausal(scores, joined(done, "sets"),
                      joined(done, "singles").astype({"restored": "float32", "removed": "float32"}))


def answers(lm: LanguageModel, config: DetectConfig, kept: Journal) -> list[dict[str, Any]]:
    """What is kept of the answers that have their needle."""
    done = [kept[case.id] for case in build_cases(lm, config) if kept[case.id]]
    if not done:
        raise UserError(f"{lm.name} finds none of the needles, so no answer can be taken apart.")
    return done


def joined(records: list[dict[str, Any]], part: str) -> pd.DataFrame:
    """One part of all answers below each other."""
    return pd.concat([pd.DataFrame(record[part]) for record in records], ignore_index=True)


def found_answers(lm: LanguageModel, config: DetectConfig,
                  kept: Journal) -> Iterator[tuple[NiahCase, WatchedAnswer | None]]:
    """Answer the cases that are not done; None where the needle is not found."""
    kind = SCORES["dla"](lm, config.changed({"score": "dla"}))  # any whose answers are watched
    cases = build_cases(lm, config)
    todo = [case for case in cases if case.id not in kept]
    with progress_bar(f"exchanged heads of {lm.name}", len(cases),
                      done=len(cases) - len(todo)) as advance:
        for case, answer, _ in kind.answers(todo, None):
            assert isinstance(answer, WatchedAnswer)
            said = str(lm.tokenizer.decode(answer.tokens, skip_special_tokens=True))
            recall, _ = kind.recall(case.needle.real_needle, said)
            yield case, answer if recall > SUCCESS_ROUGE and answer.steps else None
            advance(1)


def choices(shape: tuple[int, int], rankings: Mapping[str, list[Head]], counts: Sequence[int],
            draws: int, seed: int) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """All sets of heads: `kind`, `policy`, `count`, `draw`; and (sets, layers, heads)."""
    rows: list[tuple[str, str, int, int]] = [("", NONE, 0, 0)]
    heads: list[list[Head]] = [[]]
    for kind, ranking in rankings.items():
        for count in counts:
            top = ranking[:count]
            rows.append((kind, TOP, count, 0))
            heads.append(top)
            for draw in range(draws):
                rows.append((kind, MATCHED, count, draw))
                heads.append(draw_layer_matched(shape, top, exclude=top, seed=seed + draw))
    chosen = np.zeros((len(heads), *shape), bool)
    for one, mask in zip(heads, chosen, strict=True):
        for head in one:
            mask[head] = True
    return pd.DataFrame(rows, columns=["kind", "policy", "count", "draw"]), chosen


class TwoRuns:
    """An answer in the run with its needle, and in the one without it."""

    def __init__(self, lm: LanguageModel, case: NiahCase, answer: WatchedAnswer):
        clean, empty = (GivenAnswer(lm, ids, answer)
                        for ids in (case.input_ids, without_needle(case)))
        off = empty.outputs()
        self.case, self.ways = case, {RESTORE: (empty, answer.outputs), REMOVE: (clean, off),
                                      ZERO: (clean, torch.zeros_like(off))}

    def exchanged(self, way: str, chosen: NDArray[np.bool_]) -> tuple[Values, Values]:
        """Exchange some heads in one way; see `GivenAnswer.exchanged`."""
        run, outputs = self.ways[way]
        return run.exchanged(outputs, chosen)

    def sets(self, way: str, rows: pd.DataFrame, chosen: NDArray[np.bool_]) -> pd.DataFrame:
        """Exchange sets of heads, which `rows` names: records for `IsItCausal.sets`."""
        odds, right = self.exchanged(way, chosen)
        return rows.assign(case=self.case.id, needle=self.case.needle_index, way=way,
                           right=right.mean(1), whole=right.all(1), nats=odds.sum(1))


def _exchanged(lm: LanguageModel, case: NiahCase, answer: WatchedAnswer, rows: pd.DataFrame,
               sets: NDArray[np.bool_], count: int) -> dict[str, dict[str, list[Any]]]:
    """Exchange single heads and sets of heads in one answer: records for `sets` and `singles`."""
    runs = TwoRuns(lm, case, answer)
    single = single_heads(lm)
    restored, removed = (runs.exchanged(way, single)[0] for way in (RESTORE, REMOVE))
    gained, lost = restored[1:] - restored[0], removed[0] - removed[1:]
    steps = len(answer.steps)
    singles = pd.DataFrame({
        "case": case.id, "needle": case.needle_index,
        **dict(zip(("layer", "head"), np.indices(lm.shape).reshape(2, -1, 1).repeat(
            steps, 2).reshape(2, -1), strict=True)),
        "step": np.tile(answer.steps, len(gained)),
        "token": np.tile([lm.tokenizer.decode([t]) for t in answer.tokens[answer.steps]],
                         len(gained)),
        "restored": gained.ravel(), "removed": lost.ravel()})
    own = np.zeros((steps, *lm.shape), bool)
    for mask, order in zip(own, np.argsort(-gained, 0, kind="stable")[:count].T, strict=True):
        mask.ravel()[order] = True
    named = pd.concat([rows, pd.DataFrame({
        "kind": "", "policy": [OWN, SHIFTED], "count": count, "draw": 0})])
    whole = np.broadcast_to(sets[:, None], (len(sets), steps, *lm.shape))
    return {"sets": pd.concat([
        runs.sets(RESTORE, named, np.concatenate([whole, [own, np.roll(own, 1, 0)]])),
        runs.sets(REMOVE, rows, whole), runs.sets(ZERO, rows, whole)]).to_dict("list"),
        "singles": singles.to_dict("list")}


def leaders_by_length(lm: LanguageModel, config: LeadersConfig, *,
                      journal: Path | None = None) -> Leaders:
    """Restore each of a few heads alone, and all together, in every answer that has its needle."""
    kept = Journal(journal, depends_on(lm, config, config.cases))
    chosen = np.zeros((2 + len(config.heads), 1, *lm.shape), bool)
    chosen[1] = True
    for mask, head in zip(chosen[2:], config.heads, strict=True):
        mask[0][head] = True
    layers, heads = zip(*config.heads, strict=True)
    for case, answer in found_answers(lm, config.cases, kept):
        record: dict[str, Any] = {}
        if answer:
            odds = GivenAnswer(lm, without_needle(case), answer).exchanged(
                answer.outputs, chosen)[0].sum(1)
            record["table"] = pd.DataFrame({
                "needle": case.needle_index, "length": case.length, "layer": layers,
                "head": heads, "restored": odds[2:] - odds[0], "gap": odds[1] - odds[0],
            }).to_dict("list")
        kept[case.id] = record
    return Leaders(joined(answers(lm, config.cases, kept), "table"))


def is_it_causal_stored(model: str, config: IsItCausalConfig, *,
                        compute: Compute = "auto") -> tuple[IsItCausal, Artifact]:
    """`is_it_causal` of a model by its name, but a stored result is read instead."""
    ref = ModelRef(model)
    inputs = inputs_of(ref.identity, config.choice, ref.corpus) | {
        "cases": digest(inputs_of(ref.identity, config.cases, ref.corpus))}
    return IS_IT_CAUSAL.obtain(
        config, inputs, lambda journal: is_it_causal(ref.load(), config, journal=journal),
        compute=compute, model=model,
        command=run_notebook("is_it_causal", {"compute": "auto", "models": f'["{model}"]'}))


def leaders_stored(model: str, config: LeadersConfig, *,
                   compute: Compute = "auto") -> tuple[Leaders, Artifact]:
    """`leaders_by_length` of a model by its name, but a stored result is read instead."""
    ref = ModelRef(model)
    return LEADERS.obtain(
        config, inputs_of(ref.identity, config.cases, ref.corpus),
        lambda journal: leaders_by_length(ref.load(), config, journal=journal), compute=compute,
        model=model, command=run_notebook("is_it_causal", {"compute": "auto", "models": "[]"}))
