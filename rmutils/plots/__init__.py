"""Figures of the book: one style, one colour per model, intervals always drawn."""

from rmutils.plots.distribution import ranked_scores, score_bins, stability
from rmutils.plots.niah import agreement, arg_max_rows, head_map, success_curves, success_map
from rmutils.plots.style import use_style

__all__ = ["agreement", "arg_max_rows", "head_map", "ranked_scores", "score_bins", "stability",
           "success_curves", "success_map", "use_style"]
