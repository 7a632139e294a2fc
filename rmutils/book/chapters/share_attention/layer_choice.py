"""Layer by layer: a variant in one layer, how alike heads are, what a filter layer chooses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d
from transformers import DynamicCache

from rmutils.attention.gemfilter import Products, chosen_tokens, gemfilter
from rmutils.attention.rope import layers_of
from rmutils.attention.select_attention import Select, Selection, select_attention, top_p
from rmutils.attention.share_attention import Share
from rmutils.attention.sharing_plans import calibration_prompts, mean_distances
from rmutils.attention.variants import PLAIN, Plain, Variant
from rmutils.book.experiments.under_variants import VariantConfig, measure
from rmutils.book.experiments.variant_questions import DocumentsConfig
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.experiment import Plan
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Tables
from rmutils.corpora.niah import NiahCase
from rmutils.heads.detection import DetectConfig, build_cases, depends_on, even_depths
from rmutils.models import LanguageModel
from rmutils.models.engine.implementations import attached, register_by_layer, using
from rmutils.stats import CONTRAST, DIFFERENCE, Interval, interval

Count = Annotated[int, Field(ge=1)]


class LayersConfig(Config):
    """The setting, the layers, and what is asked."""

    variant: Variant = Share(threshold=0.9)
    """One that can be set in a single layer. Share-Attention: heads share in that layer only.
    Taniguchi et al., section 5: "th = 0.9", "an extremely high value", in one layer, and 0 in the
    others. Select-Attention and GemFilter: that layer filters."""
    layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """None: all; for Select-Attention all but the last, which no layer follows."""
    needles: DetectConfig | None = DetectConfig(lengths=(256,), depths=even_depths(3), needles=6,
                                                max_new_tokens=24)
    """Needles in a haystack."""
    documents: DocumentsConfig | None = DocumentsConfig(lengths=(256,), places=even_depths(3),
                                                        questions=6)
    """Questions to documents."""


def layers(lm: LanguageModel, config: LayersConfig,
           journal: Path | None = None) -> dict[str, pd.DataFrame]:
    """`rmutils.book.experiments.under_variants` for the plain model and for each layer."""
    count = lm.shape[0]
    settings = config.variant.by_layer(count)
    tried = settings if config.layers is None else config.layers
    if wrong := [i for i in tried if i not in settings]:
        raise UserError(f"{lm.name} has no layer {wrong[0]}: it has {count}, counted from 0."
                        if wrong[0] >= count else
                        f"{config.variant.label} cannot be set in layer {wrong[0]} of {lm.name}.")
    variants = {PLAIN: Plain()} | {str(i): settings[i] for i in tried}
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, variant in variants.items():
        asked = VariantConfig(variant=variant, needles=config.needles, documents=config.documents,
                              texts=None)
        of_layer = journal.with_name(f"{journal.name}.{name}") if journal else None
        for table, frame in measure(lm, asked, journal=of_layer).items():
            parts.setdefault(table, []).append(frame.assign(variant=name))
    return {table: pd.concat(frames, ignore_index=True) for table, frames in parts.items()}


class LikenessConfig(Config):
    """The prompts, which are those that Share-Attention is calibrated on, and the layer shown."""

    prompts: Count = Share().prompts
    """Questions to documents over whose maps distances are averaged."""
    tokens: Count = Share().tokens
    """Most tokens of each."""
    layer: Annotated[int, Field(ge=0)] = 0
    """Whose maps of the first prompt are kept."""
    cells: Count = 96
    """Most rows and columns of a map that is kept; each cell is the highest weight of its part."""


def likeness(lm: LanguageModel, config: LikenessConfig,
             journal: Path | None = None) -> dict[str, pd.DataFrame]:
    """Distances of all heads of a layer, and the maps of one layer."""
    if config.layer >= lm.shape[0]:
        raise UserError(f"there is no layer {config.layer}: {lm.name} has 0 to {lm.shape[0] - 1}.")
    prompts = calibration_prompts(lm, config.prompts, config.tokens)
    with using(lm.model, "eager"), torch.inference_mode():
        first = torch.tensor([prompts[0]], device=lm.model.device)
        maps = lm.model(first, use_cache=False, output_attentions=True).attentions[config.layer][0]
    small = adaptive_max_pool2d(maps.float().cpu(), min(config.cells, maps.shape[-1])).numpy()
    return {"distances": _long(mean_distances(lm.model, prompts),
                               ("layer", "head", "other"), "distance"),
            "maps": _long(small, ("head", "row", "column"), "weight")}


def _long(values: np.ndarray, axes: tuple[str, ...], name: str) -> pd.DataFrame:
    """A row per element, with its indices."""
    places = (index.ravel() for index in np.indices(values.shape))
    return pd.DataFrame(dict(zip(axes, places, strict=True)) | {name: values.ravel()})


def square(table: pd.DataFrame, name: str) -> np.ndarray:
    """The array that one of these tables came from, (n, m, m): its last column by the others."""
    axes = [column for column in table if column != name]
    shape = tuple(table[axes].max() + 1)
    return table.sort_values(axes)[name].to_numpy().reshape(shape)


NAME = "filter_layers"


class RecallConfig(Config):
    """Needles, and how many tokens are chosen."""

    needles: DetectConfig = DetectConfig(lengths=(256,), depths=even_depths(3), needles=6)
    """Needles in a haystack."""
    p: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.99, 0.97, 0.95, 0.93, 0.91)
    """Shares of the scores, those of Table 3."""


def planned_recall(plan: Plan) -> tuple[str, int, RecallConfig]:
    """Return model, filter layer and measurement of a plan of chosen tokens."""
    p = plan.content
    (model, layer), = p["models"].items()
    asked = p["needles"]
    return model, layer, RecallConfig(p=tuple(p["p"]), needles=DetectConfig(
        lengths=(asked["length"],), depths=tuple(asked["depths"]), needles=asked["count"],
        needle_set=asked["set"], max_new_tokens=24))


@dataclass(frozen=True)
class _Watched:
    """The measures by which both methods choose in a layer."""

    selection: Selection = field(default_factory=lambda: Selection(Select()))
    gems: Products = field(default_factory=Products)


def recall(lm: LanguageModel, config: RecallConfig,
           journal: Path | None = None) -> dict[str, pd.DataFrame]:
    """Have a model read needles and their right answers, and see what is chosen."""
    kept, rows = Journal(journal, depends_on(lm, config, config.needles)), []
    cases = build_cases(lm, config.needles)
    with progress_bar(f"{lm.name}, needles among chosen tokens", len(cases), unit="needles",
                      done=len(kept)) as advance:
        for case in cases:
            if case.id not in kept:
                kept[case.id] = list(_of_case(lm, config, case))
                advance(1)
            rows += [{"length": case.length, "question": case.needle_index, "place": case.depth,
                      **row} for row in kept[case.id]]
    return {"recall": pd.DataFrame(rows)}


def _of_case(lm: LanguageModel, config: RecallConfig, case: NiahCase) -> Iterator[dict]:
    scores, products = _scores(lm, case)
    span, first = np.arange(*case.needle_span), case.inserted_span[0]
    for layer in range(lm.shape[0]):
        for p in config.p:
            chosen = [top_p(of_step[layer], p).numpy() for of_step in scores]
            found = [np.isin(span, places) for places in chosen]
            sizes = [len(places) / len(of_step[layer])
                     for places, of_step in zip(chosen, scores, strict=True)]
            gems = chosen_tokens(products[layer], len(chosen[0])).numpy()
            # the pass numbered i has read i tokens of the sentence, and is to say the next one
            ahead = [place in chosen[place - first] for place in span]
            yield {"layer": layer, "p": p, "prompt": float(found[0].mean()),
                   "answer": float(np.mean(found[1:])),
                   "gemfilter": float(np.isin(span, gems).mean()), "next": float(np.mean(ahead)),
                   "prompt_kept": sizes[0], "answer_kept": float(np.mean(sizes[1:]))}


def chosen_near_needle(lm: LanguageModel, config: RecallConfig, layer: int, p: float,
                       around: int = 12) -> dict[str, list[tuple[str, bool]]]:
    """Return the words around the first needle, and which a layer chooses at two of the steps."""
    case = build_cases(lm, config.needles)[0]
    scores, _ = _scores(lm, case)
    first, last = case.inserted_span
    found = {}
    for when, step in {"before the answer": 0,
                       "when the answer is copied": case.needle_span[0] - first}.items():
        chosen = {*top_p(scores[step][layer], p).tolist()}
        found[when] = [(lm.tokenizer.decode([case.input_ids[place]]), place in chosen)
                       for place in range(max(first - around, 0), last + around)]
    return found


@torch.inference_mode()
def _scores(lm: LanguageModel, case: NiahCase) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Scores by pass and layer, and GemFilter's products by layer, when the prompt is read."""
    cache, layers = DynamicCache(), range(lm.shape[0])
    watched = {i: _Watched() for i in layers}
    parts = [case.input_ids, *([token] for token in case.input_ids[slice(*case.inserted_span)])]
    scores, products = [], []
    with attached(lm.model, NAME, watched):
        for part in parts:
            lm.model.base_model(torch.tensor([part], device=lm.model.device),
                                past_key_values=cache, use_cache=True)
            scores.append([watched[i].selection.scores.cpu() for i in layers])
            products = products or [watched[i].gems.products.cpu() for i in layers]
    return scores, products


