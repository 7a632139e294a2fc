"""Does training against a masked model add anything that decoding against it does not?"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from rmutils.attention.decore import DeCoRe
from rmutils.attention.variants import Plain, Variant
from rmutils.book.chapters.data_and_training import half_learned
from rmutils.book.experiments.planned_runs import BEFORE, planned_runs
from rmutils.book.experiments.run_costs import CostsConfig, costs
from rmutils.book.experiments.under_variants import TextsConfig, VariantConfig, measure
from rmutils.book.figures.style import BLUE, GREY, ORANGE, legend_above, new_axes
from rmutils.book.findings import Measured, declare
from rmutils.core.config import Config
from rmutils.core.errors import require
from rmutils.core.experiment import Experiment, Plan
from rmutils.core.results import Artifact, Compute, read_tables, write_tables
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.heads.detection import DetectConfig, even_depths
from rmutils.heads.masking import draw_layer_matched
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.contrastive_decoding import ContrastiveDecoding
from rmutils.pipeline.retmask import run_retmask
from rmutils.stats import DIFFERENCE, LEVEL, SHARE, compare, contrast, holm, interval

LARGE = "smollm2-135m"
BASE, DECORE, RANDOM, RETMASK, BOTH = "base", "decore", "decore-random", "retmask", "both"
SHORT = {BASE: "unchanged model", DECORE: "DeCoRe", RANDOM: "DeCoRe, other heads",
         RETMASK: "RetMask", BOTH: "RetMask and DeCoRe"}
"""Arms as figures name them."""
COMPARED = ((RETMASK, BASE), (DECORE, BASE), (RETMASK, DECORE), (DECORE, RANDOM), (BOTH, DECORE))
"""Arms and what each is compared with; the third pair is the primary outcome."""


class ContrastConfig(Config):
    """One run: a model, trained or not, and how it writes."""

    model: str
    """A teaching model, of which a snapshot is taken, or another one."""
    arm: str
    """A key of `SHORT`."""
    seed: int
    """Seed of the training, or of the draw of random heads."""
    measured: VariantConfig
    """Needles and texts."""
    evaluation: EvaluateConfig | None
    """Tasks."""
    costs: CostsConfig | None
    """Time for a token."""


@dataclass(frozen=True)
class Contrasts:
    """The stored runs of the plan."""

    # `needles`, `texts` (see `experiments.under_variants.measure`), `tasks` (`category`, `dataset`,
    # `score`), `costs` (see `experiments.run_costs.costs`), with `model`, `arm` and `seed`.
    tables: dict[str, pd.DataFrame]
    planned: int
    done: int
    deviations: list[str]  # what is not as the plan says


def snapshot_facts(model: str) -> dict:
    """Return step, weights and retrieval heads of a stored snapshot."""
    experiment = half_learned.HALF_LEARNED
    before = experiment.runs()[model, BEFORE, 0]
    artifact = experiment.obtain(before, compute="never")
    tasks = read_tables(artifact.folder)["tasks"]
    return artifact.manifest["facts"] | {"off_floor": half_learned.off_floor(tasks, before)}


def large_heads() -> list[Head]:
    """Return the heads that the stored training of SmolLM2 masks."""
    return run_retmask(LARGE, planned_runs(LARGE)[0], compute="never").heads


def planned(plan: Plan) -> list[ContrastConfig]:
    """Return all runs of the plan."""
    p, runs = plan.content, []
    for model in p["models"]:
        facts = snapshot_facts(model)
        heads = [tuple(head) for head in facts["heads"]]
        needles = DetectConfig(lengths=tuple(p["needles"]["lengths"]),
                               depths=even_depths(p["needles"]["depths"]))
        tasks = EvaluateConfig(datasets=tuple(facts["off_floor"]), samples=p["tasks"]["samples"],
                               lengths=tuple(p["tasks"]["lengths"]))
        timed = CostsConfig(**p["time"], variants={BASE: Plain(), DECORE: DeCoRe(heads=heads)})
        runs += _arms(model, heads, p["seeds"][model], p["draws"], needles, tasks, None, timed)
    large = p["large"]
    return runs + _arms(large["model"], large_heads(), [0], large["draws"],
                        DetectConfig(**large["needles"]), None, TextsConfig(**large["texts"]), None)


def _arms(model: str, heads: list[Head], seeds: list[int], draws: list[int], needles: DetectConfig,
          tasks: EvaluateConfig | None, texts: TextsConfig | None,
          timed: CostsConfig | None) -> list[ContrastConfig]:
    """The runs on a model, but those that the experiment with half-learned models has stored."""
    def run(arm: str, seed: int, variant: Variant) -> ContrastConfig:
        return ContrastConfig(
            model=model, arm=arm, seed=seed, costs=timed if arm == BASE else None,
            measured=VariantConfig(variant=variant, needles=needles, documents=None, texts=texts),
            evaluation=tasks.changed({"variant": variant}) if tasks else None)

    shape = (30, 9) if model == LARGE else (4, 16)
    decore = DeCoRe(heads=tuple(sorted(heads)))
    return [run(BASE, 0, Plain()), run(DECORE, 0, decore),
            *(run(RANDOM, draw, DeCoRe(heads=tuple(draw_layer_matched(
                shape, heads, exclude=heads, seed=draw)))) for draw in draws),
            *(run(RETMASK, seed, Plain()) for seed in seeds if timed is None),
            *(run(BOTH, seed, decore) for seed in seeds)]


def _load(config: ContrastConfig) -> LanguageModel:
    """The model of a run, trained or not."""
    untrained = config.arm not in (RETMASK, BOTH)
    if config.model == LARGE:
        run = run_retmask(config.model, planned_runs(config.model)[0], compute="never")
        return load_model(config.model if untrained else run.training)
    where = half_learned.snapshot_folder(config.model, snapshot_facts(config.model)["step"])
    if untrained:
        return load_model(str(where))
    return half_learned.trained(
        half_learned.HALF_LEARNED.runs()[config.model, RETMASK, config.seed], where)


def _make(config: ContrastConfig, folder: Path) -> dict[str, str]:
    """Write the tables of `Contrasts`."""
    lm = _load(config)
    tables = measure(lm, config.measured)
    if config.evaluation:
        tables["tasks"] = half_learned.task_means(evaluate(lm, config.evaluation))
    if config.costs:
        tables["costs"] = costs(lm, config.costs)["costs"]
    write_tables({name: table.drop(columns="response", errors="ignore")
                  for name, table in tables.items()}, folder)
    return {"weights": lm.identity}


CONTRASTED = Experiment[ContrastConfig, Artifact](
    name="contrasted", config=ContrastConfig, plan="contrast_without_training", planned=planned,
    keys=("model", "arm", "seed"), make=_make, label=lambda run: f"{run.arm}-seed{run.seed}",
    notebook="contrast_without_training", parameter="compute")


def contrasts(*, compute: Compute = "never") -> Contrasts | None:
    """Collect the stored runs, and make the missing ones unless `compute="never"`."""
    runs = CONTRASTED.collect(compute=compute)
    if not runs.stored:
        return None
    tables = {name: [runs.table(name)] for name in ("needles", "texts", "tasks", "costs")}
    trained = half_learned.half_learned()
    for model, seeds in CONTRASTED.read_plan().content["seeds"].items() if trained else ():
        for name, table in (("needles", trained.cases.rename(columns={
                "needle": "question", "depth": "place", "success": "correct"})),
                ("tasks", trained.tasks)):
            kept = table[(table["model"] == model) & table["seed"].isin(seeds)
                         & (table["arm"] == "retmask")]
            tables[name].append(kept.assign(arm=RETMASK).astype(
                {"correct": float} if "correct" in kept else {}))
    missing = [f"{len(runs.missing)} of {len(runs.planned)} planned runs are missing."]
    return Contrasts(
        {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()},
        len(runs.planned), len(runs.stored),
        [*runs.deviations, *(missing if runs.missing else [])])


def compare_needles(needles: pd.DataFrame, pairs=COMPARED) -> pd.DataFrame:
    """Compare arms model by model: needles found, each arm's mean over its seeds or draws."""
    rows = []
    for arm, base in pairs:
        for model, part in needles.groupby("model", sort=False):
            wide = [part[part["arm"] == one].pivot(index=["question", "place"], columns="seed",
                                                   values="correct") for one in (arm, base)]
            if wide[0].empty or wide[1].empty:
                continue
            if {arm, base} == {BOTH, RETMASK}:
                difference = (wide[0] - wide[1]).dropna(axis=1)
            else:
                difference = wide[0].sub(wide[1].mean(axis=1), axis=0)
            values = difference.to_numpy(float)
            clusters = difference.index.get_level_values("question").to_numpy()
            more = contrast(values, clusters, bounds=DIFFERENCE)
            rows.append((model, arm, base, *more.columns.values(), more.clusters, more.seeds))
    found = pd.DataFrame(rows, columns=["model", "arm", "base", "effect", "low", "high", "p",
                                        "needles", "seeds"])
    corrected = found.groupby(["arm", "base"], sort=False)["p"].transform(
        lambda p: holm(p.tolist()))
    found.insert(7, "p_holm", corrected)
    return found


