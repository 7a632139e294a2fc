"""Where Ms-PoE can help: beyond the trained length, and two causes of a loss in the middle."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from rmutils.attention.ms_poe import MsPoe
from rmutils.attention.rope import inverse_frequencies, layers_of, turn, turned_states
from rmutils.attention.variants import PLAIN, AttachedModel, AttentionVariant, Plain
from rmutils.book.chapters.data_and_training.half_learned import snapshot_folder
from rmutils.book.experiments import under_variants
from rmutils.book.experiments.variant_questions import DocumentsConfig
from rmutils.core.config import Config
from rmutils.core.experiment import Experiment, Plan, Runs
from rmutils.core.journal import Journal
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, Compute, write_tables
from rmutils.heads import DetectConfig
from rmutils.heads.detection import depends_on
from rmutils.heads.scores import Head
from rmutils.longcontext.extension import Extended
from rmutils.models import LanguageModel, identify, load_model
from rmutils.models.engine.implementations import using
from rmutils.models.language_model import passages
from rmutils.models.teaching import RECIPES, train_further
from rmutils.stats import ANY, DIFFERENCE, Bounds, Interval, interval

CAUSES = ("A", "B")  # answers in the outer fifths of the training texts; answers anywhere
AT_ONCE = 3  # variants of a measurement of a cause: a part of the plan is stored without the rest
MANY, ONE, REVERSED = "1 to 1.5", "all 1.25", "1.5 to 1"
"""Ratios of the same mean: one for each head, one for all heads, and the reversed order."""
AUTHORS, SPARED, YARN = "1.2 to 1.8, by prompt", "1 to 1.5, spared", "YaRN"
ON_YARN = " on YaRN"  # ends the name of a variant whose positions YaRN has stretched before
LOOKS_BACK = 0.4  # mean attention to the token before, from which on a head is spared


class PositionsConfig(Config):
    """A model, asked for needles at some lengths under several variants."""

    model: str
    """A teaching model."""
    cause: str = ""
    """`A` or `B`: a snapshot of the model's training is trained further for it."""
    snapshot: int = 0
    """Its step."""
    further: int = 0
    """Steps of the further training."""
    outer: float | None = None
    """Share of its answers that stand in the outer fifths of their text; None: they stand
    anywhere."""
    trained: int
    """Longest text that the model was trained with, in tokens."""
    yarn: float
    """Factor of YaRN."""
    variants: tuple[str, ...]
    """Names, as in `variant`."""
    needles: DetectConfig
    texts: under_variants.TextsConfig = under_variants.TextsConfig()


def variant(name: str, lm: LanguageModel, trained: int, yarn: float) -> AttentionVariant:
    """Return a variant of the plan by its name, for a model whose heads may be spared."""
    if name == PLAIN:
        return Plain()
    if name == YARN:
        return Extended(factor=yarn, trained=trained)
    if name.endswith(", by prompt"):
        return MsPoe(order="position_aware")
    ratios, _, how = name.partition(", ")
    if ratios.startswith("all "):
        low = high = float(ratios.removeprefix("all "))
    else:
        low, high = _ends(ratios)
    return MsPoe(s_min=low, s_max=high, first_layer=0,
                 order="reversed" if ratios.startswith("1.5") else "linear",
                 spacing="two" if " or " in ratios else "log" if how == "log" else "even",
                 spared=tuple(previous_token_heads(lm)) if how == "spared" else ())


def _ends(ratios: str) -> tuple[float, float]:
    low, high = sorted(map(float, ratios.replace(" or ", " to ").split(" to ")))
    return low, high


def misread_ranges(plan: Plan) -> dict[str, tuple[float, float]]:
    """Return the plan's ranges under which no head has a ratio of 1, with their ends."""
    ranges = {name: _ends(name) for name, what in plan.content["strained"]["variants"].items()
              if what.startswith("the seed's range")}
    return {name: ends for name, ends in ranges.items() if ends[0] > 1}


