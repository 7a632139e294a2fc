"""The case on which readers of the guided build write the method themselves."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

from rmutils.attention.decoding import Answer
from rmutils.corpora.niah import NiahCase
from rmutils.experiments.preliminaries import answer_case
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.models import LanguageModel, load_model


def example() -> tuple[LanguageModel, NiahCase, Answer]:
    """`tiny-llama`, which gives its attention weights away, one case, and its answer to it.

    Each call returns a model of its own, as what a reader tries may damage it.
    """
    return deepcopy(_example())


@cache
def _example() -> tuple[LanguageModel, NiahCase, Answer]:
    lm = load_model("tiny-llama", device="cpu")
    lm.model.set_attn_implementation("eager")
    case = build_cases(lm, DetectConfig(lengths=[128], depths=[0.5]))[0]
    return lm, case, answer_case(lm, case)
