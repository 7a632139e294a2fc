"""Whether the tokens of a needle are among those that a filter layer chooses, for every layer.

Layers up to the filter layer are untouched, whichever layer that is. So one pass of the plain model
tells what each of them would choose, and by how much of the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor, nn
from transformers import DynamicCache

from rmutils.attention.gemfilter import Products, chosen_tokens, gemfilter
from rmutils.attention.select_attention import SelectConfig, Selection, select_attention, top_p
from rmutils.config import Config
from rmutils.corpora.niah import NiahCase
from rmutils.heads.detection import DetectConfig, build_cases, even_depths
from rmutils.journal import Journal
from rmutils.models import LanguageModel
from rmutils.models.attention import attached, register_by_layer
from rmutils.progress import progress_bar

NAME = "filter_layers"


class RecallConfig(Config):
    """Needles, and how many tokens are chosen."""

    needles: DetectConfig = DetectConfig(lengths=(256,), depths=even_depths(3), needles=6)
    """Needles in a haystack."""
    p: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.99, 0.97, 0.95, 0.93, 0.91)
    """Shares of the scores, those of Table 3."""


@dataclass(frozen=True)
class _Watched:
    """What both methods choose by in a layer."""

    selection: Selection = field(default_factory=lambda: Selection(SelectConfig()))
    gems: Products = field(default_factory=Products)


def recall(
    lm: LanguageModel, config: RecallConfig, journal: Path | None = None
) -> dict[str, pd.DataFrame]:
    """Have a model read needles and their right answers, and see what is chosen.

    The answer, which is forced, is the sentence with the needle in the very tokens of the prompt,
    so it is known which token is to be copied next. The needle are the tokens of its value.

    Returns
    -------
    dict of str to DataFrame
        `recall`, a row per case, layer and p: `length`, `question` (number of the needle), `place`
        (its depth), `layer`, `p`; shares of the needle's tokens among the chosen ones: `prompt`
        (chosen by the last token of the prompt), `answer` (mean over tokens of the answer),
        `gemfilter` (as many tokens as of `prompt`, chosen as GemFilter does); `next` (share of the
        needle's tokens that are among the chosen ones when they are to be copied); and what tokens
        chosen blindly would have: `prompt_kept`, `answer_kept` (shares of all tokens that are
        chosen).
    """
    kept, rows = Journal(journal), []
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


def _watch(
    module: nn.Module, query: Tensor, key: Tensor, *args, given: _Watched, **kwargs
) -> tuple[Tensor, None]:
    gemfilter(module, query, key, given=given.gems)
    return select_attention(module, query, key, *args, given=given.selection, **kwargs)


register_by_layer(NAME, _watch)
