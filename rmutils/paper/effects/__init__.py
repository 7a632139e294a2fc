"""What decides the claims: quantities that are computed from stored results, by name.

Each takes what it is measured on (a model first), and returns an `Effect`. Nothing is computed that
takes long: a result that is not stored is a `NotStored` that names the command which makes it.
"""

from __future__ import annotations

from collections.abc import Callable

from rmutils.paper.effects import head_effects, masking_effects, task_effects
from rmutils.paper.verdicts import Effect

QUANTITIES: dict[str, Callable[..., Effect]] = {function.__name__: function for function in (
    head_effects.share_of_retrieval_heads,
    head_effects.scores_held_by_top_tenth,
    head_effects.retrieval_heads_from_few_needles,
    masking_effects.needles_lost_beyond_others,
    masking_effects.answers_lost_at_tau,
    masking_effects.answers_lost,
    masking_effects.answers_left,
    masking_effects.needles_lost_by_more_heads,
    masking_effects.repetition_added_at_tau,
    masking_effects.repetition_added_at_most,
    masking_effects.failures_added,
    masking_effects.failures_added_by_others,
    masking_effects.failures_added_beyond_others,
    head_effects.mean_score_change,
    head_effects.retrieval_heads_change,
    head_effects.retrieval_heads_change_beyond_others,
    head_effects.selective_change,
    head_effects.retrieval_heads_change_beyond,
    head_effects.needles_found_change,
    task_effects.gain,
    task_effects.gain_at,
    task_effects.gain_at_longest,
    task_effects.lead,
    task_effects.lead_at,
    task_effects.category_gain,
    task_effects.relative_category_gain,
    task_effects.category_gain_beyond,
    task_effects.gain_beyond,
    task_effects.gain_by_more_pairs,
    task_effects.left_out,
    task_effects.gain_left_out,
    task_effects.gain_over_sparsity,
    task_effects.gain_over_designed_sparsity,
    task_effects.loss_over_sparsity,
    task_effects.general_change,
)}
"""Name in `data/paper/claims.yml` -> function."""
