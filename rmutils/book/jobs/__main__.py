"""The steps of a study, each a process that Snakemake starts in the project's folder."""

import json
import os
import time
from pathlib import Path

import typer

from rmutils.book.site.steps import FAILURES, RESULTS, clock, end_with_build, fail, say
from rmutils.core.environment import share_cores
from rmutils.core.errors import UserError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def job(plan: Path, name: str, threads: int) -> None:
    """Do one job of a study."""
    end_with_build()
    share_cores()
    os.environ["OMP_NUM_THREADS"] = str(threads)  # a cluster need not hold it to its share
    started = time.monotonic()
    say(f"{name} ...")
    from rmutils.book.jobs.jobs import carry_out  # torch reads the environment above
    from rmutils.book.jobs.plan import read

    told = name.replace("/", "-")
    try:
        carry_out(read(plan), plan.parent, name, threads=threads)
    except UserError as error:
        fail(told, f"{name}: {error}")
    (FAILURES / f"{told}.txt").unlink(missing_ok=True)  # of an earlier try
    say(f"{name} done in {clock(started)}")


@app.command()
def results(plan: Path) -> None:
    """Write down what a study gave."""
    from rmutils.book.jobs.jobs import results_of
    from rmutils.book.jobs.plan import read

    text = json.dumps(results_of(read(plan), plan.parent), indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    app()
