"""What each job of the paper's study costs, from its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rmutils.contrast.judges import GEMMA
from rmutils.estimate.scale import costs
from rmutils.estimate.scale.costs import Cost
from rmutils.estimate.scale.decoding import Rates
from rmutils.estimate.scale.shapes import Shape, shape_of
from rmutils.evaluation.general.harness import BENCHMARKS, HarnessConfig
from rmutils.evaluation.general.mt_bench import MTBenchRun, read_questions
from rmutils.evaluation.longcontext.official import OFFICIAL, SETTINGS
from rmutils.evaluation.official import HelmetConfig
from rmutils.heads.answering import BATCH_TOKENS
from rmutils.study import published
from rmutils.study.paper import PaperConfig
from rmutils.study.plan import Job, Plan

NEEDLES = 3
"""Of the set that Wu et al. publish, each in a haystack of its own."""
JUDGED = 150
"""Tokens of the judge's question besides instruction and response, about."""
RATING = 8
"""Tokens of its reply, about."""


@dataclass(frozen=True)
class Pricing:
    """What the costs of jobs need to know of a study.

    Attributes
    ----------
    rates : Rates
    names : mapping
        Model of a job -> the paper's name for it, where that is another one: of local copies and
        of published checkpoints.
    """

    rates: Rates
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: PaperConfig, rates: Rates) -> Pricing:
        """For the jobs of a configuration's plan."""
        names = {config.copy_of(name): name for name in config.copies}
        known = {config.copy_of(hub): model for hub, model in config.checkpoints.items()}
        return cls(rates, names | known)

    def shape(self, model: str) -> Shape:
        """Of the paper's model, whatever stands in its place."""
        return shape_of(self.names.get(model, model))

    def data(self, job: Job) -> dict[str, float]:
        """Table 12's line for the pairs of a job's run; of LongReward's pairs no lengths are
        printed, so they are taken as long as those of LMSYS-Chat-1M."""
        author = job.run.synthesizer or job.model
        return published.training_data(self.names.get(author, author), job.run.source)


def price(jobs: Plan, pricing: Pricing) -> dict[str, Cost]:
    """The cost of each job, by name."""
    return {name: PRICES[job.stage](job, pricing) for name, job in jobs.items()}


def _fetch(job: Job, pricing: Pricing) -> Cost:
    return costs.fetching(pricing.shape(job.model))


def _detect(job: Job, pricing: Pricing) -> Cost:
    config = job.run.detect
    lengths = [n for n in config.lengths for _ in config.depths for _ in range(NEEDLES)]
    return costs.detecting(pricing.shape(job.model), lengths, config.max_new_tokens,
                           BATCH_TOKENS["cuda"], pricing.rates)


def _generate(job: Job, pricing: Pricing) -> Cost:
    """The lengths are those of Table 12, also of masked and smaller models."""
    run, data = job.run, pricing.data(job)
    who = run.smaller if run.smaller and job.side else run.synthesizer or job.model
    return costs.generating(
        pricing.shape(who), run.instructions, data["Avg. Input Length"],
        data["Avg. Output Length"], pricing.rates, job.means.tensor_parallel, job.means.engines)


def _pairs(job: Job, pricing: Pricing) -> Cost:
    if job.run.strategy != "win-lose-pair":
        return Cost()
    data = pricing.data(job)
    asked = JUDGED + data["Avg. Input Length"] + data["Avg. Output Length"]
    judged = costs.generating(shape_of(GEMMA), 2 * job.run.instructions, asked, RATING,
                              pricing.rates)
    return replace(judged, why=f"the judge, {GEMMA}: {judged.why}")


def _train(job: Job, pricing: Pricing) -> Cost:
    """With the detection after it."""
    run, recipe, data = job.run, job.run.recipe, pricing.data(job)
    launch, shape = job.means.launch, pricing.shape(job.model)
    tokens = round(min(recipe.max_length, data["Avg. Input Length"] + data["Avg. Output Length"]))
    cost = costs.training(
        shape, launch.settings if launch else "alone", max(1, job.resources.gpu),
        pairs=run.instructions, tokens=tokens, epochs=recipe.epochs,
        sides=1 if run.strategy == "sft" else 2, per_device=recipe.per_device_batch,
        rates=pricing.rates)
    after = _detect(job, pricing)
    return replace(cost, gpu_hours=cost.gpu_hours + after.gpu_hours,
                   why=f"{cost.why}; detection after it, {after.gpu_hours:.2f} h")


def _evaluate(job: Job, pricing: Pricing) -> Cost:
    asked, shape = job.evaluation, pricing.shape(job.model)
    model = pricing.names.get(job.model, job.model)
    thoughts = published.training_data(model, "lmsys")["Avg. Output Length"]
    if isinstance(asked, HarnessConfig | MTBenchRun):
        return _abilities(asked, shape, thoughts, pricing.rates)
    parts = [costs.answering(shape, samples(name), length,
                             OFFICIAL[name].answer + asked.thinking * thoughts,
                             None if asked.vllm else 1, pricing.rates)
             for name in OFFICIAL if OFFICIAL[name].category in asked.categories
             for length in asked.lengths]
    return replace(costs.together(parts), why=_told(asked, thoughts))


def _abilities(asked: HarnessConfig | MTBenchRun, shape: Shape, thoughts: float,
               rates: Rates) -> Cost:
    """The judge of MT-Bench is another's."""
    if isinstance(asked, MTBenchRun):
        questions = sum(len(question.turns) for question in read_questions(asked.questions))
        thinking, at_once = asked.answers.thinking, None
    else:
        questions = sum(BENCHMARKS[name].questions for name in asked.benchmarks)
        thinking, at_once = asked.thinking, None if asked.backend == "vllm" else asked.batch
    return costs.answering(shape, questions, rates.assumed.prompt,
                           thoughts if thinking else rates.assumed.answer, at_once, rates)


def _told(asked: HelmetConfig, thoughts: float) -> str:
    count = sum(samples(name) for name, data in OFFICIAL.items()
                if data.category in asked.categories)
    return (f"{count:,} prompts of {' and '.join(f'{n:,}' for n in asked.lengths)} tokens by their "
            f"work, longest answers"
            + f" and {thoughts:,.0f} tokens of thoughts" * asked.thinking)


def samples(name: str) -> int:
    """Prompts of a data set of HELMET at a length: its queries, and each at so many depths as the
    name of its file says (`_dep6`), but JSON KV, of which all depths together are as many."""
    data = OFFICIAL[name]
    depths = re.search(r"_dep(\d+)", data.test)
    each = int(depths[1]) if depths and data.category in ("RAG", "Re-rank") else 1
    return SETTINGS[data.category].samples * each


PRICES = {"fetch": _fetch, "detect": _detect, "mask": lambda *_: Cost(), "generate": _generate,
          "pairs": _pairs, "train": _train, "evaluate": _evaluate}
