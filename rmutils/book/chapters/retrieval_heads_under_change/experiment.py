"""Retrieval heads under variants of attention, and the traits by which variants judge a head."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.attention.ms_poe import MsPoe, rescaled
from rmutils.attention.share_attention import Share
from rmutils.attention.sharing_plans import calibration_prompts, mean_distances
from rmutils.attention.variants import PLAIN, Plain, Variant
from rmutils.book.chapters.masking_sweep.experiment import masking_plan, scored
from rmutils.book.experiments.planned_runs import retrain_missing
from rmutils.book.experiments.under_variants import answers
from rmutils.book.experiments.variant_questions import needle_questions
from rmutils.core.config import Config, command_line, digest
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, one_thread, progress_bar
from rmutils.core.results import Artifact, Compute, Stage, Tables, read_tables, stored
from rmutils.heads import detection
from rmutils.heads.masking import mask_heads
from rmutils.heads.scores import DECIMALS, Head, HeadScores
from rmutils.models import LanguageModel, load_model
from rmutils.models.known_models import tau_of
from rmutils.models.loading import ModelRef
from rmutils.stats import RESAMPLES, SHARE, chance_p, draws, interval_of

KEYS_TRAIT, DISTANCE = "keys looked at", "distance to the nearest head"
UNCHANGED = MsPoe(s_min=1, s_max=1, first_layer=0, order="position_aware")
"""All layers, and ratios that change nothing."""


def traits(lm: LanguageModel, prompts: Sequence[Sequence[int]], questions: Sequence[int],
           share: Share = Share()) -> pd.DataFrame:
    """Two traits of each head: share of the keys looked at, and distance to the nearest head."""
    looked = []
    for prompt in prompts:
        with rescaled(lm.model, UNCHANGED, prompt) as scales:
            looked.append([scales[i].shares.tolist() for i in sorted(scales)])
    nearest = []
    for prompt in calibration_prompts(lm, share.prompts, share.tokens):
        apart = mean_distances(lm.model, [prompt])
        apart[:, range(lm.shape[1]), range(lm.shape[1])] = np.inf
        nearest.append(apart.min(-1))
    return pd.concat(
        [_long_traits(np.array(looked), KEYS_TRAIT, questions),
         _long_traits(np.array(nearest), DISTANCE, range(len(nearest)))], ignore_index=True)


def _long_traits(values: np.ndarray, trait: str, questions: Sequence[int]) -> pd.DataFrame:
    prompt, layer, head = (index.ravel() for index in np.indices(values.shape))
    return pd.DataFrame({"trait": trait, "prompt": prompt, "layer": layer, "head": head,
                         "question": np.asarray(questions)[prompt], "value": values.ravel()})


def set_apart(traits: pd.DataFrame, retrieval: Sequence[Head], *, resamples: int = RESAMPLES,
              seed: int = 0) -> pd.DataFrame:
    """Test whether a measure sets retrieval heads apart from other heads of the same layer."""
    rows, rng = [], np.random.default_rng(seed)
    for trait, part in traits.groupby("trait", sort=False):
        wide = part.pivot_table(index="question", columns=["layer", "head"], values="value")
        marked = np.isin(np.arange(wide.shape[1]), [wide.columns.get_loc(h) for h in retrieval])
        layers = wide.columns.get_level_values("layer").to_numpy()
        means = draws(wide.to_numpy(), resamples=resamples, seed=seed)
        drawn = np.array([_more_often(mean, marked, layers) for mean in means])
        by_chance = np.array([_more_often(means[0], _shuffled(marked, layers, rng), layers)
                              for _ in range(resamples)])
        p = chance_p(drawn[0] - 0.5, by_chance - 0.5)
        drawn[np.isnan(means).any(1)] = np.nan  # a single question
        rows.append((trait, *interval_of(drawn, bounds=SHARE, centred=True), p))
    return pd.DataFrame(rows, columns=["trait", "value", "low", "high", "p"])


def _more_often(values: np.ndarray, marked: np.ndarray, layers: np.ndarray) -> float:
    """Share of pairs within a layer in which the marked head has more."""
    pairs = marked[:, None] & ~marked & (layers[:, None] == layers)
    more = (values[:, None] > values) + 0.5 * (values[:, None] == values)
    return float(more[pairs].mean()) if pairs.any() else 0.5


def _shuffled(marked: np.ndarray, layers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = np.empty_like(marked)
    for layer in np.unique(layers):
        drawn[layers == layer] = rng.permutation(marked[layers == layer])
    return drawn


HEADS = Stage[Tables]("variant-heads", version=2)
WHOLE, TRAINED = "whole", "trained"
"""Subjects that answer, besides those with heads masked, which are named by `Masking.policy`."""


class HeadsConfig(Config):
    """The variants, and what is asked under each. All values are ours."""

    variants: Annotated[dict[str, Variant], Field(min_length=1)] = {"plain": Plain()}
    """By name."""
    needles: detection.DetectConfig = detection.DetectConfig(lengths=(256,),
                                                             depths=detection.even_depths(3),
                                                             max_new_tokens=24)
    """Cases in which heads are scored, and needles counted."""
    tau: float | None = None
    """Lowest score of a retrieval head, by the detection that the book's sweep of masks goes by;
    None: the model's own. The same heads under all variants."""
    draws: Annotated[int, Field(ge=1)] = 3
    """Random choices of as many other heads."""
    seed: int = 42
    """Seed of the first of them; 42 in the authors' `mask_retrieval_head.py`."""
    trainings: tuple[str, ...] = ()
    """Stored trainings of the model (`train-...`) that are asked for the needles, too."""


