"""The cost of the paper's study, and the hours that the paper tells beside those derived here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from rmutils.estimate.jobs import Pricing, price
from rmutils.estimate.scale.costs import Cost, together
from rmutils.estimate.scale.decoding import Rates
from rmutils.estimate.scale.machines import MACHINES, Assumptions
from rmutils.paper.tables import load_text_numbers
from rmutils.study.paper import PaperConfig, paper
from rmutils.study.plan import Plan, plan
from rmutils.study.published import PRINTED, training_data

STEPS = {"fetch": "models", "detect": "detection", "mask": "choosing heads",
         "generate": "generation", "pairs": "pairs and judging", "train": "training",
         "evaluate": "evaluation"}
"""Stage -> what it is called."""
TOLD = (("cost of detection and masking", "detect", "GPU hours"),
        ("cost of response generation", "generate", "GPU hours"),
        ("longest training run", "train", "hours"))
"""What `data/paper/text_numbers.csv` has of the paper's hours, of which stage, and the unit."""
FULL = Assumptions(compute=1, bandwidth=1, link=1, reserve=1, together=100_000)
"""All of the published rates."""


@dataclass(frozen=True)
class PaperEstimate:
    """The jobs of a study with their costs, on one kind of accelerator."""

    jobs: Plan
    costs: dict[str, Cost]
    rates: Rates
    pricing: Pricing

    @property
    def total(self) -> Cost:
        return together(list(self.costs.values()))

    def steps(self) -> pd.DataFrame:
        """A row for each stage: `step`, `jobs`, `gpu_hours`, `gpus`, `memory`, `disk`,
        `scratch` (bytes)."""
        rows = []
        for stage, step in STEPS.items():
            costs = [self.costs[name] for name, job in self.jobs.items() if job.stage == stage]
            whole = together(costs)
            rows.append({"step": step, "jobs": len(costs), "gpu_hours": whole.gpu_hours,
                         "gpus": whole.gpus, "memory": whole.memory, "disk": whole.disk,
                         "scratch": whole.scratch})
        return pd.DataFrame(rows)

    def beside_paper(self) -> pd.DataFrame:
        """A row for each step and model of which the paper tells hours.

        Returns
        -------
        DataFrame
            `step`, `model` (as printed), `paper`, `derived` and `floor` (hours; the floor is what
            the published rates allow if all of them is reached, and every text is in work at once
            that fits), `unit`, `place`, `as_printed`, `why`. Generation: both sides of RetMask on
            LMSYS-Chat-1M, as also the training.
        """
        told = load_text_numbers()
        told = told[(told["source"] == "en") & (told["place"] == "Appendix A")]
        rows, full = [], replace(self.pricing, rates=Rates(self.rates.machine, FULL))
        for name, printed in PRINTED.items():
            mine = self._of_retmask(name)
            for what, stage, unit in TOLD:
                said = told[(told["column"] == what)
                            & told["group"].fillna("").isin(["", printed])].iloc[0]
                jobs = {job: self.jobs[job] for job in self.jobs
                        if job in mine and self.jobs[job].stage == stage}
                if jobs:
                    costs = [self.costs[job] for job in jobs]
                    whole, least = together(costs), together([*price(jobs, full).values()])
                    hours = "gpu_hours" if unit == "GPU hours" else "hours"
                    rows.append({
                        "step": STEPS[stage], "model": printed, "paper": float(said["value"]),
                        "derived": getattr(whole, hours), "floor": getattr(least, hours),
                        "unit": unit, "place": said["place"], "as_printed": said["as_printed"],
                        "why": "; ".join(cost.why for cost in costs)})
        return pd.DataFrame(rows)

    def _of_retmask(self, model: str) -> set[str]:
        """The jobs of a model's RetMask training on all of LMSYS-Chat-1M; none without it."""
        samples = training_data(model, "lmsys")["Samples"]
        found = [name for name, job in self.jobs.items() if job.stage == "train"
                 and job.run.strategy == "retmask" and job.run.source == "lmsys"
                 and self.pricing.names.get(job.model, job.model) == model
                 and job.run.instructions == samples and not job.run.synthesizer]
        wanted = set(found[:1])  # the further ones try another threshold
        for name in reversed(self.jobs):
            if name in wanted:
                wanted.update(self.jobs[name].needs)
        return wanted


def estimate_paper(
    config: PaperConfig = PaperConfig(), accelerator: str = "h100",
    assumed: Assumptions = Assumptions(),
) -> PaperEstimate:
    """What the paper's study, or a part of it, costs.

    Parameters
    ----------
    accelerator : str
        A key of `rmutils.estimate.scale.machines.MACHINES`.
    """
    rates = Rates(MACHINES[accelerator], assumed)
    pricing, jobs = Pricing.of(config, rates), plan(paper(config))
    return PaperEstimate(jobs, price(jobs, pricing), rates, pricing)
