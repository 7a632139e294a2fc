"""Figures of the book: one style, one colour per model, intervals always drawn."""

from rmutils.plots.ablation import heads_alone
from rmutils.plots.distribution import ranked_scores, score_bins, scores_by_layer, stability
from rmutils.plots.formation import curve, plot_formation
from rmutils.plots.niah import agreement, arg_max_rows, head_map, success_curves, success_map
from rmutils.plots.shares import by_length, shares
from rmutils.plots.style import use_style

__all__ = ["agreement", "arg_max_rows", "by_length", "curve", "head_map", "heads_alone",
           "plot_formation", "ranked_scores", "score_bins", "scores_by_layer", "shares",
           "stability", "success_curves", "success_map", "use_style"]
