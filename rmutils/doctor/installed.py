"""What is installed: the book's own Python is asked, for it may be another than this one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from rmutils.doctor.findings import Finding, ask, last

IMPORTS = ("torch", "transformers", "trl", "jupyter_book", "papermill", "matplotlib", "rmutils.cli")
MAKE_ANEW = "rm -rf .venv && make book"

PROBE = """
import importlib, importlib.metadata, json, sys, warnings
there = [(d.metadata["Name"], d.version) for d in importlib.metadata.distributions()]
found = {"python": ".".join(map(str, sys.version_info[:3])), "failed": {},
         "versions": {name: version for name, version in there if name}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except BaseException as error:
            found["failed"][name] = f"{type(error).__name__}: {error}".splitlines()[0]
    if "torch" not in found["failed"]:
        import torch
        found["cuda"] = [torch.version.cuda, torch.cuda.is_available()]
found["warnings"] = [str(w.message).splitlines()[0] for w in caught]
print("\\n" + json.dumps(found))
"""


def environment(root: Path, python: str) -> tuple[dict, list[Finding]]:
    """What the book's Python says of itself ({} if it does not run), and what is wrong with it."""
    if not os.path.lexists(python):
        return {}, [Finding("environment", "wrong", "nothing is installed yet", "make book")]
    done = ask([python, "-c", PROBE, *IMPORTS], 300)
    try:
        found = json.loads(done.splitlines()[-1])
    except (ValueError, IndexError):
        return {}, [Finding("environment", "wrong", f"{python} does not run: {last(done)}",
                            MAKE_ANEW)]
    wanted = dict(re.findall(r"^([\w.-]+)==(\S+)", (root / "requirements.lock").read_text(), re.M))
    have = {_normal(name): version for name, version in found["versions"].items()}
    other = [f"{name} {have.get(_normal(name), 'missing')} ({version} is locked)"
             for name, version in wanted.items()
             if have.get(_normal(name), "").split("+")[0] != version]
    findings = []
    if other:
        findings.append(Finding("packages", "wrong" if found["failed"] else "note",
                                _some(other), "rm -f .venv/.complete && make book"))
    for name, error in found["failed"].items():
        findings.append(Finding(name, "wrong", f"cannot be imported: {error}", MAKE_ANEW))
    if not findings:
        findings.append(Finding("environment", "fine", f"Python {found['python']}, {len(wanted)} "
                                "packages as locked"))
    return found, findings


def accelerator(found: dict) -> list[Finding]:
    """A GPU is never needed, but one that lies idle by mistake should be known."""
    seen = shutil.which("nvidia-smi") and ask(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 30).strip()
    if "cuda" not in found or not seen:
        return []
    built, usable = found["cuda"]
    if usable:
        return [Finding("GPU", "fine", seen.splitlines()[0])]
    if built is None:
        return [Finding("GPU", "note", f"{seen.splitlines()[0]} lies idle: this torch is built "
                        "for CPUs", "unset PIP_EXTRA_INDEX_URL; " + MAKE_ANEW)]
    why = next((w for w in found["warnings"] if "driver" in w or "CUDA" in w), "torch sees no GPU")
    return [Finding("GPU", "note", f"{seen.splitlines()[0]} lies idle: torch is built for CUDA "
                    f"{built}. {why}", "update the driver, or install a torch for its CUDA: "
                    "see PyTorch's installation page")]


def models(root: Path, python: str) -> list[Finding]:
    """The model that chapters need, and stored results that changed on the disk."""
    listed = ask([python, "-m", "rmutils", "models", "list", "--json"], 120, root)
    results = ask([python, "-m", "rmutils", "artifacts", "verify"], 300, root).strip()
    try:
        states = {m["name"]: m["state"] for m in json.loads(listed)}
    except ValueError:
        return [Finding("models", "wrong", listed.strip()[-200:], MAKE_ANEW)]
    there = states["smollm2-135m"] == "fetched"
    good = results.startswith("All stored results match")
    return [
        Finding("models", "fine", "smollm2-135m is fetched") if there else Finding(
            "models", "note", "smollm2-135m is not fetched yet (93 MB)",
            "rmutils models fetch smollm2-135m"),
        Finding("results", "fine", results) if good else Finding(
            "results", "wrong", results, "delete what is named; then git checkout -- data"),
    ]


def _some(items: list[str]) -> str:
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
