"""What only the book needs: it imports the library, never the reverse."""

MOVED = {
    "rmutils.pipeline.planned_runs": "rmutils.book.experiments.planned_runs",
    "rmutils.experiments.designs.correlation": "rmutils.stats.correlations.correlation",
    "rmutils.experiments.designs": "rmutils.book.chapters.score_distribution.designs",
    "rmutils.experiments.half_learned": "rmutils.book.chapters.data_and_training.half_learned",
    "rmutils.experiments.sparsity_and_gain":
        "rmutils.book.chapters.score_distribution.sparser_versions",
}
"""Modules that plans name (`data/plans`), and where they are now: a plan is never edited."""
