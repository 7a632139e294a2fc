"""Needles that a model still finds without some of its heads: the highest, and random others."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from transformers import DynamicCache

from rmutils.core.config import Config, digest
from rmutils.core.errors import UserError
from rmutils.core.experiment import Plan
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import JOURNAL, Artifact, Compute, Stage, read_tables, write_tables
from rmutils.corpora.niah import NiahCase
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases, detect_stored, inputs_of, material
from rmutils.heads.masking import count_displaced, draw_layer_matched
from rmutils.heads.residual import contributions_version
from rmutils.heads.scores import DECIMALS, Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.engine.caches import Trunk, view_of
from rmutils.models.engine.generation import in_batches
from rmutils.models.engine.rows import rows_at_once, write_rows
from rmutils.models.head_blocks import before_each, projections
from rmutils.models.loading import ModelRef

WHOLE, TOP, MATCHED, ANYWHERE = "whole", "top heads", "same layers", "anywhere"
NEWEST, EVERY = "newest", "every"
"""Positions at which heads are masked: where the answer is decided, or everywhere."""
COPY = "copy"


class MaskedNeedlesConfig(Config):
    """Which heads are masked, and which needles are asked for."""

    detect: DetectConfig
    """Cases by which heads are ranked."""
    scores: tuple[str, ...] = (COPY,)
    """Scores by which they are: kinds that `DetectConfig.score` knows."""
    counts: tuple[int, ...] = ()
    """How many of the highest heads are masked."""
    shares: tuple[float, ...] = ()
    """The same as shares of all heads, rounded."""
    all_at_tau: bool = False
    """Mask all heads at or above `tau`, too."""
    tau: float = 0.1
    """Heads whose copy score reaches it are in no control."""
    curve: tuple[int, ...] = ()
    """Further numbers of the highest heads, without controls; those that the model has."""
    same_layers: Annotated[int, Field(ge=0)] = 12
    """Random choices of the same number of others of the same layers, for each score and number."""
    anywhere: Annotated[int, Field(ge=0)] = 0
    """Random choices of the same number of others of any layer."""
    seed: int = 42
    """Seed of the first choice; the next ones follow."""
    every_position: Annotated[int, Field(ge=0)] | None = None
    """So many of the choices of the same layers are masked at every position, too, and with them
    the highest heads; None: no heads are."""
    asked: DetectConfig
    """Lengths, depths and the longest answer."""
    sets: tuple[str, ...]
    """Needle sets that are asked."""
    skipped: Annotated[int, Field(ge=0)] = 16
    """The first needles of each set, which choose heads."""
    needles: Annotated[int, Field(ge=1)] = 32
    """How many of the next ones are asked."""


@dataclass(frozen=True)
class MaskedNeedles:
    """What is found under each masking."""

    # `score`, `policy` (`whole`, `top heads`, `same layers`, `anywhere`), `count`, `draw`, `heads`
    # (`16-0 16-2`, say), `displaced` (heads of a control that come from a neighbouring layer). The
    # whole model has no score.
    maskings: pd.DataFrame
    # `score`, `policy`, `count`, `draw`, `position` (`newest`, `every`), `set`, `length`, `depth`,
    # `needle` (0 is the first that is asked), `success`, `recall`, `response`.
    answers: pd.DataFrame


MASKED_NEEDLES = Stage[MaskedNeedles]("masked-needles", 1, read=lambda folder: MaskedNeedles(
    **read_tables(folder)))
KEY = ["score", "policy", "count", "draw"]


def count_at(scores: HeadScores, tau: float) -> int:
    """Number of heads with a mean score of at least `tau`."""
    return int((scores.mean.round(DECIMALS) >= tau).sum())


def spared_by_controls(top: Collection[Head], reached: Collection[Head],
                       total: int) -> set[Head] | None:
    """Return the heads that no control of the top heads has; None if there are too few."""
    return next((set(heads) for heads in ([*top, *reached], top)
                 if total - len(set(heads)) >= len(top)), None)


def maskings_of(scores: Mapping[str, HeadScores], config: MaskedNeedlesConfig) -> pd.DataFrame:
    """Return all maskings of a configuration: the table `MaskedNeedles.maskings`."""
    copy = scores[COPY]
    reached, total = copy.ranking()[: count_at(copy, config.tau)], copy.mean.size
    counts = {*config.counts, *(round(share * total) for share in config.shares),
              *([len(reached)] if config.all_at_tau else [])} - {0}
    rows: list[tuple[str, str, int, int, list[Head], int]] = [("", WHOLE, 0, 0, [], 0)]
    for name in config.scores:
        ranking = scores[name].ranking()
        for count in sorted(counts | {count for count in config.curve if count < total}):
            top = ranking[:count]
            rows.append((name, TOP, count, 0, top, 0))
            spared = spared_by_controls(top, reached, total)
            if count not in counts or spared is None:
                continue
            for draw in range(config.same_layers):
                heads = draw_layer_matched(copy.shape, top, exclude=spared, seed=config.seed + draw)
                rows.append((name, MATCHED, count, draw, heads, count_displaced(heads, top)))
            rows += [(name, ANYWHERE, count, draw, copy.select_random(
                count, exclude=spared, seed=config.seed + draw), 0)
                for draw in range(config.anywhere)]
    return pd.DataFrame([(*row[:4], names_of(row[4]), row[5]) for row in rows],
                        columns=[*KEY, "heads", "displaced"])


def names_of(heads: Iterable[Head]) -> str:
    """Name heads, as `16-0 16-2`."""
    return " ".join(f"{layer}-{head}" for layer, head in sorted(heads))


def heads_in(names: str) -> list[Head]:
    """Return the heads that `16-0 16-2` names."""
    pairs = (name.split("-") for name in names.split())
    return [(int(layer), int(head)) for layer, head in pairs]


def masked_needles(lm: LanguageModel, config: MaskedNeedlesConfig, *,
                   journal: Path | None = None) -> MaskedNeedles:
    """Ask for needles under every masking; a stopped run goes on prompt by prompt."""
    scores = {name: detect_stored(lm, config.detect.changed({"score": name}))[0]
              for name in config.scores}
    if COPY not in scores:
        scores = scores | {COPY: detect_stored(lm, config.detect)[0]}
    maskings = maskings_of(scores, config)
    cases = {name: build_cases(lm, _asked(config, name, lm.corpus)) for name in config.sets}
    chosen = {position: maskings[_masked_at(maskings, position, config)]
              for position in (NEWEST, EVERY)}
    kept = Journal(journal, [lm.state, config.identity(), maskings.to_dict("list"), {
        name: [case.input_ids for case in own] for name, own in cases.items()}])
    total = sum(map(len, cases.values())) * sum(len(part) > 0 for part in chosen.values())
    parts = []
    with progress_bar(f"masked heads of {lm.name}", total, unit="prompts") as advance:
        for position, part in chosen.items():
            names = [*dict.fromkeys(part["heads"])]  # what several choose is answered once
            for name, own in cases.items() if names else ():
                for case, texts in _answers(lm, own, names, f"{name} {position}", config, kept):
                    said = dict(zip(names, texts, strict=True))
                    parts.append(_rows(case, part, said).assign(position=position, set=name))
                    advance(1)
    answers = pd.concat(parts, ignore_index=True)
    return MaskedNeedles(maskings, answers[[
        *KEY, "position", "set", "length", "depth", "needle", "success", "recall", "response"]])


def _asked(config: MaskedNeedlesConfig, name: str, corpus: str) -> DetectConfig:
    """The grid of the needles of a set that are asked."""
    grid = config.asked.changed({"needle_set": name})
    needles = material(grid, corpus)[1][config.skipped :][: config.needles]
    if len(needles) < config.needles:
        raise UserError(f"{config.needles} needles are to be asked after {config.skipped} others, "
                        f"but the set {name} has only {len(needles)} of them.")
    return grid.changed({"needles": tuple(needles)})


def _masked_at(maskings: pd.DataFrame, position: str,
               config: MaskedNeedlesConfig) -> Collection[bool]:
    """Which maskings are asked at a position."""
    if position == NEWEST:
        return np.ones(len(maskings), bool)
    if config.every_position is None:
        return np.zeros(len(maskings), bool)
    alone = maskings["policy"].isin([WHOLE, TOP]) & ~maskings["count"].isin(
        {*maskings["count"]} - {0, *maskings.loc[maskings["policy"] == MATCHED, "count"]})
    few = (maskings["policy"] == MATCHED) & (maskings["draw"] < config.every_position)
    return np.asarray(alone | few)


def _answers(lm: LanguageModel, cases: Collection[NiahCase], names: list[str], place: str,
             config: MaskedNeedlesConfig, kept: Journal) -> Iterator[tuple[NiahCase, list[str]]]:
    """Answer cases under each masking, neighbours of a haystack one after the other."""
    ordered = sorted(cases, key=lambda case: (case.haystack, case.length, case.depth))
    keys = {case.id: f"{place} {case.id} {digest(names)[:16]}" for case in ordered}
    todo = [case for case in ordered if keys[case.id] not in kept]
    found = answer_masked(
        lm, [case.input_ids for case in todo], masks_of(lm, [*map(heads_in, names)]),
        max_new_tokens=config.asked.max_new_tokens, everywhere=place.endswith(EVERY))
    for case in ordered:
        if keys[case.id] not in kept:
            kept[keys[case.id]] = next(found)
        yield case, kept[keys[case.id]]


def _rows(case: NiahCase, maskings: pd.DataFrame, said: Mapping[str, str]) -> pd.DataFrame:
    """The answers to one case, a row for each masking."""
    recall = {text: answer_recall(case.needle.real_needle, text) for text in said.values()}
    responses = maskings["heads"].map(said)
    found = responses.map(recall)
    return maskings[KEY].assign(length=case.length, depth=case.depth, needle=case.needle_index,
                                success=found > SUCCESS_ROUGE, recall=found, response=responses)


def masked_needles_stored(model: str, config: MaskedNeedlesConfig, plan: Plan, *, label: str,
                          command: str,
                          compute: Compute = "auto") -> tuple[MaskedNeedles, Artifact]:
    """`masked_needles` of a model by its name, but a stored result is read instead."""
    ref = ModelRef(model)
    inputs = inputs_of(ref.identity, config.detect, ref.corpus) | {
        name: digest(inputs_of(ref.identity, _asked(config, name, ref.corpus), ref.corpus))
        for name in config.sets}
    if {*config.scores} != {COPY}:
        inputs |= contributions_version(ref.family)

    def make(folder: Path) -> dict[str, Any]:
        found = masked_needles(ref.load(), config, journal=folder / JOURNAL)
        write_tables(found, folder)
        return {"plan": plan.digest, "maskings": len(found.maskings), "answers": len(found.answers)}

    artifact = MASKED_NEEDLES.obtain_folder(
        config, inputs, make, compute=compute, model=model, label=label, command=command)
    return MASKED_NEEDLES.read(artifact.folder), artifact


Masks = NDArray[np.bool_]  # (rows, layers, heads): True where a head is masked


def masks_of(lm: LanguageModel, sets: Sequence[Iterable[Head]]) -> Masks:
    """Return one row for each set of heads."""
    masks = np.zeros((len(sets), *lm.shape), bool)
    for mask, heads in zip(masks, sets, strict=True):
        for head in lm.checked_heads(heads):
            mask[head] = True
    return masks


@contextmanager
def mask_rows(lm: LanguageModel, masks: Masks) -> Iterator[None]:
    """Switch off, in each row of a batch, heads of its own; on exit all is as before."""
    kept = torch.tensor(~masks, dtype=lm.model.dtype, device=lm.model.device)

    def silence(layer: int, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        each = torch.unflatten(inputs[0], 2, (lm.shape[1], -1))  # (rows, tokens, heads, size)
        return ((each * kept[:, layer][:, None, :, None]).flatten(2),)

    outputs = projections(lm.model)
    with before_each({i: outputs[i] for i in np.flatnonzero(masks.any((0, 2))).tolist()}, silence):
        yield


def answer_masked(lm: LanguageModel, prompts: Sequence[Sequence[int]], masks: Masks, *,
                  max_new_tokens: int, everywhere: bool = False) -> Iterator[list[str]]:
    """Answer each prompt greedily under each of `masks` (M, layers, heads)."""
    readers = masks if everywhere else np.zeros((1, *lm.shape), bool)
    trunks = [Trunk(lm.model, []) for _ in readers]
    read: list[list[DynamicCache]] = []

    def answers() -> Iterator[list[str]]:
        rows = [(prompt, mask) for prompt in range(len(read)) for mask in range(len(masks))]
        size = rows_at_once(lm, read[0][0], longest + max_new_tokens)
        texts = [text for _, part in in_batches(rows, size, write, "mask") for text in part]
        for start in range(0, len(texts), len(masks)):
            yield texts[start : start + len(masks)]

    def write(rows: Sequence[tuple[int, int]]) -> list[str]:
        caches = [view_of(read[prompt][mask if everywhere else 0]) for prompt, mask in rows]
        own = masks[[mask for _, mask in rows]]
        return [str(lm.tokenizer.decode(tokens, skip_special_tokens=True)).strip()
                for tokens in write_rows(lm, [part[prompt] for prompt, _ in rows], caches,
                                         lambda going: mask_rows(lm, own[going]), max_new_tokens)]

    longest = max(map(len, prompts), default=0)
    part: list[Sequence[int]] = []
    for prompt in prompts:
        for i, reader in enumerate(readers):
            with mask_rows(lm, reader[None]):
                trunks[i] = Trunk(lm.model, prompt[:-1], before=trunks[i])
        part.append(prompt)
        read.append([trunk.cache for trunk in trunks])
        if len(read) + 1 > rows_at_once(lm, read[0][0], longest + max_new_tokens) / len(masks):
            yield from answers()
            part, read = [], []
    if read:
        yield from answers()
