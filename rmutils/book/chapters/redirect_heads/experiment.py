"""Which of two contradicting sentences is answered when heads are pointed at one of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from transformers import DynamicCache

from rmutils.attention.redirect import redirect_rows
from rmutils.book.chapters.redirect_heads.texts import Prompt, Variant, contradictions, prompts
from rmutils.book.experiments import masked_needles, real_models
from rmutils.core.config import Config, digest
from rmutils.core.experiment import Experiment, Plan, Run, load_plan
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import JOURNAL, Artifact, write_tables
from rmutils.heads.detection import DetectConfig, detect_stored, inputs_of
from rmutils.heads.masking import count_displaced, draw_layer_matched
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, stack_caches, view_of
from rmutils.models.engine.generation import in_batches
from rmutils.models.engine.rows import rows_at_once, write_rows
from rmutils.models.loading import ModelRef

PLAIN, TOP, MATCHED, ANYWHERE, EVERY, MOVED = (
    "plain", "top heads", "same layers", "anywhere", "all heads", "moved")
ALL = -1  # the `pair` of conditions that are asked of all texts
KEY = ["score", "policy", "count", "strength", "draw"]
AT_ONCE = 16  # answers whose surprise is computed at once: it bounds the memory


class RedirectConfig(Config):
    """Which heads are pointed at which sentences of which texts."""

    detect: DetectConfig
    """Cases by which heads are ranked."""
    shares: tuple[float, ...]
    """Shares of all heads, rounded: the highest by copy score."""
    strengths: tuple[float, ...]
    """Biases."""
    share: float
    """Share of the heads in all comparisons, one of `shares`."""
    strength: float
    """Their bias, one of `strengths`."""
    scores: tuple[str, ...] = ()
    """Other scores, by which as many heads are chosen for comparison."""
    all_heads: bool = False
    """Point all heads of the model, too."""
    same_layers: Annotated[int, Field(ge=0)] = 0
    """Random choices, for each pair, of as many other heads of the same layers."""
    anywhere: Annotated[int, Field(ge=0)] = 0
    """Random choices, for each pair, of as many other heads of any layer."""
    tau: float = 0.1
    """Heads whose copy score reaches it are in no control."""
    seed: int = 42
    """Seed of the sentences, and of the first choice; the next ones follow."""
    pairs: Annotated[int, Field(ge=1)]
    """Pairs of sentences."""
    variants: tuple[Variant, ...]
    length: int
    """Tokens of a prompt, at most."""
    max_new_tokens: int


@dataclass(frozen=True)
class Redirected:
    """What is answered under each condition."""

    # `score`, `policy` (`plain`, `top heads`, `same layers`, `anywhere`, `all heads`), `count`,
    # `strength`, `draw`, `pair` (of whose texts a control is drawn; -1: of all), `heads` (`16-0
    # 16-2`, say), `displaced` (heads of a control that come from a neighbouring layer).
    conditions: pd.DataFrame
    # `score`, `policy` (also `moved`), `count`, `strength`, `draw`, `pair`, `kind`, `variant`,
    # `first` (the sentence that stands first), `target` (the sentence that is pointed at, or was
    # moved; -1: none), `follows` (`0`, `1`, `both`, `neither`), `surprise` (nats per token of the
    # answer in the plain model that has read the same prompt), `response`.
    answers: pd.DataFrame


def conditions_of(scores: Mapping[str, HeadScores], config: RedirectConfig) -> pd.DataFrame:
    """Return all conditions: the table `Redirected.conditions`, the plain model first."""
    copy, main, seed = scores[masked_needles.COPY], config.strength, config.seed
    total = copy.mean.size
    counts = {share: max(round(share * total), 1) for share in (*config.shares, config.share)}
    asked = counts[config.share]
    rows: list[tuple[str, str, int, float, int, int, list[Head], int]] = [
        ("", PLAIN, 0, 0.0, 0, ALL, [], 0)]
    rows += [(masked_needles.COPY, TOP, count, strength, 0, ALL, copy.ranking()[:count], 0)
             for count in sorted({*counts.values()}) for strength in config.strengths]
    rows += [(name, TOP, asked, main, 0, ALL, scores[name].ranking()[:asked], 0)
             for name in config.scores]
    rows += [("", EVERY, total, main, 0, ALL, copy.heads, 0)] * config.all_heads
    top = copy.ranking()[:asked]
    reaching = copy.ranking()[: masked_needles.count_at(copy, config.tau)]
    spared = masked_needles.spared_by_controls(top, reaching, total) or top
    for pair in range(config.pairs):
        for draw in range(pair * config.same_layers, (pair + 1) * config.same_layers):
            heads = draw_layer_matched(copy.shape, top, exclude=spared, seed=seed + draw)
            rows.append((masked_needles.COPY, MATCHED, asked, main, draw, pair, heads,
                         count_displaced(heads, top)))
        for draw in range(pair * config.anywhere, (pair + 1) * config.anywhere):
            rows.append((masked_needles.COPY, ANYWHERE, asked, main, draw, pair, copy.select_random(
                asked, exclude=spared, seed=seed + draw), 0))
    return pd.DataFrame(
        [(*row[:6], masked_needles.names_of(row[6]), row[7]) for row in rows],
        columns=[*KEY, "pair", "heads", "displaced"])


def asked_of(prompt: Prompt, conditions: pd.DataFrame, config: RedirectConfig) -> pd.DataFrame:
    """Return the conditions of a prompt, once for each sentence that is pointed at (`target`)."""
    chosen = conditions[conditions["pair"].isin([ALL, prompt.pair.pair])]
    plain = chosen["policy"] == PLAIN
    if prompt.variant.startswith("moved"):
        return chosen[plain].assign(policy=MOVED, target=int(prompt.variant[-1]))
    if prompt.variant != "two":
        matched = chosen["policy"] == MATCHED
        top = ((chosen["policy"] == TOP) & (chosen["score"] == masked_needles.COPY)
               & (chosen["strength"] == config.strength)
               & (chosen["count"] == chosen.loc[matched, "count"].iloc[0]))
        chosen = chosen[plain | top | matched & ~chosen["policy"].duplicated()]
    parts = [chosen[chosen["policy"] == PLAIN].assign(target=-1)]
    parts += [chosen[chosen["policy"] != PLAIN].assign(target=i) for i in range(len(prompt.spans))]
    return pd.concat(parts, ignore_index=True)


def redirected_answers(lm: LanguageModel, config: RedirectConfig, *,
                       journal: Path | None = None) -> Redirected:
    """Ask all texts under all conditions; a stopped run goes on text by text."""
    scores = {name: detect_stored(lm, config.detect.changed({"score": name}))[0]
              for name in {*config.scores, masked_needles.COPY}}
    conditions = conditions_of(scores, config)
    texts = prompts(lm, contradictions(config.pairs, config.seed), config.length, config.variants)
    kept = Journal(journal, [lm.state, config.identity()])  # a text's key has what is asked of it
    trunk, parts = Trunk(lm.model, []), []
    with progress_bar(f"redirected heads of {lm.name}", len(texts), unit="texts") as advance:
        for text in texts:
            asked = asked_of(text, conditions, config)
            key = f"{text.id} {digest([text.ids, asked.to_dict('list')])[:16]}"
            if key not in kept:
                trunk = Trunk(lm.model, text.ids[:-1], before=trunk)
                kept[key] = _answers(lm, text, trunk, asked, config.max_new_tokens)
            parts.append(asked[[*KEY, "target"]].assign(
                pair=text.pair.pair, kind=text.pair.kind, variant=text.variant, first=text.first,
                follows=[text.follows(said) for said, _ in kept[key]],
                surprise=[nats for _, nats in kept[key]],
                response=[said for said, _ in kept[key]]))
            advance(1)
    answers = pd.concat(parts, ignore_index=True)
    return Redirected(conditions, answers[[
        *KEY, "pair", "kind", "variant", "first", "target", "follows", "surprise", "response"]])


def _answers(lm: LanguageModel, text: Prompt, trunk: Trunk, asked: pd.DataFrame,
             room: int) -> list[tuple[str, float]]:
    """The answers under the conditions of a prompt that is read, each with its surprise."""
    spans = [text.spans[max(target, 0)] for target in asked["target"]]
    biases = torch.zeros(len(asked), *lm.shape)
    for bias, row in zip(biases, asked.itertuples(), strict=True):
        for head in masked_needles.heads_in(row.heads):
            bias[head] = row.strength

    def write(rows: Sequence[int]) -> list[list[int]]:
        def under(going: Sequence[int]) -> Any:
            own = [rows[i] for i in going]
            return redirect_rows(lm, [spans[i] for i in own], biases[own])

        return write_rows(lm, [text.ids] * len(rows), [view_of(trunk.cache) for _ in rows], under,
                          room)

    size = rows_at_once(lm, trunk.cache, len(text.ids) + room)
    said = [tokens for _, part in in_batches([*range(len(asked))], size, write, "answer")
            for tokens in part]
    known = [*{tuple(tokens) for tokens in said}]
    nats = dict(zip(known, _surprise(lm, text.ids[-1], trunk.cache, known), strict=True))
    return [(str(lm.tokenizer.decode(tokens, skip_special_tokens=True)).strip(),
             nats[tuple(tokens)]) for tokens in said]


@torch.inference_mode()
def _surprise(lm: LanguageModel, last: int, cache: DynamicCache,
              answers: Sequence[tuple[int, ...]]) -> list[float]:
    """Nats per token of answers to a prompt that is read but for its last token; 0 if empty."""
    found: list[float] = []
    for start in range(0, len(answers), AT_ONCE):
        part = answers[start : start + AT_ONCE]
        longest = max(max(map(len, part)), 1)
        ids = torch.tensor([[last, *answer, *[0] * (longest - len(answer))] for answer in part],
                           device=lm.model.device)
        logits = lm.model(ids[:, :-1], use_cache=True, past_key_values=stack_caches(
            [view_of(cache) for _ in part], longest)).logits
        nats = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none").cpu().numpy()
        found += [float(np.mean(own[: len(answer)])) if answer else 0.0
                  for own, answer in zip(nats, part, strict=True)]
    return found


COPY_ALONE = ("gemma3-270m",)  # models without other scores that are stored
CONTRADICTIONS, CONDITIONS, VARIANTS = "contradictions", "conditions", "variants"
"""Parts of the plan."""


def planned(plan: Plan) -> Iterator[Run]:
    """Yield the parts of each model in the order in which they are made."""
    p, texts = plan.content, plan.content["texts"]
    c, more, variants = p["contradictions"], p["conditions"], p["variants"]
    base = RedirectConfig(
        detect=real_models.detection(), shares=tuple(c["shares"]),
        strengths=(c["strength"],), share=c["main_share"], strength=c["strength"],
        same_layers=c["same_layers"], pairs=c["pairs"], variants=("two",),
        length=texts["length"], max_new_tokens=texts["max_new_tokens"])
    for model in p["models"]:
        scores = () if model in COPY_ALONE else tuple(more["scores"])
        yield Run(model, base)
        yield Run(model, base.changed({
            "strengths": (more["strength"],), "scores": scores, "same_layers": 0,
            "anywhere": more["anywhere"], "all_heads": True, "pairs": more["pairs"]}))
        yield Run(model, base.changed({
            "pairs": variants["pairs"], "variants": tuple(variants["texts"])}))


def planned_few(plan: Plan) -> Iterator[Run]:
    """Yield the runs with very few heads: part 1 of the first plan with another share."""
    runs = {run.model: run.config for run in planned(load_plan("redirect"))
            if part_of(run) == CONTRADICTIONS}
    share = plan.content["share"]
    for model in plan.content["models"]:
        yield Run(model, runs[model].changed({"share": share, "shares": (share,)}))


def part_of(run: Run) -> str:
    """Return which part of the plan a run is."""
    config = run.config
    return VARIANTS if "two" not in config.variants else (
        CONDITIONS if config.all_heads else CONTRADICTIONS)


def _inputs(run: Run) -> dict[str, str]:
    ref, config = ModelRef(run.model), run.config
    return inputs_of(ref.identity, config.detect, ref.corpus) | {
        "pairs": digest([vars(pair) for pair in contradictions(config.pairs, config.seed)])}


def _make(run: Run, folder: Path) -> dict[str, Any]:
    found = redirected_answers(ModelRef(run.model).load(), run.config, journal=folder / JOURNAL)
    write_tables(found, folder)
    return {"conditions": len(found.conditions), "answers": len(found.answers)}


REDIRECT = Experiment[Run, Artifact](
    name="redirect", config=RedirectConfig, plan="redirect", planned=planned,
    keys=("model", "config.all_heads", "config.variants"), make=_make, inputs=_inputs,
    label=part_of, notebook="redirect_heads", parameter="compute_redirected")
FEW = replace(REDIRECT, plan="redirect_few", planned=planned_few, label=lambda run: "few")
"""Very few heads, with a control of their own."""
