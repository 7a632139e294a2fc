"""The cost of a run in time, memory and disk, told before it starts."""

from rmutils.estimate.notebook_costs import Costs, Estimate, Step, estimate, load_costs, slowness
from rmutils.estimate.sizing import Fitted, fitted

__all__ = ["Costs", "Estimate", "Fitted", "Step", "estimate", "fitted", "load_costs", "slowness"]
