"""Haystacks: the long, irrelevant text that a needle is hidden in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmutils.errors import UserError
from rmutils.files import intact
from rmutils.paths import HAYSTACK


@dataclass(frozen=True)
class Haystack:
    """One part: `name` (file or folder) and its whole text."""

    name: str
    text: str


def load_haystacks(folder: Path | None = None) -> list[Haystack]:
    """Read the parts of a haystack folder, in the order of their names.

    A folder holds `.txt` files, each a part; or subfolders, each a part made of its `.txt` files
    (the layout of `haystack_for_detect` in Wu et al.'s repository).

    Parameters
    ----------
    folder : Path, optional
        Default: the text that ships with the project.

    Raises
    ------
    UserError
        The folder is missing or holds no text; a file is empty, not UTF-8, or not as shipped.
    """
    folder = Path(folder or HAYSTACK)
    if not folder.is_dir():
        raise UserError(f"haystack folder {folder} does not exist. Give a folder of .txt files.")
    subfolders = sorted(p for p in folder.iterdir() if p.is_dir())
    parts = {p: sorted(p.glob("*.txt")) for p in subfolders}
    parts = {p: files for p, files in parts.items() if files}
    parts = parts or {p: [p] for p in sorted(folder.glob("*.txt"))}
    if not parts:
        raise UserError(f"haystack folder {folder} holds no .txt file.")
    return [Haystack(part.stem, "\n\n".join(map(_read, files))) for part, files in parts.items()]


def _read(path: Path) -> str:
    try:
        text = intact(path).read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise UserError(f"haystack file {path} is not UTF-8 (byte {error.start}). Convert it: "
                        f"`iconv -f LATIN1 -t UTF-8 {path.name}`.") from error
    if not text:
        raise UserError(f"haystack file {path} is empty.")
    return text
