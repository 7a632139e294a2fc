"""What is wrong on this machine, and the command that mends it.

`rmutils doctor`, or `make doctor` where nothing is installed yet: these modules need only Python
itself, any that is not older than 3.8, and ask the book's own Python about everything else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rmutils.doctor.findings import Finding
from rmutils.doctor.installed import accelerator, environment, models
from rmutils.doctor.machine import folders, memory, network, tools

ROOT = Path(__file__).resolve().parent.parent.parent
SIGNS = {"fine": "  ok   ", "note": " note  ", "wrong": " WRONG "}


def examine(root: Path = ROOT, python: str = "") -> list[Finding]:
    """All findings about a checkout and the Python that runs it (by default `.venv`'s)."""
    python = python or str(root / ".venv" / "bin" / "python")
    found, findings = environment(root, python)
    findings = [*tools(), *findings, memory(), *folders(root, installed=bool(found))]
    if not found:
        return [*findings, network(sys.executable)]
    findings += [*accelerator(found), *models(root, python)]
    if any(f.what == "models" and f.state != "fine" for f in findings):
        findings.append(network(python))
    return findings


def report(findings: list[Finding], as_json: bool = False) -> int:
    """Print what was found; the exit status: 1 if something is wrong."""
    if as_json:
        print(json.dumps([vars(f) for f in findings], indent=1))
    else:
        for f in findings:
            print(f"{SIGNS[f.state]} {f.what:12} {f.found}")
            if f.mend:
                print(f"{'':21}mend: {f.mend}")
    return int(any(f.state == "wrong" for f in findings))