def heads(lm: LanguageModel, scores: HeadScores, config: HeadsConfig, *,
          journal: Path | None = None, load: Callable[[str], LanguageModel] = load_model) -> Tables:
    """Score the heads and count the needles under each variant."""
    scores.select(tau=config.tau)  # says so if there is none
    of = [*detection.depends_on(lm, config, config.needles), scores.mean.tolist()]
    kept, asked = Journal(journal, of), needle_questions(lm, config.needles)
    _, retrieval, *others = masking_plan(scores, (), taus=(config.tau,), draws=config.draws,
                                         seed=config.seed)
    if not others:
        raise UserError(f"{len(retrieval.heads)} of {scores.mean.size} heads of {lm.name} are "
                        f"retrieval heads at tau = {config.tau:g}, so there are not as many others "
                        f"to compare them with. Choose a higher tau.")
    found: dict[str, list[pd.DataFrame]] = {"cases": [], "scores": [], "needles": []}

    def keep(name: str, subject: str, draw: int, table: pd.DataFrame) -> None:
        found["needles"].append(table[["question", "length", "place", "correct"]].assign(
            variant=name, subject=subject, draw=draw))

    total = len(config.variants) * (1 + len(others) + len(config.trainings)) * len(asked.questions)
    with one_thread(), progress_bar(f"{lm.name}, heads under {len(config.variants)} variants",
                                    total, unit="answers", done=len(kept)) as advance:
        for i, (name, variant) in enumerate(config.variants.items()):
            own = journal.with_name(f"{journal.name}.{i}") if journal else None
            with variant.attached(lm) as model:
                runs, cases = detection.run_cases(lm, config.needles, journal=own,
                                                  of=variant.identity(),
                                        watch=None if model.batched else model.watch)
                for masked in (retrieval, *others):
                    with mask_heads(lm, masked.heads):
                        keep(name, masked.policy, masked.draw, answers(
                            model, f"{name}, {masked.policy} {masked.draw}:", asked, kept,
                            advance))
            keep(name, WHOLE, 0, cases.rename(columns={
                "needle": "question", "depth": "place"}).assign(
                    correct=cases["success"].astype(float)))
            found["cases"].append(cases.assign(variant=name))
            found["scores"].append(_long(cases["case"], runs).assign(variant=name))
        for i, training in enumerate(config.trainings):
            trained = load(training)
            for name, variant in config.variants.items():
                with variant.attached(trained) as model:
                    keep(name, TRAINED, i, answers(
                        model, f"{name}, {training}:", asked, kept, advance))
    return {table: pd.concat(parts, ignore_index=True) for table, parts in found.items()} | {
        "retrieval": pd.DataFrame(retrieval.heads, columns=["layer", "head"]),
        "traits": traits(lm, [one.prompt for one in asked.questions],
                         [one.row["question"] for one in asked.questions])}


def _long(cases: Sequence[str], runs: np.ndarray) -> pd.DataFrame:
    case, layer, head = (index.ravel() for index in np.indices(runs.shape))
    return pd.DataFrame({"case": np.asarray(cases)[case], "layer": layer, "head": head,
                         "score": runs.ravel()})


def heads_stored(model: str, config: HeadsConfig = HeadsConfig(), *,
                 compute: Compute = "auto") -> tuple[Tables, Artifact]:
    """`heads` of a model by its name, but a stored result is read instead."""
    config = config.changed({"tau": tau_of(model) if config.tau is None else config.tau})
    scores, _ = scored(model, compute="never" if compute == "never" else "auto")

    ref = ModelRef(model)

    def make(journal: Path) -> Tables:
        retrain_missing(model, config.trainings)
        return heads(ref.load(), scores, config, journal=journal)

    inputs = detection.inputs_of(ref.identity, config.needles, ref.corpus) | {
        "scores": digest(scores.mean.round(DECIMALS).tolist())}
    return HEADS.obtain(config, inputs, make, compute=compute, command=heads_command(model, config),
                        model=model, label="-".join([
                            f"{len(config.variants)}-variants",
                            detection.label_of(config.needles)]))


def heads_command(model: str, config: HeadsConfig) -> str:
    """Return the command line that makes this result."""
    return command_line("variants", "heads", model, config=config)


CHANGED = "changed"


def needles_under(variant: Variant) -> dict[str, tuple[pd.DataFrame, Artifact]]:
    """Look up what whole models find with a variant and without, as far as it is stored."""
    found: dict[str, tuple[pd.DataFrame, Artifact]] = {}
    for artifact in sorted(stored(HEADS.name), key=lambda one: one.name):
        names = {name: CHANGED for name, one in
                 HeadsConfig(**artifact.manifest["config"]).variants.items() if one == variant}
        if names:
            table = read_tables(artifact.folder)["needles"].query("subject == @WHOLE").replace(
                {"variant": names})
            table = table[table["variant"].isin([PLAIN, CHANGED])]
            if artifact.model not in found or len(table) > len(found[artifact.model][0]):
                found[artifact.model] = table, artifact
    return found
