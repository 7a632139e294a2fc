"""The tests' own test: how many small changes of the modules that decide numbers do they notice?

A random sample of each module's mutants, tried by the module's own tests that take seconds. The
page on reliability shows `data/mutation.json`, which this writes; `benchmarks/mutation.yml` says of
survivors why no test could notice them. A module is tried again when it or its tests have changed;
how many of its mutants were killed when it was first tried with this seed stays beside it, as
`first`, since tests are written for those that were not.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from benchmarks.measuring import PYTHON, lines_of
from benchmarks.records import Results
from rmutils.book.chapters.speed import FOLDER
from rmutils.core.config import Config, digest
from rmutils.core.files import sha256
from rmutils.core.paths import DATA, ROOT

MODULES = {
    **dict.fromkeys(("stats.intervals", "stats.contrast", "stats.corrections"), "test_stats"),
    "core.journal": "core/test_journal core/test_progress cli/test_loading_options",
    "book.claims.gains": "paper/test_gains",
    "evaluation.helmet.averages": "evaluation/helmet/test_averages",
    "evaluation.helmet.metrics": "evaluation/helmet/test_metrics evaluation/helmet/test_run",
    "preference.pairs": "preference/test_pairs",
    "preference.strategies": "preference/test_strategies",
    "longcontext.packing": "longcontext/test_packing longcontext/test_documents",
    "training.encoding": "training/test_encoding",
    "heads.copy_score": "heads/test_scoring heads/test_detection",
    "heads.scores": "heads/test_scores heads/test_sparsity heads/test_score_files",
    "book.verdicts": "paper/test_verdicts paper/test_effects",
    "attention.ms_poe": "attention/test_ms_poe attention/test_watching",
    "attention.sharing_plans": "attention/test_share_attention",
    "attention.share_attention":
        "attention/test_share_attention attention/test_variants attention/test_watching",
    "attention.select_attention":
        "attention/test_select_attention attention/test_variants attention/test_watching",
    "attention.rope": "attention/test_rope attention/test_ms_poe attention/test_variants",
    "heads.masking": "heads/test_masking heads/test_mean heads/test_queries heads/test_export",
    "core.results": "core/test_results heads/test_store",
    "book.claims.claim_list": "paper/test_effects paper/test_claims_list",
}
"""Modules of `rmutils` that decide numbers, and their tests; those with fast tests come first."""
REASONS = Path(__file__).with_suffix(".yml")


class Settings(Config):
    """What is tried of each module."""

    most: int = 12
    """Mutants, drawn at random; all, where there are fewer."""
    seed: int = 5
    slowest: float = 3.0
    """Seconds: tests that take longer are left out."""


QUICK = {"most": 3}


def measure(settings: Settings = Settings(), folder: Path = FOLDER) -> bool:
    """Try what has changed since it was tried, and write down the reasons that are known."""
    results = Results("mutation", settings, DATA if folder == FOLDER else folder)
    states, asked = {}, {}
    for name, tests in MODULES.items():
        module, files = f"rmutils.{name}", [f"tests/{test}.py" for test in tests.split()]
        states[module] = digest({path: sha256(ROOT / path) for path in [source_of(module), *files]})
        if not list(results.find(module=module, state=states[module])):
            asked[module] = files
    explain(results.rows)
    first = {row["module"]: row["first"] for row in results.rows}
    words = json.dumps({"modules": asked, **settings.model_dump()})
    for row in lines_of(PYTHON, "benchmarks.mutants", words) if asked else ():
        results.rows = [one for one in results.rows if one["module"] != row["module"]]
        explain([row])
        results.add({**row, "first": first.get(row["module"], row["killed"]),
                     "state": states[row["module"]]})
    results.write()
    return True


def explain(rows: list[dict]) -> None:
    """Give each survivor the reason why no test could notice it, or None."""
    reasons = yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}
    for row in rows:
        for survivor in row["survivors"]:
            survivor["reason"] = reasons.get(row["module"], {}).get(survivor["change"])


def source_of(module: str) -> str:
    """Return the path of a module within the project."""
    return module.replace(".", "/") + ".py"
