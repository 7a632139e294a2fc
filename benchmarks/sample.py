"""A sample of the paper's grid in processor seconds of one thread, the ways in turn.

Other programs beside it take time from a process, but hardly any of its processor seconds: this
is for a machine that is never quiet.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks import ways
from benchmarks.records import Results
from benchmarks.watching import warm_up
from rmutils import DetectConfig, load_model
from rmutils.book.chapters.speed import ALL_SCORES, FOLDER, OURS, REFERENCE, SAME_PRODUCTS
from rmutils.core.config import Config
from rmutils.heads.detection import build_cases, even_depths
from rmutils.heads.one_run import TOGETHER
from rmutils.heads.score_kinds import SCORES
from rmutils.models.products import left_to_pytorch


class Settings(Config):
    """Blocks of the grid: each length with each needle, at even depths."""

    model: str = "smollm2-135m"
    lengths: tuple[int, ...] = (500, 1000)
    depths: int = 5
    needles: int = 3
    new_tokens: int = 50


QUICK = {"model": "tiny-llama", "lengths": (220,), "depths": 2, "needles": 1}


@contextmanager
def _spent(seconds: dict[str, float], way: str) -> Iterator[None]:
    started = time.process_time()
    yield
    seconds[way] = time.process_time() - started


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet, block by block: a row for each way.

    Of the two-phase algorithm one case of each block is run, at another depth each.

    Returns
    -------
    bool
        True if all ways said and copied the same.
    """
    torch.set_num_threads(1)
    results, lm, same = Results("sample", settings, folder), load_model(settings.model), True
    warm_up(lm)
    for block, (length, needle) in enumerate(product(settings.lengths, range(settings.needles))):
        if list(results.find(length=length, needle=needle)):
            continue
        config = DetectConfig(lengths=(length,), depths=even_depths(settings.depths),
                              needles=needle + 1, max_new_tokens=settings.new_tokens)
        cases = [case for case in build_cases(lm, config) if case.needle_index == needle]
        one, how = cases[block % len(cases)], (settings.new_tokens, lm.stop_ids)
        seconds = {}
        with _spent(seconds, OURS):
            ours = {case.id: run for case, run in zip(
                cases, ways.ours(lm, cases, *how), strict=True)}[one.id]
        with patch.object(time, "perf_counter", time.process_time):  # two_phase reads it
            with _spent(seconds, REFERENCE), left_to_pytorch():
                (plain,) = ways.two_phase(lm, [one], *how)
            with _spent(seconds, SAME_PRODUCTS):
                (alike,) = ways.two_phase(lm, [one], *how)
        with _spent(seconds, ALL_SCORES):
            kinds = [SCORES[name](lm, config.changed({"score": name})) for name in TOGETHER]
            for case, answer, _ in SCORES["dla"](lm, config).answers(cases, None):
                [kind.score(case, answer) for kind in kinds]
        same &= all(ours.said == other.said and Counter(ours.copied) == Counter(other.copied)
                    for other in (plain, alike))
        for way, spent in seconds.items():
            results.add({"length": length, "needle": needle, "way": way,
                         "cases": 1 if way in (REFERENCE, SAME_PRODUCTS) else len(cases),
                         "cpu_seconds": round(spent, 3),
                         **({"prefill": round(plain.prefill, 3)} if way == REFERENCE else {})})
    print("the same answers and counts" if same else "answers or counts differ")
    return same
