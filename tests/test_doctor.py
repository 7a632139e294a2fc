"""The doctor on machines that are broken in earnest: each finding names a command that fixes it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmutils.book.tools import doctor
from rmutils.core import paths


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A checkout of which nothing is installed; not the project's own."""
    (tmp_path / "requirements.lock").write_text(
        "# With hashes, as `make lock` writes it.\n"
        "numpy==2.0.0 \\\n    --hash=sha256:01 \\\n    --hash=sha256:02\nTyper_Slim==1.0\n"
        "aiohttp==3.14.5 ; python_full_version == '3.12.*' \\\n    --hash=sha256:03\n")
    return tmp_path


@pytest.fixture
def cut_off(monkeypatch):
    """No index answers, whichever is set on this machine."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def named(findings, what):
    return next(f for f in findings if f.what == what)


def test_bare_machine_is_told_to_install(checkout, cut_off):
    found = doctor.examine(checkout)
    assert named(found, "environment").fix == "make book"
    assert named(found, "network").state == "wrong" and "STICK" in named(found, "network").fix


STANDS_FOR_PYTHON = """#!/bin/sh
case "$*" in
    *"models list"*) echo '[{"name": "smollm2-135m", "state": "'$STATE'"}]' ;;
    *verify*) echo 'All stored results match' ;;
    *"pip index"*) echo 'no route' ;;
    *) echo '{"python": "3.11.7", "failed": {}, "warnings": [], "versions": {
        "numpy": "2.0.0", "typer-slim": "1.0"}}' | tr -d '\\n' ;;
esac
"""


@pytest.mark.parametrize(("state", "told"), [
    ("fetched", {"environment": "fine", "models": "fine", "results": "fine"}),
    ("missing", {"models": "note", "network": "wrong"})])
def test_it_runs_where_no_package_is_installed(checkout, state, told):
    """Without site-packages: `-S` leaves only what Python itself brings."""
    python = checkout / "python"
    python.write_text(STANDS_FOR_PYTHON)
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sys; from pathlib import Path\n"
         "from rmutils.book.tools.doctor import examine, report\n"
         "sys.exit(report(examine(Path(sys.argv[1]), sys.argv[2]), True))", checkout, python],
        cwd=paths.ROOT, capture_output=True, text=True, env=os.environ | {"STATE": state})
    assert not done.stderr
    found = {f["what"]: f["state"] for f in json.loads(done.stdout)}
    assert {"memory", "checkout", "cache"} <= {*found} and told.items() <= found.items()
    assert done.returncode == ("wrong" in found.values())


def test_environment_whose_python_is_gone(checkout):
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(checkout / "uninstalled")
    found, (finding,) = doctor.environment(checkout, str(python))
    assert not found and "does not run" in finding.found and "rm -rf .venv" in finding.fix


def test_names_of_packages_are_compared_as_pip_does(checkout):
    """`typer-slim 1.0+cpu` is `Typer_Slim==1.0`; another version is named, and not called wrong."""
    answer = {"python": "3.11.7", "failed": {}, "warnings": [],
              "versions": {"numpy": "2.1.0", "typer-slim": "1.0+cpu"}}
    python = checkout / "python"
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    python.chmod(0o755)
    _, (finding,) = doctor.environment(checkout, str(python))
    assert finding.state == "note" and finding.found == "numpy 2.1.0 (2.0.0 is locked)"


@pytest.mark.parametrize(("built", "usable", "state", "said"), [
    ("13.0", True, "fine", "H100"),
    ("13.0", False, "note", "driver on your system is too old"),
    (None, False, "note", "built for CPUs"),
])
def test_gpu_that_lies_idle(tmp_path, monkeypatch, built, usable, state, said):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho NVIDIA H100, 470.1\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = ["The NVIDIA driver on your system is too old (found version 11040)."]
    (finding,) = doctor.accelerator({"cuda": [built, usable], "warnings": told})
    assert finding.state == state and said in finding.found


def test_full_disk_and_folder_that_cannot_be_written(checkout, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", "/proc/rmutils")
    usage = shutil.disk_usage(checkout)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**29))
    full, closed = doctor.folders(checkout, installed=True)
    assert full.state == "wrong" and "0.5 GiB free, 1 wanted" in full.found
    assert closed.state == "wrong" and "RMUTILS_CACHE" in closed.fix


def test_cache_is_where_the_package_looks_for_it(monkeypatch):
    for name, value in (("RMUTILS_CACHE", "/a"), ("RMUTILS_CACHE", ""), ("XDG_CACHE_HOME", "/b")):
        monkeypatch.setenv(name, value)
        assert doctor.cache(dict(os.environ)) == paths.cache_dir()
