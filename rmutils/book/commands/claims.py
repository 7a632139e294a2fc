"""The command `rmutils claims`: the paper's claims, and a verdict on each."""

from __future__ import annotations

import json
from itertools import groupby

from rmutils.cli.options import Json


def claims(as_json: Json = False) -> None:
    """Judge the paper's claims by what is stored; nothing is computed that takes long.

    Each part has its effect and 95 % interval; where a result is not stored, the command that makes
    it is named.

    Example: rmutils claims --json
    """
    from rmutils.book.claims.claim_list import claim_table, judge, load_claims, part_table
    from rmutils.book.verdicts import VERDICTS

    judged = judge(load_claims())
    table, parts = claim_table(judged), part_table(judged)
    if as_json:
        of = {name: json.loads(rows.drop(columns="id").to_json(orient="records"))
              for name, rows in parts.groupby("id")}
        print(json.dumps([row | {"parts": of.get(row["id"], [])}
                          for row in table.to_dict("records")], indent=1, ensure_ascii=False))
        return
    for place, rows in groupby(table.itertuples(), key=lambda row: row.place):
        print(place)
        for row in rows:
            print(f"  {row.words} ({row.id})\n    \"{row.as_printed}\"")
            for part in parts[parts["id"] == row.id].itertuples():
                print(f"      {part.quantity} ({part.of}): {part.value:.3g} "
                      f"[{part.low:.3g}, {part.high:.3g}] {part.unit}; claimed {part.claimed}: "
                      f"{part.verdict}" + (f" ({part.blocked})" if part.blocked else ""))
            if row.note:
                print(f"      {row.note}")
    counts = table["verdict"].value_counts()
    print(f"{len(table)} claims: " + ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts))