def labels(plan: Plan) -> dict[str, str]:
    """Return how a page names variants whose planned name misleads."""
    return {name: f"all heads at {name}" for name in misread_ranges(plan)}


def previous_token_heads(lm: LanguageModel) -> list[Head]:
    """Heads whose mean attention to the token before, over plain texts, is `LOOKS_BACK` or more."""
    texts, _ = passages(lm, under_variants.TextsConfig().count, under_variants.TextsConfig().tokens)
    with using(lm.model, "eager"), torch.inference_mode():
        weights = lm.model(torch.tensor(texts, device=lm.model.device), output_attentions=True,
                           use_cache=False).attentions
    means = torch.stack([layer.diagonal(-1, dim1=2, dim2=3).mean((0, 2)) for layer in weights])
    return [(int(layer), int(head)) for layer, head in (means >= LOOKS_BACK).nonzero()]


def planned(plan: Plan) -> list[PositionsConfig]:
    """Return all measurements in the order in which they are made."""
    p = plan.content
    grid = {"needles": p["needles"]["count"], "depths": tuple(p["needles"]["depths"]),
            "max_new_tokens": 24}
    strained = p["strained"]
    texts = under_variants.TextsConfig(count=strained["texts"])
    runs = [PositionsConfig(
        model=model, variants=(PLAIN, *strained["variants"]), texts=texts,
        trained=strained["trained"], yarn=strained["yarn"],
        needles=DetectConfig(lengths=(strained["length"],), **grid))
        for model in strained["models"]]
    if causes := p.get("causes"):
        names = (PLAIN, *causes["variants"])
        runs += [PositionsConfig(
            model=model, cause=cause, snapshot=causes["snapshots"][model], outer=causes[cause],
            further=causes["further"], trained=causes["trained"], yarn=causes["yarn"],
            variants=names[start : start + AT_ONCE], texts=texts,
            needles=DetectConfig(lengths=tuple(causes["lengths"].values()), **grid))
            for model in causes["models"] for start in range(0, len(names), AT_ONCE)
            for cause in CAUSES]
    return runs


def _make(config: PositionsConfig, folder: Path) -> dict[str, Any]:
    """Write `needles` and `texts` with `variant`; a stopped run goes on with the next variant."""
    lm = load_model(str(_trained(config)) if config.cause else config.model)
    kept = Journal(folder / ".done.jsonl", depends_on(lm, config, config.needles))
    for name in config.variants:
        if name not in kept:
            first, then = (variant(one, lm, config.trained, config.yarn) for one in (
                YARN if name.endswith(ON_YARN) else PLAIN, name.removesuffix(ON_YARN)))
            how = under_variants.VariantConfig(
                variant=then, needles=config.needles, documents=None, texts=config.texts)
            with first.attached(lm):
                tables = under_variants.measure(lm, how)
            kept[name] = {table: rows.assign(variant=name).to_dict("records")
                          for table, rows in tables.items()}
    write_tables({table: pd.concat([pd.DataFrame(kept[name][table]) for name in
                                    config.variants]).drop(columns=["response", "kept"],
                                                           errors="ignore")
                  for table in ("needles", "texts")}, folder)
    return {"spared": previous_token_heads(lm)}


POSITIONS = Experiment[PositionsConfig, Artifact](
    name="positions", config=PositionsConfig, plan="ms_poe", planned=planned,
    keys=("model", "cause", "variants"), make=_make,
    label=lambda run: f"cause-{run.cause.lower()}" if run.cause else "strained",
    inputs=lambda run: ({"recipe": RECIPES[run.model].digest()} if run.cause
                        else {"model": identify(run.model)}),
    notebook="11_ms_poe", parameter="compute_planned")
SCALES = replace(POSITIONS, name="ms-poe-scales", plan="ms_poe_scales", parameter="compute_scales")
"""Ratios that the summary recommends, and ratios on YaRN."""


