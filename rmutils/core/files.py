"""Files: their hash, whether they are as they were shipped, one process at a time, full disks."""

from __future__ import annotations

import csv
import errno
import hashlib
import os
import re
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml
from filelock import FileLock, Timeout

from rmutils.core.errors import UserError
from rmutils.core.paths import DATA, cache_dir, restore
from rmutils.core.validation import parse_json

T = TypeVar("T")
SUMS = DATA / "SHA256SUMS"
"""Hashes of the files in `data` without a manifest, as `sha256sum` writes them: see `make sums`."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space, no more of a user's share of it, no longer files."""
LARGEST = 2**30  # bytes of a file that is read as a whole
NO_ROOM = 64 * 1024
"""Bytes. With less left, an error in writing is that of a full disk, whatever a library calls it.
"""


def read_text(path: Path, largest: int = LARGEST, name: str = "") -> str:
    """Return the text of a file from elsewhere, without a byte order mark; errors say `name`."""
    name = name or str(path)
    if plain(path).stat().st_size > largest:
        raise UserError(f"{name} is larger than {largest / 2**20:.0f} MiB.")
    try:
        return path.read_text(encoding="utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if error.object.startswith(b"\x1f\x8b"):
            raise UserError(f"{name} is compressed. Unpack it first: `gunzip`.") from error
        wide = error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
        raise UserError(f"{name} is not UTF-8 (byte {error.start}). Convert it: `iconv -f "
                        f"{'UTF-16' if wide else 'LATIN1'} -t UTF-8 {path.name}`.") from error


class YAML(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The fast loader where there is one; takes no name twice, of which YAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = Counter((name.tag, name.value) for name, _ in node.value
                        if isinstance(name, yaml.ScalarNode))
        if len(names) < names.total():
            twice = names.most_common(1)[0][0][1]
            raise yaml.YAMLError(f"{twice[:80]!r} occurs twice{node.start_mark}")
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(path: Path) -> Any:
    """Return what a YAML file says, or tell where it is wrong."""
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, name: str) -> Any:
    """Return what YAML says that stands in a file of this name."""
    try:
        return yaml.load(text, YAML)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{name} is no YAML: {' '.join(str(error).split())}.") from error


def numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a text with anything on them, with their numbers."""
    return [(n, line) for n, line in enumerate(read_text(path).split("\n"), 1) if line.strip()]


def plain(path: Path) -> Path:
    """Return the path of a file that is to be read, before it is opened: a pipe never ends."""
    try:
        mode = path.stat().st_mode
        wrong = "it is a folder" if stat.S_ISDIR(mode) else "it is a pipe or a device"
        if stat.S_ISREG(mode):
            wrong = "" if os.access(path, os.R_OK) else os.strerror(errno.EACCES)
    except (OSError, ValueError) as error:  # the name may hold what no name can
        wrong = getattr(error, "strerror", str(error))
    if wrong:
        raise UserError(f"{path} cannot be read: {wrong}.")
    return path


FRESH = 2  # seconds in which a file may change twice at what its file system calls the same time


def of_file(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """Keep what a function makes of a `plain` file, for as long as the file stays as it is. All
    who ask get the same object: nobody may change it."""
    @lru_cache(maxsize=4096)
    def kept(path: Path, *state: int) -> T:
        return read(path)

    @wraps(read)
    def look(path: Path) -> T:
        now = plain(path).stat()
        if time.time() - now.st_ctime < FRESH:
            return read(path)
        return kept(path, now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
    return look


@of_file
def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file, which must be `plain`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differs(path: Path, known: str) -> str:
    """Return what is wrong with a file whose SHA-256 is known; empty if nothing is."""
    if path.is_symlink():
        return "this is a link"
    try:
        return "" if sha256(path) == known else "content differs from its manifest"
    except (UserError, OSError) as error:
        return str(error).rstrip(".")


def intact(path: Path) -> Path:
    """Return a file that is to be read, which is as it was shipped if it ships with the project."""
    file = Path(os.path.abspath(path))
    name = os.path.relpath(file, DATA)
    if name in _sums() and file.is_file() and sha256(file) != _sums()[name]:
        raise UserError(
            f"{path} is not as it was shipped, so it is not used. Bring it back: "
            f"`{restore(file)}`. What is to differ belongs in a file of your own; "
            "if the project itself is to change, `make sums` takes note of it.")
    return path


@cache
def _sums() -> dict[str, str]:
    lines = numbered_lines(SUMS)
    return {name: known for known, name in (line.split("  ", 1) for _, line in lines)}


@contextmanager
def one_process(lock_file: Path, doing: str) -> Iterator[None]:
    """Hold a lock, which ends with the process, also after a kill; a second process waits."""
    lock, folder = FileLock(lock_file), lock_file.parent
    with keeping(folder, doing):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"Another process is {doing}; waiting for it.", file=sys.stderr, flush=True)
            lock.acquire()
    try:
        with keeping(folder, doing, only_full=True):
            yield
    finally:
        lock.release()


@contextmanager
def keeping(folder: Path, doing: str, *, only_full: bool = False,
            elsewhere: str | None = None) -> Iterator[None]:
    """Explain errors of a folder that cannot be written: a full disk, or one that is read-only."""
    cached = cache_dir() in (folder, *folder.parents)
    elsewhere = elsewhere or ("name a folder on another disk: `export RMUTILS_CACHE=FOLDER`"
                              if cached else "choose a folder on another disk")
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if _is_full(error, folder):
            raise UserError(
                f"{doing}: the disk of {folder} is full. What is done so far is kept. Make room "
                f"and give the same command again, or {elsewhere}.") from error
        if only_full or not isinstance(error, OSError):
            raise
        raise UserError(
            f"{doing}: {folder} cannot be written ({error.strerror}). " + (
                "Name a folder of your own: `export RMUTILS_CACHE=~/rmutils`. A folder that is "
                "only to be read belongs in RMUTILS_SHARED_CACHE." if cached else
                "Choose another folder.")) from error


def check_disk(folder: Path, needed: int, doing: str) -> None:
    """Refuse to begin what the disk of a folder in the cache has no room for."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{doing} takes {needed / 1e6:,.0f} MB, and the disk of {folder} has {free / 1e6:,.0f} "
            "MB left. Make room, or name a folder on another disk: `export RMUTILS_CACHE=FOLDER`.")


