"""What each job of the paper's study costs, by its plan, beside the hours that the paper tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from rmutils.book.chapters.scale import step_costs
from rmutils.book.chapters.scale.step_costs import Cost, Rates, together
from rmutils.book.chapters.scale.work import MACHINES, Assumptions, Shape, shape_of
from rmutils.book.jobs import published_experiments
from rmutils.book.jobs.plan import Job, Plan, plan
from rmutils.book.jobs.published_experiments import PRINTED, training_data
from rmutils.book.jobs.studies import PaperConfig, paper
from rmutils.evaluation.abilities.harness import BENCHMARKS, HarnessConfig
from rmutils.evaluation.abilities.mt_bench import MTBenchRun, read_questions
from rmutils.evaluation.helmet.official import OFFICIAL, SETTINGS
from rmutils.heads.answering import BATCH_TOKENS
from rmutils.paper.tables import load_text_numbers
from rmutils.preference.judges import GEMMA
from rmutils.preference.strategies import STRATEGIES

NEEDLES = 3  # needles of the set that Wu et al. publish, each in a haystack of its own
JUDGED = 150  # tokens of the judge's question besides instruction and response, about
RATING = 8  # tokens of its reply, about


@dataclass(frozen=True)
class Pricing:
    """The facts about a study that the costs of its jobs depend on."""

    rates: Rates
    # Model of a job -> the paper's name for it, where that is another one: of local copies and of
    # published checkpoints.
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: PaperConfig, rates: Rates) -> Pricing:
        """For the jobs of a configuration's plan."""
        names = {config.copy_of(name): name for name in config.copies}
        known = {config.copy_of(hub): model for hub, model in config.checkpoints.items()}
        return cls(rates, names | known)

    def shape(self, model: str) -> Shape:
        """Return the shape of the paper's model, whatever stands in its place."""
        return shape_of(self.names.get(model, model))

    def data(self, job: Job) -> dict[str, float]:
        """Table 12's line for the pairs of a job's run; LongReward's count as LMSYS-Chat-1M's."""
        author = job.run.synthesizer or job.model
        return published_experiments.training_data(self.names.get(author, author), job.run.source)


def price(jobs: Plan, pricing: Pricing) -> dict[str, Cost]:
    """The cost of each job, by name."""
    return {name: PRICES[job.stage](job, pricing) for name, job in jobs.items()}


def _detect(job: Job, pricing: Pricing) -> Cost:
    config = job.run.detect
    lengths = [n for n in config.lengths for _ in config.depths for _ in range(NEEDLES)]
    return step_costs.detecting(pricing.shape(job.model), lengths, config.max_new_tokens,
                           BATCH_TOKENS["cuda"], pricing.rates)


def _generate(job: Job, pricing: Pricing) -> Cost:
    """The lengths are those of Table 12, also of masked and smaller models."""
    run, data = job.run, pricing.data(job)
    who = run.smaller if run.smaller and job.side else run.synthesizer or job.model
    return step_costs.generating(
        pricing.shape(who), run.instructions, data["Avg. Input Length"],
        data["Avg. Output Length"], pricing.rates,
        job.compute_backend.tensor_parallel, job.compute_backend.engines)


def _pairs(job: Job, pricing: Pricing) -> Cost:
    if not STRATEGIES[job.run.strategy].judged:
        return Cost()
    data = pricing.data(job)
    asked = JUDGED + data["Avg. Input Length"] + data["Avg. Output Length"]
    judged = step_costs.generating(shape_of(GEMMA), 2 * job.run.instructions, asked, RATING,
                              pricing.rates)
    return replace(judged, why=f"the judge, {GEMMA}: {judged.why}")