def shares(needles: pd.DataFrame) -> pd.DataFrame:
    """Share of needles found by each arm of each model, with its 95 % interval over needles."""
    rows = []
    for (model, arm), part in needles.groupby(["model", "arm"], sort=False):
        by_case = part.groupby(["question", "place"])["correct"].mean()
        questions = by_case.index.get_level_values("question")
        rows.append((model, arm, *interval(
            by_case, questions, bounds=SHARE, cases=questions.nunique())))
    return pd.DataFrame(rows, columns=["model", "arm", "value", "low", "high"])


def seconds_per_token(table: pd.DataFrame) -> pd.DataFrame:
    """Time for a token under DeCoRe as a multiple of base, model by model, rounds paired."""
    rows = []
    for model, part in table.groupby("model", sort=False):
        wide = part.pivot(index="question", columns="variant", values="step_seconds")
        ratio, low, high = interval(np.log(wide[DECORE] / wide[BASE]))
        rows.append((model, wide[BASE].median(), *np.exp([ratio, low, high])))
    return pd.DataFrame(rows, columns=["model", "seconds", "ratio", "low", "high"])


def verdict(found: pd.DataFrame, plan: Plan) -> str:
    """Return the plan's word for the comparison: `more`, `less`, `excluded` or `undecided`."""
    primary = found[(found["arm"] == RETMASK) & (found["base"] == DECORE)
                    & found["model"].isin(plan.content["models"])]
    size = plan.content["smallest_effect"]["share_of_needles"]
    clear = primary["p_holm"] < 1 - LEVEL
    if (clear & (primary["low"] > 0)).all():
        return "more"
    if (clear & (primary["high"] < 0)).all():
        return "less"
    if (primary["low"].gt(-size) & primary["high"].lt(size)).all():
        return "excluded"
    return "undecided"


