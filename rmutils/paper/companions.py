"""The texts that this book reads beside the paper: Ms-PoE, Share- and Select-Attention, Olmo 3."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rmutils.paper.tables import PAPER, Schema, read_records

COMPANIONS = Schema(
    "companions.csv", ("source", "table", "group", "row", "column", "value"), numbers=("value",),
    key=("source", "table", "group", "row", "column"))


def load_companions(folder: Path = PAPER) -> pd.DataFrame:
    """What these texts print in tables and lists.

    Returns
    -------
    DataFrame
        `source` (`ms-poe`: a summary, in Japanese, of Zhang et al., 2024; `share-select`:
        Taniguchi et al., undated, in Japanese; `olmo3`: a text, in Japanese, on
        how Olmo 3 was extended to long contexts), `table` (its number, or the heading that it
        stands under), `group`, `row`, `column`, `value` (float).

    Raises
    ------
    UserError
        The file is missing or malformed.
    """
    return pd.DataFrame(read_records(COMPANIONS, folder)).astype({"value": float})
