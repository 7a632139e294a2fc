"""The figures of *What else do retrieval heads do?*, and what heads do with the reader's text."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.chapters.heads_at_work.contribution import card_data
from rmutils.book.chapters.heads_at_work.experiment import HEADS_AT_WORK
from rmutils.book.chapters.heads_at_work.findings import OTHERS, RETRIEVAL, Tables, level, weights
from rmutils.book.figures import style
from rmutils.heads.attention_kinds import KINDS, attention_kinds
from rmutils.heads.detection import detect_stored
from rmutils.models import LanguageModel

PARTS = {"copy": style.BLUE, "induction": style.GREEN, "other": style.PALE,
         "previous": style.ORANGE, "itself": style.PURPLE}
"""All kinds but the first token, in the order of the figure, with their colours."""
SHOWN = {"sink": "#FFFFFF", **PARTS}
"""All kinds with the colours of the cards."""
NAMES = {"sink": "first token", "previous": "previous token"}
"""What readers call kinds, where it is another name."""
ROWS, COLUMNS = 4, 6
"""Cards in the picture."""
NAMED = 4
"""Percent from which a part has room for its number."""
FIRST = "#F0F0F0"
"""Colour of the first token, where heads rest."""


def composition(results: Mapping[str, Tables]) -> Figure:
    """Draw what retrieval heads and others look at."""
    figure, panels = style.new_axes(0.9 + 1.0 * len(results), rows=len(results), sharex=True,
                                    flat=True)
    for axes, (model, tables) in zip(panels, results.items(), strict=True):
        for place, group in enumerate((RETRIEVAL, OTHERS)):
            left = 0.0
            for kind, colour in {**PARTS, "sink": FIRST}.items():
                share = 100 * level(tables, kind, group).value
                axes.barh(place, share, left=left, color=colour, height=0.72,
                          label=None if place else NAMES.get(kind, kind))
                if share >= NAMED:
                    axes.text(left + share / 2, place, f"{share:.0f}", ha="center", va="center",
                              color=style.on(colour))
                left += share
            copies = level(tables, "copy", group)
            axes.hlines(place + 0.36, 100 * copies.low, 100 * copies.high, color=style.INK, lw=1.6)
        axes.set_yticks([0, 1], [RETRIEVAL, OTHERS.replace(", ", ",\n")])
        axes.invert_yaxis()
        axes.set_title(style.CALLED.get(model, model), loc="left")
        axes.set_xlim(0, 100)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    style.legend_above(figure, panels[0], len(SHOWN), handlelength=1, columnspacing=1.2)
    panels[-1].set_xlabel("positions, by the kind of token that gets most attention, %")
    return figure


def cards_figure(model: str) -> Figure:
    """Draw the heads of the highest copy scores as small bars of what they look at."""
    cards = sorted(card_data(model), key=lambda card: -card["score"])[: ROWS * COLUMNS]
    figure, panels = style.new_axes(0.62 * ROWS + 0.5, ROWS, COLUMNS, sharex=True, flat=True)
    for axes, card in zip(panels, cards, strict=False):
        left = 0.0
        for kind, colour in PARTS.items():
            share = card["shares"][KINDS.index(kind)]
            axes.barh(0, share, left=left, color=colour,
                      label=NAMES.get(kind, kind) if axes is panels[0] else None)
            left += share
        layer, head = card["head"]
        axes.set_title(f"{layer}-{head}: {card['score']:.2f}", fontsize=9, loc="left")
    for axes in panels:
        axes.set_yticks([])
        axes.tick_params(labelsize=9)
        axes.spines["left"].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(PARTS), fontsize=9, handlelength=1)
    figure.supxlabel("positions, %", fontsize=9)
    return figure


def card_view(model: str) -> dict[str, Any]:
    """Return what the cards of a model's heads need, for the page's script."""
    cards = card_data(model)
    adds = [card["adds"] for card in cards if card["adds"] is not None]
    return {"name": model, "kinds": [[NAMES.get(kind, kind), SHOWN[kind]] for kind in KINDS],
            "mean": round(float(np.mean(adds)), 1) if adds else None, "cards": cards}


def kinds_live(lm: LanguageModel, text: str) -> pd.DataFrame:
    """Return what retrieval heads and the others do with a text, in percent of its positions."""
    config = next(iter(HEADS_AT_WORK.runs().values())).config
    scores, _ = detect_stored(lm, config.detect)
    kinds = attention_kinds(lm, text)
    chosen = {*scores.select(tau=config.tau)}
    heads = kinds[["layer", "head"]].assign(retrieval=[
        (row.layer, row.head) in chosen for row in kinds.itertuples()])
    return pd.DataFrame([{"heads": group, **(100 * kinds[[*KINDS]].mul(own, axis=0).sum()).round()}
                         for group, own in weights(heads).items()])
