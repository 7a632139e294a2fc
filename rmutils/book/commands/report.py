"""The command `rmutils report`: a checkpoint on one page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from rmutils.book.chapters.your_own_model import OwnModelConfig, examine
from rmutils.cli import options
from rmutils.cli.from_configs import Part, configured
from rmutils.core.errors import UserError

REPORTED = {name: f"--{name.split('.')[1]}" for name in (
    "detect.lengths", "detect.depths", "detect.needles", "sweep.counts", "sweep.draws",
    "sweep.samples")}
"""Options of `rmutils report` that need no prefix."""


@configured(config=Part(OwnModelConfig(), names=REPORTED))
@options.loads_models
def report(
    ctx: typer.Context,
    model: options.Model,
    config: OwnModelConfig,
    out: Annotated[Path | None, typer.Option(
        help="The page (.html). Its numbers go beside it (.json).",
        show_default="report-MODEL.html")] = None,
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Detect a model's retrieval heads, mask ever more of them, and predict RetMask's gain.

    Writes a page that stands alone and prints on one sheet, and its numbers as JSON. A run that was
    stopped goes on when the same command is given again.

    Example: rmutils report ./my-checkpoint

    Example: rmutils report model.gguf --lengths 512,2048 --out my-model.html
    """
    from rmutils.book.tools import model_report  # matplotlib: only when it is needed

    if out and out.suffix != ".html":
        raise UserError(f"--out {out}: the page is HTML. Give a file that ends in .html.")
    options.check_room(out or Path("report.html"))
    own = examine(model, config, compute=compute, command=options.command_line(ctx))
    found = model_report.forecasts(own)
    numbers = model_report.as_json(own, found)
    target = out or Path(f"report-{re.sub(r'[^A-Za-z0-9.-]+', '-', own.name).strip('-.')}.html")
    target.write_text(model_report.page(own, found), encoding="utf-8")
    target.with_suffix(".json").write_text(numbers, encoding="utf-8")
    if as_json:
        print(numbers, end="")
        return
    rows = model_report.summary(own, found).itertuples(index=False)
    print(f"{own.name}:", *(f"{what}: {shown}" for what, shown in rows), sep="\n- ")
    print(f"Written: {target} and {target.with_suffix('.json').name}")
