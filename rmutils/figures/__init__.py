"""Figures of the book: one style, one colour per model, intervals always drawn."""

from rmutils.figures.head_figures import (
    agreement,
    arg_max_rows,
    head_map,
    ranked_scores,
    score_bins,
    scores_by_layer,
    stability,
    success_curves,
    success_map,
)
from rmutils.figures.masking_figures import by_length, heads_alone, shares
from rmutils.figures.sparsity_figures import curve, plot_formation
from rmutils.figures.style import use_style

__all__ = ["agreement", "arg_max_rows", "by_length", "curve", "head_map", "heads_alone",
           "plot_formation", "ranked_scores", "score_bins", "scores_by_layer", "shares",
           "stability", "success_curves", "success_map", "use_style"]
