"""Answers with drafts against answers step by step: the same prompts, read once, in turn."""

from __future__ import annotations

import time
from itertools import groupby, product
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.records import Results
from benchmarks.ways import passes_of
from rmutils import DetectConfig, load_model
from rmutils.attention.decoding import capturing, decode
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config
from rmutils.heads.answering import tokens_together
from rmutils.heads.detection import build_cases
from rmutils.models.engine import drafts
from rmutils.models.engine.caches import Trunk, filled, read_rows


class Settings(Config):
    """Which cases, of how many needles."""

    model: str = "smollm2-135m"
    lengths: tuple[int, ...] = (1024, 4096)
    depths: tuple[float, ...] = (0.1, 0.5, 0.9)
    needles: int = 3
    new_tokens: int = 50
    rounds: int = 3


QUICK = {"model": "tiny-llama", "lengths": (256,), "needles": 1, "rounds": 1}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Measure what is not measured yet: a row for each batch, with a sample for each round.

    Returns
    -------
    bool
        True if tokens and positions are the same.
    """
    results, lm, same = Results("drafts", settings, folder), load_model(settings.model), True
    for length in settings.lengths:
        cases = build_cases(lm, DetectConfig(
            lengths=(length,), depths=settings.depths, needles=settings.needles,
            max_new_tokens=settings.new_tokens))
        size = tokens_together(lm, length) // length
        for needle, alike in groupby(cases, key=lambda case: case.needle_index):
            if list(results.find(length=length, needle=needle)):
                continue
            prompts = [case.input_ids for case in alike][:size]
            trunk = Trunk(lm.model, max(prompts, key=len)[: length // 10])
            cache = read_rows(lm.model, [trunk] * len(prompts), prompts, settings.new_tokens)
            columns = cache.get_seq_length()
            found = {most: {"passes": 0, "cpu_seconds": []} for most in (0, drafts.DRAFT)}
            answers = []
            for _, most in product(range(settings.rounds), found):
                with patch.object(drafts, "DRAFT", most), capturing(lm.model) as recorder, \
                        passes_of(lm) as passes:
                    started = time.process_time()
                    answers.append(decode(
                        lm.model, recorder, prompts, [filled(cache, columns)],
                        max_new_tokens=settings.new_tokens, stop_ids=lm.stop_ids))
                    found[most]["cpu_seconds"].append(round(time.process_time() - started, 3))
                found[most]["passes"] = len(passes)
            same &= all(np.array_equal(one.tokens, other.tokens)
                        and np.array_equal(one.positions, other.positions)
                        for again in answers for one, other in zip(answers[0], again, strict=True))
            for most, row in found.items():
                results.add({"length": length, "needle": needle, "cases": len(prompts),
                             "draft": most, **row})
    for length in settings.lengths:
        by_steps, drafted = (results.find(length=length, draft=most) for most in (0, drafts.DRAFT))
        pairs = [*zip(by_steps, drafted, strict=True)]
        before, after = (sum(pair[i]["passes"] for pair in pairs) for i in (0, 1))
        times = [sum(pair[1]["cpu_seconds"]) / sum(pair[0]["cpu_seconds"]) for pair in pairs]
        print(f"{length} tokens: {after} passes in place of {before} steps, "
              f"{np.mean(times):.2f} times the processor time of the decoding")
    return same