def _watch(module: nn.Module, query: Tensor, key: Tensor, *args, given: _Watched,
           **kwargs) -> tuple[Tensor, None]:
    gemfilter(module, query, key, given=given.gems)
    return select_attention(module, query, key, *args, given=given.selection, **kwargs)


register_by_layer(NAME, _watch)


class AgreementConfig(Config):
    """The prompts, and the layer whose choices over time are kept."""

    prompts: Annotated[int, Field(ge=1)] = 8
    """Questions to documents."""
    tokens: Annotated[int, Field(ge=1)] = 256
    """Most tokens of each."""
    layer: Annotated[int, Field(ge=0)] = 14
    """Figure 4 has layer 15 of 32."""
    p: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Share of the scores that chosen tokens have, as in Figure 4."""


def agreement(lm: LanguageModel, config: AgreementConfig, journal: Path | None = None) -> Tables:
    """Score and choose tokens in each layer: do layers agree, and do tokens stay the same?"""
    tables: dict[str, list[pd.DataFrame]] = {}
    for i, prompt in enumerate(calibration_prompts(lm, config.prompts, config.tokens)):
        scores, rows = _token_scores(lm, prompt, config.layer)
        chosen = [set(top_p(row[: q + 1], config.p).tolist()) for q, row in enumerate(rows)]
        found = {"layers": _correlations(scores), "overlap": _overlaps(chosen)}
        if i == 0:
            found["tokens"] = pd.DataFrame(
                [(layer, token, share) for layer, row in enumerate(scores / scores.max(
                    1, keepdims=True)) for token, share in enumerate(row)],
                columns=["layer", "token", "score"]).astype({"score": "float32"})
            found["steps"] = pd.DataFrame([(q, key) for q, keys in enumerate(chosen)
                                           for key in sorted(keys)],
                                          columns=["query", "key"]).astype("int16")
        for name, table in found.items():
            tables.setdefault(name, []).append(table.assign(question=i))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}


@torch.inference_mode()
def _token_scores(lm: LanguageModel, prompt: Sequence[int],
                  layer: int) -> tuple[np.ndarray, Tensor]:
    """Scores of tokens by layer, (layers, tokens), and a layer's mean map, (tokens, tokens)."""
    with using(lm.model, "eager"), _values(lm) as values:
        maps = lm.model(torch.tensor([prompt], device=lm.model.device), use_cache=False,
                        output_attentions=True).attentions
    seen = torch.arange(len(prompt), 0, -1)
    rows = []
    for weights, value in zip(maps, values, strict=True):
        heads = weights[0].float().cpu()
        norms = value[0].float().cpu().view(len(prompt), -1, lm.model.config.head_dim).norm(dim=-1)
        norms = norms.T.repeat_interleave(len(heads) // norms.shape[1], 0)
        rows.append((heads.sum(1) * norms).mean(0) / seen)
    return torch.stack(rows).numpy(), maps[layer][0].float().mean(0).cpu()


@contextmanager
def _values(lm: LanguageModel) -> Iterator[list[Tensor]]:
    """Collect what the value projections of all layers return."""
    found: list[Tensor] = []
    hooks = [layer.self_attn.v_proj.register_forward_hook(
        lambda module, args, output: found.append(output)) for layer in layers_of(lm.model)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _correlations(scores: np.ndarray) -> pd.DataFrame:
    matrix = np.corrcoef(rankdata(scores[:, 1:], axis=1))
    return pd.DataFrame([(i, j, matrix[i, j]) for i in range(len(matrix)) for j in range(i)],
                        columns=["layer", "other", "correlation"])


def _overlaps(chosen: Sequence[set[int]]) -> pd.DataFrame:
    first = len(chosen) // 2  # from here on a query has many tokens to choose from
    kept = np.mean([len(chosen[q]) / (q + 1) for q in range(first, len(chosen))])
    rows = []
    for steps in (1, 4, 16, 64):
        shares = [len(chosen[q] & chosen[q - steps]) / len(chosen[q - steps])
                  for q in range(max(first, steps), len(chosen))]
        rows.append((steps, np.mean(shares), kept))
    return pd.DataFrame(rows, columns=["steps", "common", "kept"])


def early_and_later(layers: pd.DataFrame, first_later: int) -> dict[str, Interval]:
    """Mean correlation of two layers: of the early ones, of the later ones, and the difference."""
    means = {name: part.groupby("question")["correlation"].mean() for name, part in (
        ("early", layers[layers["layer"] < first_later]),
        ("later", layers[layers["other"] >= first_later]))}
    return {**{name: interval(value, bounds=DIFFERENCE) for name, value in means.items()},
            "difference": interval(means["later"] - means["early"], bounds=CONTRAST)}
