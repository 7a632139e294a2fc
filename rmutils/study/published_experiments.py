"""The paper's trainings and evaluations, table by table, and the checkpoints that it published."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import pandas as pd

from rmutils.models import REGISTRY
from rmutils.paper.tables import load_tables

LLAMA, QWEN, INSTRUCT, THINK = (
    "llama-3.1-8b-instruct", "qwen3-8b", "olmo-3-7b-instruct", "olmo-3-7b-think")
PRINTED = {LLAMA: "Llama-3.1-8B-Instruct", QWEN: "Qwen3-8B", INSTRUCT: "Olmo-3-7B-Instruct",
           THINK: "Olmo-3-7B-Think"}
"""The paper's models (section 4.1): name here -> as printed."""
REASONING = (QWEN, THINK)
"""Appendix A: "reasoning models (Qwen3-8B and Olmo-3-7B-Think)"."""
_LLAMA_3B, _QWEN_06B = "meta-llama/Llama-3.2-3B-Instruct", "Qwen/Qwen3-0.6B"
SMALLER = {LLAMA: _LLAMA_3B, INSTRUCT: _LLAMA_3B, QWEN: _QWEN_06B, THINK: _QWEN_06B}
"""Section 4.1 has "Llama-3.2-3B-Instruct" for Llama and Olmo-3-7B-Instruct, and "Qwen3-0.7B for
experiments on Qwen3-8B and Olmo-3-7B-Think". There is no Qwen3 of that size; the nearest has 0.6
billion weights. Both names are as on the hub."""
CHECKPOINTS = {
    LLAMA: "maym15/Llama-3.1-8B-Instruct-RetMask", QWEN: "maym15/Qwen3-8B-RetMask",
    INSTRUCT: "maym15/Olmo-3-7B-Instruct-RetMask", THINK: "maym15/Olmo-3-7B-Think-RetMask"}
"""Trained by the authors with RetMask; the addresses stand in the README of their repository
(`YoumiMa/RetMask` on GitHub, which the paper's first footnote names)."""
TAU = {model: REGISTRY[model].tau for model in PRINTED}
"""Section 4.1; the places are in `rmutils.models.known_models`."""
DATA = {"lmsys": "LMSYS-Chat-1M", "wildchat": "WildChat", "guru": "Guru-RL-92K"}
"""Source of instructions -> data set in Table 12."""
ALL = (8192, 16384, 32768, 65536, 131072)
LONGEST = {LLAMA: 131072, QWEN: 131072, INSTRUCT: 65536, THINK: 65536}
"""Section 4.4: "As Olmo-3's maximum content length is 64K, we evaluate on input lengths up to 64K".
"""
BASELINES = ("smaller-model", "win-lose-pair", "non-retrieval-mask", "random-mask")


@dataclass(frozen=True)
class Experiment:
    """Trainings of one model, and at which lengths they are evaluated.

    Attributes
    ----------
    place : str
        Where the paper has the results.
    source : str
        As for `rmutils.preference.draw`.
    lengths : tuple of int
        Of HELMET; none beyond the model's longest.
    changes : dict
        Of the run, besides what all runs have.
    """

    place: str
    model: str
    strategies: tuple[str, ...]
    source: str = "lmsys"
    lengths: tuple[int, ...] = ALL
    changes: dict = field(default_factory=dict)


EXPERIMENTS = (
    Experiment("Table 1", LLAMA, (*BASELINES, "retmask")),
    Experiment("Table 1", QWEN, (*BASELINES, "retmask")),
    Experiment("Table 3", LLAMA, ("longreward", "retmask"), changes={"instructions": 10_000}),
    Experiment("Table 4", INSTRUCT, ("smaller-model", "non-retrieval-mask", "retmask")),
    Experiment("Table 4", THINK, ("smaller-model", "non-retrieval-mask", "retmask")),
    Experiment("Figure 3", QWEN, ("rc-removed", "rc-un-generated"), lengths=ALL[-1:]),
    Experiment("Table 5", LLAMA, (*BASELINES, "retmask"), "wildchat", ALL[-1:]),
    Experiment("Table 7", LLAMA, ("retmask",), lengths=ALL[-1:], changes={"tau": 0.05}),
    Experiment("Table 7", QWEN, ("retmask",), lengths=ALL[-1:], changes={"tau": 0.1}),
    Experiment("Table 7", INSTRUCT, ("retmask",), lengths=ALL[3:4], changes={"tau": 0.1}),
    Experiment("Table 7", THINK, ("retmask",), lengths=ALL[3:4], changes={"tau": 0.1}),
    Experiment("Table 9", LLAMA, ("sft",)),
    Experiment("Table 10", QWEN, ("retmask",), changes={"synthesizer": LLAMA}),
    Experiment("Table 11", QWEN, ("non-retrieval-mask", "random-mask", "retmask"), "guru",
               ALL[-1:], {"responses.thinking": False, "recipe.thinking": False}),
)
"""Table 3's 10,000 are those of "LongReward: 10K samples", to which RetMask* is "matched" (section
4.3). Table 7 tries the threshold that section 4.1 does not choose. Table 11: "we conduct
experiments with the reasoning mode turned off" (appendix F)."""


def training_data(model: str, source: str) -> dict[str, float]:
    """Table 12: `Samples`, `Avg. Input Length` and `Avg. Output Length` (tokens) of what a model is
    trained on.

    Raises
    ------
    KeyError
        The paper has not used these data.
    """
    tables = _printed()
    row = PRINTED[model] + (" (non-reason)" if source == "guru" else "")
    found = tables[(tables["source"] == "en") & (tables["table"] == 12)
                   & (tables["group"] == DATA[source]) & (tables["row"] == row)]
    return dict(zip(found["column"], found["value"], strict=True))


@cache
def _printed() -> pd.DataFrame:
    """The paper's tables, which are asked for once for each of many jobs."""
    return load_tables()
