"""What the records of results, files, models and runs say, for *Where each number comes from*."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pandas as pd
from matplotlib.figure import Figure

from rmutils.book.figures.style import BLUE, GREY, new_axes
from rmutils.core import results
from rmutils.core.files import sha256
from rmutils.core.paths import CHAPTERS, CORPORA, DATA, ROOT
from rmutils.models import REGISTRY


def shipped(verify: bool) -> pd.DataFrame:
    """The results that come with the book; `files` says whether they match their manifests."""
    rows = []
    for result in results.stored():
        if result.shipped:
            manifest = result.manifest
            made = manifest["environment"]
            rows.append({
                "result": result.name,
                "command": manifest["command"],
                "contents": ", ".join(_counted(*fact) for fact in manifest["facts"].items()),
                "made": made["created"][:10],
                "seconds": round(manifest["seconds"]),
                "machine": made["hardware"],
                "files": "not checked" if not verify
                else "; ".join(result.problems()) or "intact"})
    return pd.DataFrame(rows)


def _counted(name: str, value: object) -> str:
    return f"{name.replace('_', ' ')} {len(value) if isinstance(value, list | dict) else value}"


def manifest(name: str) -> pd.DataFrame:
    """What the manifest of a stored result says, a row for each field."""
    return pd.DataFrame(
        {"field": field, "value": ", ".join(f"{key} = {part}" for key, part in value.items())
         if isinstance(value, dict) else value} for field, value in _stored(name).manifest.items())


def _stored(name: str) -> results.Artifact:
    found = results.find(name)
    assert found, name  # a finding quotes it
    return found


def hours_by_kind(table: pd.DataFrame, most: int = 12) -> Figure:
    """Draw the machine hours of the longest kinds of results, the others in one bar."""
    kinds = table.assign(kind=table["result"].str.partition("/")[0]).groupby("kind")["seconds"]
    hours = (kinds.sum() / 3600).sort_values(ascending=False)
    counts = kinds.count()[hours.index]
    rest = f"{len(hours) - most} other kinds"
    hours = pd.concat([hours[:most], pd.Series({rest: hours[most:].sum()})])
    counts = pd.concat([counts[:most], pd.Series({rest: counts[most:].sum()})])
    figure, axes = new_axes(3.6)
    axes.barh(hours.index, hours, color=[BLUE] * most + [GREY], height=0.7)
    for place, (value, count) in enumerate(zip(hours, counts, strict=True)):
        axes.text(value, place, f" {count}", va="center", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("hours of a machine; beside each bar, the number of results")
    return figure


def papers() -> pd.DataFrame:
    """The files with the papers' numbers."""
    return pd.DataFrame(
        {"file": str(path.relative_to(ROOT)), "rows": len(pd.read_csv(path)),
         "SHA-256": sha256(path)} for path in sorted((DATA / "paper").glob("*.csv")))


def texts() -> pd.DataFrame:
    """The files that prompts are made of; the other texts stand in folders of the first."""
    files = sorted(path for ending in ("txt", "jsonl") for path in CORPORA["book"].rglob(
        f"*.{ending}"))
    return pd.DataFrame({"file": str(path.relative_to(ROOT)), "contents": _length(path),
                         "SHA-256": sha256(path)} for path in files)


def _length(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        kind = "needles" if path.stem == "needles" else "chats"
        return f"{len(text.splitlines())} {kind}"
    return f"{len(text.split()):,} words" if text.isascii() else f"{len(text):,} characters"


def models() -> pd.DataFrame:
    """The models with a name."""
    return pd.DataFrame(
        {"name": spec.name, "licence": spec.licence,
         "from": f"{spec.wheel.distribution} {spec.wheel.parts[0].version} (PyPI)" if spec.wheel
         else spec.hub_id or f"trained here, seed {spec.seed}",
         "name checked on the hub": "yes" if spec.name_checked else "no",
         "τ": spec.tau, "τ comes from": spec.tau_source} for spec in REGISTRY.values())


def wheels() -> pd.DataFrame:
    """The hashes of models that come in wheels, of the file and of each wheel."""
    def rows() -> Iterator[tuple[str, str, str]]:
        for spec in REGISTRY.values():
            if spec.wheel:
                yield spec.name, spec.wheel.filename, spec.wheel.sha256
                for part in spec.wheel.parts:
                    yield spec.name, f"the wheel of {part.distribution}", part.wheel_sha256

    return pd.DataFrame(rows(), columns=["model", "file", "SHA-256"])


def versions() -> pd.DataFrame:
    """Versions, commit and machine of this build."""
    here = results.environment()
    facts = {"Python": here["python"], **here["packages"], "commit": here["commit"] or "unknown",
             "machine": here["hardware"], "made": here["created"]}
    return pd.DataFrame(facts.items(), columns=["what", "value"])


def chapters() -> pd.DataFrame:
    """When each executed chapter ran, for how long, and with which other parameters."""
    rows = []
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        run = nbformat.read(path, as_version=4).metadata.get("rmutils", {})
        if path.stem != "provenance" and "seconds" in run:
            changed = [f"{key} = {run['parameters'][key]}" for key in run["changed"]]
            rows.append({"chapter": path.stem, "seconds": run["seconds"], "started": run["started"],
                         "changed parameters": ", ".join(changed) or "none"})
    return pd.DataFrame(rows, columns=["chapter", "seconds", "started", "changed parameters"])