def _trained(config: PositionsConfig) -> Path:
    """Folder of a model that is trained for a cause, which is trained if it is not there."""
    folder = cache_dir() / "models" / (
        f"cause-{config.cause.lower()}-{config.model}-{config.snapshot}-{config.further}")
    if not (folder / "config.json").exists():
        snapshot = snapshot_folder(config.model, config.snapshot)
        lm = load_model(str(snapshot))
        lm.model.load_state_dict(train_further(
            RECIPES[config.model], snapshot, config.further, seed=0, changes={
                "curriculum": ((1.0, config.trained),), "kinds": ("needle",), "tasks": 0.75,
                "plain": 0.0, "head_dropout": 0.0, "layer_dropout": 0.0,
                "outer": config.outer}).state_dict())
        lm.tokenizer.save_pretrained(folder)
        lm.model.save_pretrained(folder)
    return folder


def within_length(model: str, *, compute: Compute = "never") -> under_variants.Compared:
    """Look up, or measure, a model within its trained length: many ratios, and their mean."""
    variants: dict[str, AttentionVariant] = {PLAIN: Plain()}
    variants |= {f"1 to {most:g}": MsPoe(s_min=1, s_max=most, first_layer=0)
                 for most in (1.5, 2, 4, 8)}
    variants |= {"1.2 to 1.8, by prompt": MsPoe(order="position_aware"),
                 "1.2 to 1.8, as coded": MsPoe(order="reference"),
                 "all 1.5": MsPoe(s_min=1.5, s_max=1.5)}
    lengths, places = (512,), (0, 0.25, 0.5, 0.75, 1)
    return under_variants.compare_stored(model, variants, under_variants.VariantConfig(
        needles=DetectConfig(lengths=lengths, depths=places, needles=6, max_new_tokens=24),
        documents=DocumentsConfig(lengths=lengths, places=places, questions=12, seed=42),
        texts=under_variants.TextsConfig(count=16)), compute=compute)


def positions(experiment: Experiment[PositionsConfig, Artifact] = POSITIONS, *,
              compute: Compute = "never") -> tuple[
        dict[str, pd.DataFrame], Runs[PositionsConfig, Artifact]]:
    """Collect what is stored, and make what is missing unless `compute="never"`."""
    runs = experiment.collect(compute=compute)
    return {name: runs.table(name).drop(columns="variants") for name in ("needles", "texts")
            if runs.stored}, runs


PARTS = {"all places": (0.0, 1.0), "middle": (0.2, 0.8)}
"""Places from where to where, 0 is the start and 1 the end of the text."""
ALL = "all models"


def cell(needles: pd.DataFrame, cause: str, length: int, variant: str) -> pd.DataFrame:
    """Return whether each needle was found in a cell of the plan, a column for each model."""
    part = needles.query("cause == @cause and length == @length and variant == @variant")
    return part.pivot(index=["question", "place"], columns="model", values="correct").astype(float)


def middle(found: pd.DataFrame) -> pd.DataFrame:
    """The rows of `cell` whose place is neither at the start nor at the end."""
    return found[found.index.get_level_values("place").to_series().between(
        *PARTS["middle"]).to_numpy()]


def over_needles(values: pd.DataFrame, bounds: Bounds = DIFFERENCE) -> Interval:
    """Mean of rows and columns of `cell` with its 95 % interval over needles and models."""
    return interval(values.to_numpy(), values.index.get_level_values("question"), seeds=True,
                    bounds=bounds)


def gains(needles: pd.DataFrame, base: str = PLAIN) -> pd.DataFrame:
    """Compare each variant with the plain model, over all places and in the middle."""
    rows = []
    for (cause, length), cells in needles.groupby(["cause", "length"], sort=False):
        before, models = cell(needles, cause, length, base), [*cells["model"].unique()]
        groups = {model: [model] for model in models} | ({ALL: models} if cause else {})
        for (model, chosen), name in product(groups.items(), cells["variant"].unique()):
            after = cell(needles, cause, length, name)
            for part in PARTS if name != base else ():
                ours, theirs = ((one if part == "all places" else middle(one))[chosen]
                                for one in (after, before))
                rows.append((cause, length, model, name, part, theirs.to_numpy().mean(),
                             ours.to_numpy().mean(), *over_needles(ours - theirs)))
    return pd.DataFrame(rows, columns=["cause", "length", "model", "variant", "part", "plain",
                                       "found", "value", "low", "high"])


