"""Which score finds the heads that matter? Heads ranked by several scores, the highest masked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rmutils.book.experiments.masked_needles import names_of
from rmutils.book.experiments.sweep_questions import KNOWN_TOKENS, PASSAGE
from rmutils.core.config import Config, added, digest, run_notebook
from rmutils.core.experiment import Plan
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage
from rmutils.evaluation.answers import find_needles, log_probabilities
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.heads import DetectConfig, mask_heads
from rmutils.heads.detection import build_cases, depends_on, detect_stored, inputs_of
from rmutils.heads.masking import Ablation, draw_layer_matched
from rmutils.heads.one_run import WatchedAnswer
from rmutils.heads.residual import contributions_version
from rmutils.heads.score_kinds import SCORES
from rmutils.heads.scores import DECIMALS, Head
from rmutils.models import LanguageModel
from rmutils.models.language_model import passages
from rmutils.models.loading import ModelRef

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
    """Random choices of the same number of others of the same layers, for each score and number."""
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
    """Scores, and what is left under each masking."""

    # `kind`, `layer`, `head`, `score`: the mean over the cases in which the needle was found.
    scores: pd.DataFrame
    # `kind`, `policy` (`whole`, `top heads` or `same layers`), `count`, `draw`, `outcome` (a needle
    # set, `task` or `plain text`), `sample`, `value`: the share that is right, 0 to 1; of plain
    # text the log-probability per token, nats.
    outcomes: pd.DataFrame
    # One answer of the whole model: `step`, `token`, `kind`, `layer`, `head`, `copies` (the head
    # looks hardest at the needle's token that is written), `attention` (on the needle), `adds` (to
    # the logit of that token); the five highest heads by copy score and by what they write.
    answer: pd.DataFrame

    def map_of(self, kind: str) -> np.ndarray:
        """Return the scores of a kind, (layers, heads)."""
        return self.scores[self.scores["kind"] == kind].pivot(
            index="layer", columns="head", values="score").to_numpy()

    def ranking(self, kind: str) -> list[Head]:
        """Return all heads, highest first; ties in the order of layer and head."""
        return ranked(self.map_of(kind))


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


def which_heads(lm: LanguageModel, config: WhichHeadsConfig, *,
                journal: Path | None = None) -> WhichHeads:
    """Score all heads in several ways, then ask the model under every masking."""
    kept = Journal(journal, depends_on(lm, config, config.detect, config.asked))
    means = {kind: detect_stored(lm, config.detect.changed({"score": SCORE[kind]}))[0].mean
             for kind in config.kinds}
    plan: list[tuple[str, str, int, int, list[Head]]] = [("", WHOLE, 0, 0, [])]
    for kind, mean in means.items():
        for count in config.top:
            top = ranked(mean)[:count]
            plan.append((kind, TOP, count, 0, top))
            plan += [(kind, MATCHED, count, draw, draw_layer_matched(
                lm.shape, top, exclude=top, seed=config.seed + draw))
                for draw in range(config.draws)]
    masked = {names_of(heads): heads for *_, heads in plan}  # a set that two scores choose: once
    todo = [name for name in masked if name not in kept]
    with progress_bar(f"maskings of {lm.name}", len(masked), unit="maskings",
                      done=len(masked) - len(todo)) as advance:
        for name in todo:
            with mask_heads(lm, masked[name], config.how):
                kept[name] = _ask(lm, config).to_dict("list")
            advance(1)
    outcomes = pd.concat([
        pd.DataFrame(kept[names_of(heads)]).assign(kind=kind, policy=policy, count=count, draw=draw)
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


def ranked(mean: np.ndarray) -> list[Head]:
    """Return all heads, highest first; ties in the order of layer and head."""
    order = np.argsort(-mean.round(DECIMALS).ravel(), kind="stable")
    return [divmod(int(i), mean.shape[1]) for i in order]


def watch_answer(lm: LanguageModel, config: DetectConfig, means: Mapping[str, np.ndarray],
                 top: int = 5) -> pd.DataFrame:
    """Watch one answer token by token: the table `answer` of `WhichHeads`."""
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
            for head in ranked(means[name])[:top]:
                place = int(answer.positions[step, *head])
                copies = start <= place < end and case.input_ids[place] == token
                rows.append((step, lm.tokenizer.decode([token]), name, *head, copies,
                             float(answer.attention[i, *head]), float(answer.from_all[i, *head])))
    return pd.DataFrame(rows, columns=["step", "token", "kind", "layer", "head", "copies",
                                       "attention", "adds"])


def which_heads_stored(model: str, config: WhichHeadsConfig, *,
                       compute: Compute = "auto") -> tuple[WhichHeads, Artifact]:
    """`which_heads` of a model by its name, but a stored result is read instead."""
    ref = ModelRef(model)
    inputs = inputs_of(ref.identity, config.detect, ref.corpus) | contributions_version(
        ref.family) | {
        name: digest(inputs_of(ref.identity, config.asked.changed({"needle_set": name}),
                               ref.corpus)) for name in config.sets}
    return WHICH_HEADS.obtain(
        config, inputs, lambda journal: which_heads(ref.load(), config, journal=journal),
        compute=compute, model=model,
        command=run_notebook("which_heads", {"compute": "auto", "models": f'["{model}"]'}))
