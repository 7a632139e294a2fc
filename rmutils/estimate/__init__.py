"""What a run will cost: time, memory and disk, said before it starts."""

from rmutils.estimate.notebook_costs import Costs, Estimate, Step, estimate, load_costs, slowness

__all__ = ["Costs", "Estimate", "Step", "estimate", "load_costs", "slowness"]
