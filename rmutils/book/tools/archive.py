"""One file for good: `python -m rmutils.book.tools.archive`, called by `make archive`."""

import csv
import hashlib
import json
import mimetypes
import re
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rmutils.book.site import pdf
from rmutils.book.site.pages import CITATION
from rmutils.book.site.steps import HTML
from rmutils.book.templates import template
from rmutils.core import paths
from rmutils.core.errors import UserError, exit_with_message
from rmutils.core.files import read_yaml, sha256

NAME = "retmask-reproduced"
LICENCES = {"code": "https://spdx.org/licenses/Apache-2.0",
            "text": "https://spdx.org/licenses/CC-BY-4.0"}
WORKFLOW, LANGUAGE = "Snakefile", "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0")}
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive, the first that a ZIP can have."""


def about() -> dict[str, Any]:
    """What `CITATION.cff` says of the project."""
    return read_yaml(CITATION)


def croissant(root: Path) -> dict[str, Any]:
    """The paper's tables and the needles, with columns, as Croissant 1.0 describes data sets."""
    known = about()
    files, records = [], []
    found = [*sorted((root / "data/paper").glob("*.csv")),
             *sorted((root / "data/corpus").glob("**/needles.jsonl"))]
    for path in found:
        name = str(path.relative_to(root))
        tabular = path.suffix == ".csv"
        with path.open(encoding="utf-8", newline="") as file:
            fields = next(csv.reader(file)) if tabular else [*json.loads(file.readline())]
        files.append({
            "@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name,
            "encodingFormat": "text/csv" if tabular else "application/jsonlines",
            "sha256": sha256(path)})
        records.append({
            "@type": "cr:RecordSet", "@id": f"records/{name}", "name": f"records/{name}",
            "field": [{
                "@type": "cr:Field", "@id": f"records/{name}/{field}", "name": field,
                "dataType": "sc:Text", "source": {"fileObject": {"@id": name}, "extract": {
                    "column": field} if tabular else {"jsonPath": f"$.{field}"}}}
                for field in fields]})
    return {
        "@context": json.loads(template("croissant_context.json")),
        "@type": "sc:Dataset", "name": NAME,
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "description": "Tables, figures and numbers of the RetMask papers as transcribed, and the "
                       "needles that the book hides in long texts.",
        "license": LICENCES["text"], "version": known["version"], "url": f"{NAME}.zip",
        "datePublished": known["date-released"], "citeAs": known["title"],
        "creator": [{"@type": "sc:Organization", "name": a["name"]} for a in known["authors"]],
        "distribution": files, "recordSet": records}