def task_changes(tasks: pd.DataFrame) -> pd.DataFrame:
    """Compare arms on the tasks off the floor, mean over data sets, in points; over data sets."""
    rows = []
    for model, part in tasks.groupby("model", sort=False):
        means = part.groupby(["dataset", "arm"])["score"].mean().unstack("arm")
        for arm, base in COMPARED:
            if {arm, base} <= {*means}:
                rows.append((model, arm, base, *interval(means[arm] - means[base]), len(means)))
    return pd.DataFrame(rows, columns=["model", "arm", "base", "effect", "low", "high", "datasets"])


def perplexity_changes(texts: pd.DataFrame) -> pd.DataFrame:
    """Compare the perplexity of each arm with base: a share of it, passages paired."""
    samples = texts.rename(columns={"arm": "strategy", "question": "sample", "nats": "score"})
    found = compare(samples, BASE)[["strategy", "effect", "low", "high"]]
    found[["effect", "low", "high"]] = np.expm1(found[["effect", "low", "high"]])
    return found.rename(columns={"strategy": "arm"})


WRITERS = {"the model": BLUE, "without retrieval heads": GREY, "contrast": ORANGE}
"""Who proposes a next word, and the colour of its bar."""


@torch.inference_mode()
def next_words(lm: LanguageModel, heads: Collection[Head], text: str, most: int = 3,
               least: float = 0.02) -> pd.DataFrame:
    """Return the likeliest next words of each of `WRITERS`, with the probability by all three."""
    how = ContrastiveDecoding(heads)
    with how.masking(lm.model):
        logits = lm.model(torch.tensor([lm.tokenizer(text).input_ids] * 2)).logits[:, -1].float()
    three = torch.cat([logits, how.combine(logits)]).softmax(-1)
    likely = dict.fromkeys(three[[0, 2, 1]].topk(most).indices.flatten().tolist())
    return pd.DataFrame([[lm.tokenizer.decode(word).strip() or "(space)",
                          *three[:, word].tolist()] for word in likely
                         if three[:, word].max() >= least], columns=["word", *WRITERS])


