"""What the texts beside the paper claim, each with its place and what stored results say of it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from rmutils.attention.share_attention import Share
from rmutils.core.errors import NotStored
from rmutils.experiments import later_sharing
from rmutils.experiments.layer_choice import (
    AgreementConfig,
    LayersConfig,
    early_and_later,
    planned_recall,
)
from rmutils.experiments.olmo3 import extension_stored
from rmutils.experiments.olmo3_ablations import recipe_parts
from rmutils.experiments.run_costs import roofline
from rmutils.experiments.savings_curves import by_half, look_up, planned_sharing
from rmutils.experiments.variant_questions import DocumentsConfig
from rmutils.figures import ms_poe_sentences, olmo3_sentences, sharing_sentences
from rmutils.figures.report import number
from rmutils.heads.detection import DetectConfig
from rmutils.longcontext.extension import ExtensionConfig
from rmutils.pipeline.planned_runs import load_plan

MS_POE, SHARE_SELECT, OLMO3 = ("Ms-PoE, the summary", "Taniguchi and others",
                               "Olmo 3, the summary")
LARGE, LAYERS = "smollm2-135m", 30
FILTER = 14
"""Its filter layer in chapter 13."""
NONE = "Not stored."
_PLACES = (0.0, 0.5, 1.0)
ONE_LAYER = LayersConfig(
    variant=Share(threshold=0.9), layers=(0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 29),
    needles=DetectConfig(lengths=(512,), depths=_PLACES, needles=3, max_new_tokens=24),
    documents=DocumentsConfig(lengths=(512,), places=_PLACES, questions=4))
"""What chapter 12 measured on it, layer by layer."""


def companion_claims() -> pd.DataFrame:
    """Compare claims of the companion texts with what is stored; nothing is computed.

    Returns
    -------
    DataFrame
        `text`, `place`, `claim` (translated), `chapter`, `here`.
    """
    rows = [(MS_POE, *row) for row in ms_poe_sentences.claims_of_the_summary()]
    rows += [(SHARE_SELECT, *row) for row in _share_select()]
    rows += [(OLMO3, *row) for row in _olmo3()]
    found = pd.DataFrame(rows, columns=["text", "place", "claim", "chapter", "here"])
    found["here"] = found["here"].str.replace(r"[*`]", "", regex=True)
    return found


def _share_select() -> Iterator[tuple]:
    plan = load_plan("later_sharing")
    planned, _, lacks = planned_sharing(plan)
    yield ("Sections 3.1 and 4.1", "Heads of a layer that look alike can share their weights", 12,
           sharing_sentences.alike_or_random(
               later_sharing.primary(planned["needles"], plan), len(lacks)) if planned else NONE)
    alone, _, _ = look_up(LARGE, ONE_LAYER, compute="never")
    yield ("Section 5, Figure 6", "Sharing in one of layers 0 to 14 costs accuracy, in one of "
           "15 to 31 little", 12, "; ".join(
               f"{row.variant} of {LARGE}: needles found change by "
               f"{number(row.effect, row.low, row.high)}"
               for row in by_half(alone["needles"], LAYERS).itertuples()) + "."
           if alone else NONE)
    agreed, _, _ = look_up(LARGE, AgreementConfig(), compute="never")
    yield ("Section 3.2, Figures 3 and 4", "Later layers agree on tokens more than early ones; "
           "over time the tokens change", 13, sharing_sentences.layers_agree(
               early_and_later(agreed["layers"], FILTER - 3), agreed["overlap"], LARGE, FILTER)
           if agreed else NONE)
    model, layer, asked = planned_recall(load_plan("select_recall"))
    seen, _, _ = look_up(model, asked, compute="never")
    yield ("Sections 3.2 and 4.2", "Choosing at each step keeps what choosing once, from the "
           "prompt, misses", 13, sharing_sentences.prompt_or_steps(
               seen["recall"], model, layer, 0.97) if seen else NONE)
    table = roofline([8_000], [0.1])
    yield ("Section 4.2", "The cache is half", 13, f"With the hidden states that have to be kept, "
           f"{table['held_share'].iloc[0]:.0%} of it is left for Llama 3.1 8B; counted.")


def _olmo3() -> Iterator[tuple]:
    try:
        ours, _ = extension_stored("tiny-olmo3", ExtensionConfig(), compute="never")
    except NotStored:
        ours = None
    for place, claim, tell in (
            ("Section 3.3, Figure 13a", "YaRN on the full layers alone does best",
             olmo3_sentences.sliding_layers),
            ("Section 7.2, Figure 13e", "Scores rise with the tokens of the extension",
             olmo3_sentences.worth_of_tokens)):
        yield place, claim, 14, tell(ours) if ours else NONE
    yield ("Sections 5.4 and 6, Figures 13c and 13d", "CWE and REX in the texts help, and so do "
           "best-fit packing and masks between documents", 14,
           olmo3_sentences.which_part(recipe_parts(load_plan("olmo3_ablations"))))