def _train(job: Job, pricing: Pricing) -> Cost:
    """With the detection after it."""
    run, recipe, data = job.run, job.run.recipe, pricing.data(job)
    launch, shape = job.compute_backend.launch, pricing.shape(job.model)
    tokens = round(min(recipe.max_length, data["Avg. Input Length"] + data["Avg. Output Length"]))
    cost = step_costs.training(
        shape, launch.settings if launch else "alone", max(1, job.resources.gpu),
        pairs=run.instructions, tokens=tokens, epochs=recipe.epochs,
        sides=1 if STRATEGIES[run.strategy].objective == "sft" else 2,
        per_device=recipe.per_device_batch, rates=pricing.rates)
    after = _detect(job, pricing)
    return replace(cost, gpu_hours=cost.gpu_hours + after.gpu_hours,
                   why=f"{cost.why}; detection after it, {after.gpu_hours:.2f} h")


def _evaluate(job: Job, pricing: Pricing) -> Cost:
    asked, shape = job.evaluation, pricing.shape(job.model)
    model = pricing.names.get(job.model, job.model)
    thoughts = published_experiments.training_data(model, "lmsys")["Avg. Output Length"]
    if isinstance(asked, HarnessConfig | MTBenchRun):
        return _abilities(asked, shape, thoughts, pricing.rates)
    parts = [step_costs.answering(shape, samples(name), length,
                             OFFICIAL[name].answer + asked.thinking * thoughts,
                             None if asked.vllm else 1, pricing.rates)
             for name in OFFICIAL if OFFICIAL[name].category in asked.categories
             for length in asked.lengths]
    count = sum(samples(name) for name, data in OFFICIAL.items()
                if data.category in asked.categories)
    return replace(step_costs.together(parts), why=(
        f"{count:,} prompts of {' and '.join(f'{n:,}' for n in asked.lengths)} tokens, longest "
        "answers" + f", {thoughts:,.0f} tokens of thoughts" * asked.thinking))


def _abilities(asked: HarnessConfig | MTBenchRun, shape: Shape, thoughts: float,
               rates: Rates) -> Cost:
    """The judge of MT-Bench is another's."""
    if isinstance(asked, MTBenchRun):
        questions = sum(len(question.turns) for question in read_questions(asked.questions))
        thinking, at_once = asked.answers.thinking, None
    else:
        questions = sum(BENCHMARKS[name].questions for name in asked.benchmarks)
        thinking, at_once = asked.thinking, None if asked.backend == "vllm" else asked.batch
    return step_costs.answering(shape, questions, rates.assumed.prompt,
                           thoughts if thinking else rates.assumed.answer, at_once, rates)


def samples(name: str) -> int:
    """Prompts of a data set of HELMET at a length."""
    data = OFFICIAL[name]
    depths = re.search(r"_dep(\d+)", data.test)
    each = int(depths[1]) if depths and data.category in ("RAG", "Re-rank") else 1
    return SETTINGS[data.category].samples * each


PRICES = {"fetch": lambda job, pricing: step_costs.fetching(pricing.shape(job.model)),
          "detect": _detect, "mask": lambda *_: Cost(), "generate": _generate,
          "pairs": _pairs, "train": _train, "evaluate": _evaluate}


STEPS = {"fetch": "models", "detect": "detection", "mask": "choosing heads",
         "generate": "generation", "pairs": "pairs and judging", "train": "training",
         "evaluate": "evaluation"}
"""Stage -> what it is called."""
TOLD = (("cost of detection and masking", "detect", "GPU hours"),
        ("cost of response generation", "generate", "GPU hours"),
        ("longest training run", "train", "hours"))
"""The paper's hours in `data/paper/text_numbers.csv`: quantity, stage, unit."""
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
        """A row for each step and model of which the paper tells hours."""
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


def estimate_paper(config: PaperConfig = PaperConfig(), accelerator: str = "h100",
                   assumed: Assumptions = Assumptions()) -> PaperEstimate:
    """Estimate the cost of the paper's study, or of a part of it."""
    rates = Rates(MACHINES[accelerator], assumed)
    pricing, jobs = Pricing.of(config, rates), plan(paper(config))
    return PaperEstimate(jobs, price(jobs, pricing), rates, pricing)
