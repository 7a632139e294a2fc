"""What a run of a notebook will cost: time, memory and disk, said beforehand.

A run's seconds are those of its start, tables and figures, and those of its parts. A part takes so
many seconds per unit of its *work*, a product of counts that `notebooks/costs.yml` names. The
seconds per unit come from runs that were made for this purpose and are on record
(`data/timings.json`). How fast this machine is beside that of the record shows on a fixed piece of
work.
"""

from rmutils.estimate.estimates import Estimate, Step, estimate
from rmutils.estimate.notebook_costs import Costs, Measured, load_costs, slowness

__all__ = ["Costs", "Estimate", "Measured", "Step", "estimate", "load_costs", "slowness"]