def _is_full(error: BaseException, folder: Path) -> bool:
    """Libraries in other languages tell of a full disk in words, or not at all."""
    if getattr(error, "errno", None) in FULL:
        return True
    if any(os.strerror(number) in str(error) for number in FULL):
        return True
    place = next(p for p in (folder, *folder.parents) if p.exists())
    disk = shutil.disk_usage(place)
    return disk.total > 0 and disk.free < NO_ROOM  # /sys and the like have no size at all


TABLES = ".parquet", ".jsonl", ".csv"
"""Endings of the files that `read_table` and `write_table` know."""
MOST_COLUMNS = 1000  # pairs have ten or so, and pandas takes minutes for a hundred thousand


def check_table(path: Path) -> Path:
    """Refuse a file whose ending names no format of tables."""
    if path.suffix not in TABLES:
        raise UserError(f"{path}: give a file that ends in {', '.join(TABLES[:-1])} or "
                        f"{TABLES[-1]}.")
    return path


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table in the format that the file's ending names, without its index."""
    check_table(path)
    with keeping(path.parent, f"writing {path}"):
        if path.suffix == ".parquet":
            table.to_parquet(path, index=False)
        elif path.suffix == ".jsonl":
            table.to_json(path, orient="records", lines=True, force_ascii=False)
        else:
            table.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)


def read_table(path: Path, text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table in the format that the file's ending names."""
    kind = check_table(path).suffix[1:]
    plain(path)
    try:
        if kind == "parquet":
            return pd.read_parquet(path)
        if kind == "jsonl":
            return pd.DataFrame([_record(line) for _, line in numbered_lines(path)])
        _check_cells(path)
        return pd.read_csv(path, keep_default_na=False, dtype=dict.fromkeys(text, str))
    except (ValueError, TypeError, LookupError, OSError, csv.Error) as error:
        raise UserError(f"{path} is not a {kind} file: {error}.") from error


def _record(line: str) -> dict[str, object]:
    record = parse_json(line)
    if not isinstance(record, dict):
        raise TypeError(f"{line[:40]!r} is no record")
    return record


def _check_cells(path: Path) -> None:
    """Refuse what pandas would shift, fill or rename: lines of other lengths, names that return."""
    csv.field_size_limit(LARGEST)
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        names = next(lines, [])
        if len(names) > MOST_COLUMNS:
            raise ValueError(f"its first line names {len(names):,} columns")
        if len({*names}) < len(names):
            raise ValueError("its first line names a column twice")
        for line in lines:
            if line and len(line) != len(names):
                raise ValueError(f"its first line names {len(names)} columns, and line "
                                 f"{lines.line_num} has {len(line)} cells")


DANGEROUS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""Characters that begin a formula, in either width, and white space that programs skip first."""

WITH_INTERVAL = re.compile(r"(-?\d+\.?\d*) \[(-?\d+\.?\d*),\u00a0(-?\d+\.?\d*)\]")
"""Numbers as `rmutils.book.figures.report.number` writes them."""


def to_csv(frame: pd.DataFrame) -> str:
    """A table as CSV, without its index, with all digits."""
    columns = {}
    for i, name in enumerate(_names(frame)):
        cells = [_cell(cell) for cell in frame.iloc[:, i]]
        columns[name] = [cell[0] if isinstance(cell, tuple) else cell for cell in cells]
        if any(isinstance(cell, tuple) for cell in cells):
            for end, place in (("low", 1), ("high", 2)):
                columns[f"{name}, {end}"] = [
                    cell[place] if isinstance(cell, tuple) else None for cell in cells]
    text: str = pd.DataFrame(columns, dtype=object).to_csv(index=False, lineterminator="\n")
    return text


def _names(frame: pd.DataFrame) -> list[str]:
    """Columns' names as text; one that occurs again is numbered."""
    names = [_safe(str(name)) for name in frame.columns]
    counts = [names[: i + 1].count(name) for i, name in enumerate(names)]
    return [f"{n} ({count})" if count > 1 else n for n, count in zip(names, counts, strict=True)]


def _cell(cell: object) -> object:
    """Return the text of a cell; the texts of value, low and high for one with an interval."""
    if isinstance(cell, Real) or cell is None or cell is pd.NA or cell is pd.NaT:
        return cell
    interval = WITH_INTERVAL.fullmatch(str(cell))
    return interval.groups() if interval else _safe(str(cell))


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(DANGEROUS) else text
