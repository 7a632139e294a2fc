"""What decides the claims: quantities that are computed from stored results, by name.

Each takes what it is measured on (a model first), and returns an `Effect`. Nothing is computed that
takes long: a result that is not stored is a `NotStored` that names the command which makes it.
"""

from __future__ import annotations

from collections.abc import Callable

from rmutils.evaluation.claims import Effect
from rmutils.evaluation.measured import failures, general, heads, long_context, masking, training

QUANTITIES: dict[str, Callable[..., Effect]] = {function.__name__: function for function in (
    heads.share_of_retrieval_heads,
    heads.scores_held_by_top_tenth,
    heads.retrieval_heads_from_few_needles,
    masking.needles_lost_beyond_others,
    masking.answers_lost_at_tau,
    masking.answers_lost,
    masking.answers_left,
    masking.needles_lost_by_more_heads,
    masking.repetition_added_at_tau,
    masking.repetition_added_at_most,
    failures.failures_added,
    failures.failures_added_by_others,
    failures.failures_added_beyond_others,
    training.mean_score_change,
    training.retrieval_heads_change,
    training.retrieval_heads_change_beyond_others,
    training.selective_change,
    training.retrieval_heads_change_beyond,
    training.needles_found_change,
    long_context.gain,
    long_context.gain_at,
    long_context.gain_at_longest,
    long_context.lead,
    long_context.lead_at,
    long_context.category_gain,
    long_context.relative_category_gain,
    long_context.category_gain_beyond,
    long_context.gain_beyond,
    long_context.gain_by_more_pairs,
    long_context.left_out,
    long_context.gain_left_out,
    long_context.gain_over_sparsity,
    long_context.gain_over_designed_sparsity,
    long_context.loss_over_sparsity,
    general.general_change,
)}
"""Name in `data/paper/claims.yml` -> function."""
