"""The audit: everything that the paper lets one recompute."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pandas as pd

from rmutils.paper import head_checks, table_checks, text_checks
from rmutils.paper.cells import load_cells
from rmutils.paper.findings import Finding
from rmutils.paper.tables import PAPER


def audit(folder: Path = PAPER) -> pd.DataFrame:
    """Hold the paper's numbers against each other.

    Every line comes from a general rule that is run over the transcribed data; no disagreement is
    typed in. Numbers disagree if rounding for print cannot explain their difference.

    Parameters
    ----------
    folder : Path
        Where the transcription is, by default `data/paper/`.

    Returns
    -------
    DataFrame
        One row per comparison, those that agree included: `check`, `what`, `value_a`, `place_a`,
        `value_b`, `place_b`, `tolerance`, `agrees`, `difference` (see
        `rmutils.paper.findings.Finding`).

    Raises
    ------
    UserError
        A file of the transcription is missing or malformed.
    """
    cells = load_cells(folder)
    numbers = head_checks.HeadNumbers(folder)
    findings = [
        *table_checks.task_means(cells),
        *table_checks.same_cell(cells),
        *table_checks.bold_is_best(cells, folder),
        *table_checks.captions(cells, folder),
        *text_checks.quoted_numbers(cells, folder),
        *text_checks.statements(cells, folder),
        *text_checks.gain_orders(cells, folder),
        *text_checks.repeated_numbers(folder),
        *text_checks.repeated_facts(folder),
        *text_checks.unique_failures(folder),
        *head_checks.score_bins(numbers),
        *head_checks.masked_shares(numbers),
        *head_checks.mean_gains(numbers),
        *head_checks.published_scores(numbers),
    ]
    return pd.DataFrame(findings, columns=[field.name for field in fields(Finding)])
