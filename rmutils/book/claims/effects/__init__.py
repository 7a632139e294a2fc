"""The quantities that decide the claims, computed from stored results.

Each takes what it is measured on (a model first), and returns an `Effect`. Nothing is computed that
takes long: a result that is not stored is a `NotStored` that names the command which makes it.
"""

from rmutils.book.claims.effects import (
    head_effects,
    masking_effects,
    pair_effects,
    real_effects,
    sparsity_effects,
    task_effects,
)
from rmutils.book.verdicts import QUANTITIES

__all__ = ["QUANTITIES", "head_effects", "masking_effects", "pair_effects", "real_effects",
           "sparsity_effects", "task_effects"]
