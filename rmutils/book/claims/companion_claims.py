"""Claims of the companion texts, each beside what was found here (`companion_claims.yml`)."""

from pathlib import Path

import pandas as pd

from rmutils.book.chapters.ms_poe import findings as ms_poe
from rmutils.book.chapters.olmo3_recipe import findings as olmo3_recipe
from rmutils.book.chapters.scale.work import roofline
from rmutils.book.chapters.select_attention import findings as select_attention
from rmutils.book.chapters.share_attention import findings as share_attention
from rmutils.book.findings import named_finding, say
from rmutils.core.files import read_yaml

DECLARED = ms_poe, olmo3_recipe, select_attention, share_attention
"""Modules whose findings the file names."""


def companion_claims() -> pd.DataFrame:
    """Compare claims of the companion texts with what is stored; nothing is computed."""
    rows = read_yaml(Path(__file__).with_suffix(".yml"))
    held = roofline([8_000], [0.1])["held_share"].iloc[0]
    for row in rows:
        asked = {name: named_finding(*of) for name, of in row.pop("findings", {}).items()}
        row["here"] = say(row["here"], held=held, **asked,
                          **({"expect": row.pop("expect")} if "expect" in row else {})).data
    found = pd.DataFrame(rows)[["text", "place", "claim", "page", "here"]]
    return found.assign(here=found["here"].str.replace(r"[*`]", "", regex=True))