def draw_next_words(proposed: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw a panel for each text: three bars for each word."""
    figure, grid = new_axes(3.4, columns=len(proposed), flat=True, sharex=True)
    for axes, (title, table) in zip(grid, proposed.items(), strict=True):
        places = np.arange(len(table))
        for number, (writer, colour) in enumerate(WRITERS.items()):
            axes.barh(places + 0.27 * (number - 1), 100 * table[writer], height=0.25,
                      color=colour, label=writer)
        axes.set_yticks(places, table["word"])
        axes.set(title=title, xlim=(0, 100), ylim=(len(table) - 0.5, -0.5))
    figure.supxlabel("probability as the next word (%)", fontsize=10)
    legend_above(figure, grid[0], len(WRITERS))
    return figure


NEEDLES, COSTS, TEXTS = "fig-contrast-differences", "contrast-costs", "contrast-plain"


@cache
def stored() -> Contrasts:
    """Look up the planned runs."""
    found = contrasts()
    if found is None:
        require([CONTRASTED.command])
    return found


@cache
def _needles() -> pd.DataFrame:
    needles = stored().tables["needles"]
    table = compare_needles(needles[needles["model"] != LARGE])
    return table.set_index(["arm", "base", "model"])


@cache
def _perplexities() -> pd.DataFrame:
    texts = stored().tables["texts"]
    table = perplexity_changes(texts[texts["model"] == LARGE]).set_index("arm")
    return 1 + table[["effect", "low", "high"]].astype(float)


@declare("contrast-needles", unit="points", place=NEEDLES, otherwise=(
    "{arm} minus {base}: {value} points {more|fewer} needles {ci} on {model}: {verdict}."))
def contrast_needles(arm: str, base: str, model: str) -> Measured:
    """Needles found by one way minus another; p allows for needles only, corrected for models."""
    row = _needles().loc[(arm, base, model)]
    return Measured.row(row, [CONTRASTED.name], 100, clusters=int(row["needles"]), p="p_holm",
                        arm=SHORT[arm], base=SHORT[base])


@declare("contrast-perplexity", unit="times", place=TEXTS, otherwise=(
    "By {arm}, the perplexity of plain text is {value} times as high {ci} on {model}."))
def contrast_perplexity(arm: str) -> Measured:
    """Perplexity of plain text as a multiple of the model's own."""
    return Measured.row(_perplexities().loc[arm], [CONTRASTED.name], arm=SHORT[arm], model=LARGE)


@declare("contrast-time", unit="times", place=COSTS, otherwise=(
    "A token takes {value} times as long {ci} by DeCoRe on {model}."))
def contrast_time(model: str) -> Measured:
    """Processor time for a token by DeCoRe, as a multiple of the model's own."""
    table = seconds_per_token(stored().tables["costs"]).set_index("model")
    return Measured.row(table.loc[model], [CONTRASTED.name])
