"""The paper: its tables, the numbers of its text, and an audit of both."""

from rmutils.paper.consistency_checks import audit
from rmutils.paper.tables import (
    load_published_maps,
    load_published_scores,
    load_published_stability,
    load_published_summary,
    load_score_bins,
    load_tables,
    load_text_numbers,
)

__all__ = [
    "audit",
    "load_published_maps",
    "load_published_scores",
    "load_published_stability",
    "load_published_summary",
    "load_score_bins",
    "load_tables",
    "load_text_numbers",
]
