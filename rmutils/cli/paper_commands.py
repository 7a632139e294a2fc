"""`rmutils paper`: its tables, an audit of its numbers, published head scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import typer

from rmutils.cli.options import Json
from rmutils.paper import audit, load_tables
from rmutils.paper.tables import PAPER, printed_table

paper_app = typer.Typer(no_args_is_help=True, add_completion=False,
                  help="The paper's tables, an audit of its numbers, published head scores.")


@paper_app.command()
def tables(
    source: Annotated[Literal["en", "ja"] | None,
                      typer.Option(help="English or Japanese paper; both if not given.")] = None,
    table: Annotated[int | None, typer.Option(help="Number of one table.")] = None,
    json: Json = False,
) -> None:
    """Show the transcribed tables, with the digits that are printed.

    Example: rmutils paper tables --source en --table 8
    """
    cells = load_tables()
    if source:
        cells = cells[cells.source == source]
    if table is not None:
        printed_table(source or "en", table)  # Says which tables there are.
        cells = cells[cells.table == table]
    if json:
        _echo_json(cells)
        return
    for name, number in cells[["source", "table"]].drop_duplicates().itertuples(index=False):
        typer.echo(f"{name} Table {number}\n{printed_table(name, number).to_string()}\n")


@paper_app.command(name="audit")
def show_audit(
    all_: Annotated[bool, typer.Option("--all", help="Also show what agrees.")] = False,
    json: Json = False,
) -> None:
    """List the paper's numbers that disagree by more than rounding explains.

    Example: rmutils paper audit --json
    """
    findings = audit()
    shown = findings if all_ else findings[~findings.agrees]
    if json:
        _echo_json(shown)
        return
    for f in shown.itertuples():
        typer.echo(f"{f.check} ({'agrees' if f.agrees else 'disagrees'}): {f.what}\n"
                   f"    {_value(f.value_a)}  {f.place_a}\n    {_value(f.value_b)}  {f.place_b}")
        if pd.notna(f.difference):
            typer.echo(f"    difference {f.difference:.4g}; below {f.tolerance:.4g} it would be "
                       f"rounding")
    typer.echo(f"{(~findings.agrees).sum()} of {len(findings)} comparisons disagree.")


@paper_app.command()
def published(
    folder: Annotated[Path, typer.Argument(help="Folder of the JSONs that the authors publish, "
                                                "one per model.")],
    out: Annotated[Path, typer.Option(help="Where the CSV files go.",
                                      show_default="data/paper")] = PAPER,
) -> None:
    """Derive the published-score tables from the authors' per-run scores.

    Example: rmutils paper published head_scores --out derived
    """
    from rmutils.paper.head_checks import derive, write  # Imports torch: only when it is needed.

    for path in write(derive(folder), out):
        typer.echo(path)


def _value(value: float | str) -> str:
    return f"{value:<10.6g}" if isinstance(value, float) else str(value)


def _echo_json(frame: pd.DataFrame) -> None:
    typer.echo(frame.to_json(orient="records", force_ascii=False, indent=1))
