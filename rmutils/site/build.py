"""Building the book: `python -m rmutils.site.build`, which is what `make book` calls.

Snakemake decides what must run again (`Snakefile`) and runs it (`rmutils.site.steps`); `rmutils.site.graph`
starts it. This module says what a chapter and the pages depend on, and how a build ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from rmutils.core import paths
from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.site import pages as listed
from rmutils.site import playground
from rmutils.site.gallery import files
from rmutils.site.graph import BuildFailed, only_build, run_graph
from rmutils.site.steps import COMPLETE, HTML, clock


@dataclass(frozen=True)
class Chapter:
    """A notebook of the book and all that its result depends on; paths relative to the project."""

    name: str
    notebook: Path
    parameters: dict[str, Any]
    inputs: list[str]

    @property
    def output(self) -> str:
        return f"book/chapters/{self.name}.ipynb"


def chapters(root: Path, profile: str) -> list[Chapter]:
    """All notebooks of a project with the parameters that a profile gives them.

    `notebooks/profiles.yaml` maps profile -> notebook -> parameters; what is not mentioned there
    keeps the notebook's own default. A notebook names the data that it reads in its metadata:
    `{"rmutils": {"data": ["data/paper/*.csv"]}}`, and may so name other executed chapters.
    """
    from rmutils.site.parameters import check_parameters

    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    settings = _profile(root, profile)
    unknown = sorted(set(settings) - {n.stem for n in notebooks})
    if unknown:
        raise UserError(f"notebooks/profiles.yaml: profile {profile!r} names {', '.join(unknown)}, "
                        "but notebooks/ has no such notebook")
    outputs = [f"book/chapters/{n.stem}.ipynb" for n in notebooks]
    found = []
    for notebook, output in zip(notebooks, outputs, strict=True):
        parameters = check_parameters(notebook, settings.get(notebook.stem, {}))
        others = [o for o in outputs if o != output]
        found.append(Chapter(notebook.stem, notebook.relative_to(root), parameters,
                             sorted(_data(root, notebook, others)) + code()))
    return found


def code() -> list[str]:
    """The package and the lock: what every chapter depends on.

    Not the command line, the build and the book's machinery; they only start or show what the other
    modules do. The page on a model is a part of its chapter.
    """
    package = paths.ROOT / "rmutils"
    apart = {"build.py", "graph.py", "steps.py", "cli", "book"}
    kept = {"model_page", "model_findings"}
    modules = [p for p in package.rglob("*.py")
               if p.relative_to(package).parts[0] not in apart or p.stem in kept]
    return sorted(map(str, [*modules, paths.ROOT / "requirements.lock"]))


def sources(root: Path) -> list[str]:
    """What the pages are made of besides the chapters: pages, runs, the package, what is listed."""
    book = root / "book"
    made = {"_build", "chapters", "runs", ".ipynb_checkpoints"}
    pages = [p.relative_to(root) for p in book.rglob("*")
             if p.is_file() and not made & set(p.relative_to(book).parts)]
    played = playground.inputs() if (book / playground.FOLDER).is_dir() else []
    runs = [p.relative_to(root) for p in files(root)]
    modules = (paths.ROOT / "rmutils").rglob("*.py")
    return [file for files in ([*pages, *runs], modules, played, listed.inputs())
            for file in sorted(map(str, files))]


def content(root: Path, files: Iterable[str]) -> str:
    """One hash for the content of files, but for those that other steps make.

    Snakemake alone looks only at files that are newer than what was made from them. With this, a
    change is seen also where a clock was set back.
    """
    return digest([[file, _hash(root / file)] for file in files
                   if not file.startswith("book/chapters/")])


_hash = cache(sha256)


def build(root: Path = paths.ROOT, *, profile: str = "embedded") -> None:
    """Bring the book up to date; a second build of the same project waits for the first.

    Raises
    ------
    UserError
        A notebook or a profile is not usable; nothing was started.
    BuildFailed
        A notebook raised or a page has a warning. What the other notebooks gave is kept.
    """
    chapters(root, profile)
    started = time.monotonic()
    with only_build(root) as lock:
        done = _stamp(root)
        run_graph(root, lock, {"profile": profile})
        what = "is up to date" if done == _stamp(root) else f"built in {clock(started)}"
    print(f"The book {what}: {root / HTML / 'index.html'}")


def _stamp(root: Path) -> str | None:
    stamp = root / COMPLETE
    return stamp.read_text(encoding="utf-8") if stamp.exists() else None


def _profile(root: Path, profile: str) -> dict[str, dict]:
    file = root / "notebooks" / "profiles.yaml"
    profiles = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    if profile != "embedded" and profile not in profiles:
        raise UserError(f"no profile {profile!r}; there is embedded, {', '.join(profiles)}")
    return profiles.get(profile) or {}


def _data(root: Path, notebook: Path, outputs: list[str]) -> Iterator[str]:
    metadata = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]
    for pattern in metadata.get("rmutils", {}).get("data", []):
        files = [str(p.relative_to(root)) for p in root.glob(pattern) if p.is_file()]
        files = [f for f in files if not f.startswith("book/chapters/")]
        files += [o for o in outputs if Path(o).match(pattern)]
        if not files:
            raise UserError(f"{notebook.name} says that it reads {pattern!r}, "
                            "but no file has such a name")
        yield from files


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def _main(profile: Annotated[str, typer.Option(help="Size of the experiments.")] = "embedded",
          project: Annotated[Path, typer.Option(help="Folder with notebooks/ and book/.")]
          = paths.ROOT):
    """Bring the book up to date."""
    try:
        build(project.resolve(), profile=profile)
    except (BuildFailed, UserError) as error:
        typer.echo(f"\n{error}", err=True)
        raise typer.Exit(2 if isinstance(error, UserError) else 1) from None


if __name__ == "__main__":
    app()
