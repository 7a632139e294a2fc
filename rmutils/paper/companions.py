"""The texts that this book reads beside the paper: Ms-PoE, Share- and Select-Attention, Olmo 3.

Who sets a setting: the paper, the authors' code, or this project.

The fields of a configuration have docstrings that say so. They are read here, so that no table of
the book repeats them by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from rmutils.core.config import Config
from rmutils.paper.tables import PAPER, Schema, read_records

COMPANIONS = Schema(
    "companions.csv", ("source", "table", "group", "row", "column", "value"), numbers=("value",),
    key=("source", "table", "group", "row", "column"))


def load_companions(folder: Path = PAPER) -> pd.DataFrame:
    """The tables and lists that these texts print.

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


QUOTED = re.compile(r'\b(?:Section|Appendix) [\w.]+: "')
"""A place in the paper and its words."""
CODE = re.compile(r"\bauthors'|\bdefault\b|\.py\b")
"""The authors' scripts and notebooks, and the defaults of what they call."""


def settings(**configs: Config) -> pd.DataFrame:
    """A row for each field of configurations of one class.

    Parameters
    ----------
    **configs : Config
        By the name of the column that shows its values.

    Returns
    -------
    DataFrame
        `setting`; the values, as text; `set_by`: `paper` where the field's docstring quotes it,
        else `authors' code` where it names that, else `–`; `words`, the docstring.
    """
    first = next(iter(configs.values()))
    rows = []
    for name, field in type(first).model_fields.items():
        words = " ".join((field.description or "").replace("`", "").split())
        values = {column: _shown(getattr(config, name)) for column, config in configs.items()}
        rows.append({"setting": name, **values, "set_by": _set_by(words), "words": words})
    return pd.DataFrame(rows)


def _set_by(words: str) -> str:
    if QUOTED.search(words):
        return "paper"
    return "authors' code" if CODE.search(words) else "–"


def _shown(value: object) -> str:
    """Five of a long list are enough."""
    if value is None or value == ():
        return "–"
    if isinstance(value, tuple):
        parts = [_shown(part) for part in value]
        return ", ".join(parts if len(parts) < 6 else [*parts[:3], "...", parts[-1]])
    return f"{value:g}" if isinstance(value, float) else str(value)
