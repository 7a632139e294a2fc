"""Say what is wrong on this machine, and the command that fixes it."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: `fine`, `note` (the book does without) or `wrong`."""

    what: str
    state: str
    found: str
    fix: str = ""


def ask(command: list[str], seconds: float, folder: Path | None = None) -> str:
    """Return what a command says on both streams; a reason where it does not even start."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, cwd=folder, errors="replace")
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:.0f} s"
    except OSError as error:
        return str(error)
    return done.stdout


def last(told: str) -> str:
    """The line of an answer that says why."""
    return (told.strip().splitlines() or ["it says nothing"])[-1]


GIB = 2**30
MEMORY = 8  # giB that the README asks for
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
    """Check the memory of the whole machine."""
    if not hasattr(os, "sysconf"):
        return Finding("memory", "note", "Windows does not say how much there is", "")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    if total < MEMORY * 0.9:  # firmware and the kernel take their share of 8
        return Finding("memory", "wrong", f"{total:.1f} GiB; chapters need up to {MEMORY}",
                       "make book PROFILE=smoke")
    return Finding("memory", "fine", f"{total:.0f} GiB")


def cache(environment: dict = os.environ) -> Path:
    """`rmutils.core.paths.cache_dir`, without a package that may be missing."""
    if environment.get("RMUTILS_CACHE"):
        return Path(environment["RMUTILS_CACHE"])
    home = Path(environment.get("HOME") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "rmutils"
    if sys.platform == "win32":
        return home / "AppData" / "Local" / "rmutils" / "rmutils" / "Cache"
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "rmutils"


def folders(root: Path, installed: bool) -> list[Finding]:
    """Check that checkout and cache can be written to, and hold what will come."""
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
    """Check that pip reaches its index, whichever is set."""
    told = ask([python, "-m", "pip", "index", "versions", "pip", "--retries", "0", "--timeout",
                "10", "--disable-pip-version-check"], 60)
    if "Available versions" in told:
        return Finding("network", "fine", "pip reaches its index")
    return Finding("network", "wrong", f"pip does not reach its index: {last(told)}",
                   "see `pip config list` and the proxy; or run `make stick` on a machine with a "
                   "network, bring the folder here, and: make book STICK=FOLDER")


IMPORTS = ("torch", "transformers", "trl", "jupyter_book", "papermill", "matplotlib",
           "rmutils.__main__")
REINSTALL = "rm -rf .venv && make book"

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
    """Return what the book's Python says of itself ({} if it doesn't run), and its faults."""
    if not os.path.lexists(python):
        return {}, [Finding("environment", "wrong", "nothing is installed yet", "make book")]
    done = ask([python, "-c", PROBE, *IMPORTS], 300)
    try:
        found = json.loads(done.splitlines()[-1])
    except (ValueError, IndexError):
        return {}, [Finding("environment", "wrong", f"{python} does not run: {last(done)}",
                            REINSTALL)]
    # A line with a marker is about some systems only; others end in `\`, as hashes follow.
    wanted = dict(re.findall(r"^([\w.-]+)==(\S+)(?: \\)?$",
                             (root / "requirements.lock").read_text(), re.M))
    have = {_normal(name): version for name, version in found["versions"].items()}
    other = [f"{name} {have.get(_normal(name), 'missing')} ({version} is locked)"
             for name, version in wanted.items()
             if have.get(_normal(name), "").split("+")[0] != version]
    findings = []
    if other:
        findings.append(Finding("packages", "wrong" if found["failed"] else "note",
                                _some(other), "rm -f .venv/.complete && make book"))
    for name, error in found["failed"].items():
        findings.append(Finding(name, "wrong", f"cannot be imported: {error}", REINSTALL))
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
                        "for CPUs", "unset TORCH_INDEX; " + REINSTALL)]
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
        return [Finding("models", "wrong", listed.strip()[-200:], REINSTALL)]
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


ROOT = Path(__file__).resolve().parents[3]
SIGNS = {"fine": "  ok   ", "note": " note  ", "wrong": " WRONG "}


def examine(root: Path = ROOT, python: str = "") -> list[Finding]:
    """All findings about a checkout and the Python that runs it (by default `.venv`'s)."""
    python = python or str(root / ".venv" / (
        "Scripts/python.exe" if os.name == "nt" else "bin/python"))
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
            if f.fix:
                print(f"{'':21}fix: {f.fix}")
    return int(any(f.state == "wrong" for f in findings))


if __name__ == "__main__":
    sys.exit(report(examine(), "--json" in sys.argv[1:]))