def crate(root: Path, files: Mapping[str, Path]) -> dict[str, Any]:
    """Metadata of an RO-Crate 1.1: all files, and how the book and each stored result were made."""
    known, graph, actions = about(), [], [{
        "@id": "#book", "@type": "CreateAction", "name": "The book",
        "description": "make book: each chapter is run, then the pages are made.",
        "instrument": {"@id": WORKFLOW}, "agent": {"@id": "#contributors"},
        "actionStatus": "http://schema.org/CompletedActionStatus",
        "object": [{"@id": name} for name in files if name.startswith("notebooks/")],
        "result": [{"@id": name} for name in files if name.startswith("built/")]}]
    for name, path in files.items():
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        graph.append({"@id": name, "@type": "File", "name": Path(name).name, "encodingFormat": kind,
                      "contentSize": str(path.stat().st_size), "sha256": sha256(path)})
        if name == WORKFLOW:
            graph[-1] |= {"@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
                          "name": "The book as a graph of chapters and pages",
                          "programmingLanguage": {"@id": LANGUAGE}}
        if not (name.startswith("data/artifacts/") and path.name == "manifest.json"):
            continue
        manifest = json.loads(path.read_text(encoding="utf-8"))
        folder = name.rpartition("/")[0]
        actions.append({
            "@id": f"#{folder}", "@type": "CreateAction", "name": folder.partition("artifacts/")[2],
            "description": manifest.get("command") or "Computed by a chapter or a script.",
            "endTime": manifest["environment"]["created"], "instrument": {"@id": "#rmutils"},
            "actionStatus": "http://schema.org/CompletedActionStatus",
            "object": [{"@id": name}], "agent": {"@id": "#contributors"},
            "result": [{"@id": other} for other in files
                       if other.startswith(f"{folder}/") and other != name]})
    root_entity = {
        "@id": "./", "@type": "Dataset", "name": known["title"], "description": known["abstract"],
        "datePublished": known["date-released"], "license": {"@id": LICENCES["text"]},
        "conformsTo": [{"@id": profile} for profile in PROFILES], "mainEntity": {"@id": WORKFLOW},
        "author": {"@id": "#contributors"}, "hasPart": [{"@id": name} for name in files],
        "mentions": [{"@id": action["@id"]} for action in actions]}
    return {"@context": ["https://w3id.org/ro/crate/1.1/context", {
        "sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}], "@graph": [
        {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"},
         "conformsTo": [{"@id": "https://w3id.org/ro/crate/1.1"}, {"@id": [*PROFILES][-1]}]},
        root_entity,
        {"@id": "#contributors", "@type": "Organization", "name": known["authors"][0]["name"]},
        {"@id": "#rmutils", "@type": "SoftwareApplication", "name": "rmutils",
         "softwareVersion": known["version"]},
        {"@id": LICENCES["text"], "@type": "CreativeWork", "name": "CC BY 4.0",
         "description": "Text, figures, slides, exercises and haystacks. Code: Apache-2.0."},
        {"@id": LANGUAGE, "@type": "ComputerLanguage", "name": "Snakemake",
         "url": "https://snakemake.github.io"},
        *({"@id": profile, "@type": "CreativeWork", "name": name, "version": version}
          for profile, (name, version) in PROFILES.items()),
        *actions, *graph]}


def locked(lock: Path) -> dict[str, tuple[Requirement, str]]:
    """Return name -> requirement, and its lines with the hashes, of a lock."""
    found = {}
    for block in re.findall(r"^(?!#)\S.*(?:\n +--hash.*)*", lock.read_text("utf-8"), re.M):
        wanted = Requirement(block.partition(" \\")[0])
        found[canonicalize_name(wanted.name)] = wanted, block
    return found


def tracked(root: Path) -> dict[str, Path]:
    """Return the files under version control, by name."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        raise UserError(f"{root} is no git clone, so there is no list of its files.")
    return {name: root / name for name in listed.stdout.split("\0") if (root / name).is_file()}


def write_archive(root: Path, output: Path) -> None:
    """Write the archive."""
    files = tracked(root)
    if not (root / HTML).is_dir():
        raise UserError("The book is not built yet: `make book`.")
    files |= {f"built/{path.relative_to(root / HTML)}": path
              for path in (root / HTML).rglob("*") if path.is_file() and path.name != ".complete"}
    if (root / pdf.OUTPUT).is_file():
        files[f"built/{pdf.OUTPUT.name}"] = root / pdf.OUTPUT
    files = dict(sorted(files.items()))
    made = {"croissant.json": croissant(root), "ro-crate-metadata.json": crate(root, files)}
    texts = {name: json.dumps(value, indent=1, ensure_ascii=False) for name, value in made.items()}
    sums = {name: sha256(path) for name, path in files.items()} | {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    texts["SHA256SUMS"] = "".join(f"{known}  {name}\n" for name, known in sums.items())
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, **texts}.items():
            data = content.read_bytes() if isinstance(content, Path) else content.encode()
            entry = zipfile.ZipInfo(f"{NAME}/{name}", EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)


def main() -> None:
    """Write the archive and say where it is; exit status 2 if something is missing."""
    output = paths.ROOT / HTML.parent / f"{NAME}-{about()['version']}.zip"
    with exit_with_message():
        write_archive(paths.ROOT, output)
    print(f"{output} ({output.stat().st_size / 1e6:.0f} MB)")


if __name__ == "__main__":
    main()