RULED = "1 to 1.5"  # the variant that the rule is about


def tested(needles: pd.DataFrame, plan: Plan) -> dict[str, Interval]:
    """Compute what the plan's rule asks for."""
    causes = plan.content["causes"]
    length = {cause: causes["lengths"][causes["tested"][cause]] for cause in CAUSES}

    def found(cause: str, tokens: int, name: str = PLAIN) -> pd.DataFrame:
        cells = cell(needles, cause, tokens, name)
        return cells[[model for model in cells if model in both]]

    both = set.intersection(*({*needles.query("cause == @cause")["model"]} for cause in CAUSES))
    inside = found("A", length["A"])
    at_ends = inside.drop(middle(inside).index)
    dip = (at_ends.groupby("question").mean() - middle(inside).groupby("question").mean())
    loss = middle(found("B", causes["lengths"]["inside"])).sub(middle(found("B", length["B"])))
    gain = {cause: middle(found(cause, length[cause], RULED)) - middle(found(
        cause, length[cause])) for cause in CAUSES}
    return {"dip of A": over_needles(dip), "loss of B": over_needles(loss),
            **{cause: over_needles(gain[cause]) for cause in CAUSES},
            "B less A": over_needles(gain["B"] - gain["A"], bounds=ANY)}


def distance_scores(lm: LanguageModel, distances: Sequence[int]) -> pd.DataFrame:
    """By how much distance alone changes the score of a key, before the softmax."""
    ids = torch.tensor(passages(lm, under_variants.TextsConfig().count,
                                under_variants.TextsConfig().tokens)[0],
                       device=lm.model.device)
    places = torch.arange(ids.shape[1], device=ids.device)
    parts = []
    for layer, states in turned_states(lm.model, range(lm.shape[0]), ids,
                                       places.expand_as(ids)).items():
        frequencies = inverse_frequencies(lm.model, layer).float()
        attention: Any = layers_of(lm.model)[layer].self_attn
        query, key = (torch.complex(*turn(one, -places, frequencies).float().mean(
            (0, 2)).chunk(2, dim=-1)) for one in states)
        products = query * key.conj().repeat_interleave(len(query) // len(key), dim=0)
        angles = torch.tensor(distances)[:, None] * frequencies.cpu()
        scores = (products[:, None].cpu() * torch.polar(torch.ones_like(angles), angles)).real.sum(
            -1) * attention.scaling
        parts.append(pd.DataFrame((scores - scores[:, :1]).numpy(), columns=[*distances]).melt(
            ignore_index=False, var_name="distance", value_name="score").rename_axis(
                "head").reset_index().assign(layer=layer))
    return pd.concat(parts, ignore_index=True)[["layer", "head", "distance", "score"]]


def token_costs(lm: LanguageModel, variants: Mapping[str, AttentionVariant], length: int, *,
                steps: int = 16, rounds: int = 3) -> pd.DataFrame:
    """Processor time of reading a prompt and of writing a token, the shortest of some rounds."""
    heads, keys = lm.model.config.num_attention_heads, lm.model.config.num_key_value_heads
    ids, rows = [[7 + i % 200 for i in range(length)]], []
    for name, how in variants.items():
        with how.attached(lm) as model:
            seconds = [[_seconds(model, ids, count) for count in (1, 1 + steps)]
                       for _ in range(rounds)]
        first, whole = (min(column) for column in zip(*seconds, strict=True))
        rows.append((name, first, 1000 * (whole - first) / steps,
                     keys if name == PLAIN else heads * length))
    return pd.DataFrame(rows, columns=["variant", "prompt", "token", "turned"])


def _seconds(model: AttachedModel, ids: list[list[int]], count: int) -> float:
    start = time.process_time()
    model.answer(ids, max_new_tokens=count, stop_ids=(), done=lambda *_: None)
    return time.process_time() - start
