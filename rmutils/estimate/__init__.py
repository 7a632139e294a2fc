"""The cost of a run in time, memory and disk, told before it starts."""

from rmutils.estimate.notebook_costs import Costs, Estimate, Step, estimate, load_costs, slowness

__all__ = ["Costs", "Estimate", "Step", "estimate", "load_costs", "slowness"]
