"""Stored results from a release: a folder or an address with what `make archive` packs.

`SHA256SUMS` at its top names all files with their hashes. Results are checked against it and
against their own manifests before they are in the cache.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rmutils.core.errors import UserError
from rmutils.core.files import differs, one_process, plain, read_text
from rmutils.core.journal import progress_bar
from rmutils.core.paths import cache_dir
from rmutils.core.results import Artifact, find, publish
from rmutils.core.server import Client, ServerError

SUMS = "SHA256SUMS"
LINE = re.compile(
    r"([0-9a-f]{64})  data/artifacts/((?:[\w-][\w.-]*/){2}[\w-][\w.-]*)/([\w-][\w.-]*)", re.ASCII)
"""A file of a result: hash, name of the result, name of the file. None leads elsewhere."""
STALLED = 60
"""Seconds without a byte, after which a server is asked again."""

Copy = Callable[[str, Path], object]


def opened(where: str) -> Copy:
    """Return what copies a file of a release, by its name there, to a path.

    Parameters
    ----------
    where : str
        A path, or an address that begins with `file://`, `http://` or `https://`.
    """
    if where.startswith(("http://", "https://")):
        client = Client(where, timeout=STALLED, tries=3, public=True)
        return lambda name, target: client.save(f"/{name}", target)
    folder = Path(url2pathname(urlsplit(where).path) if where.startswith("file://") else where)
    return lambda name, target: shutil.copyfile(plain(folder / name), target)


def fetch_results(where: str, text: str = "") -> list[Artifact]:
    """Bring the results of a release that are not here yet into the user's cache.

    A call that was cut off is gone on with by the next one.

    Parameters
    ----------
    where : str
        As for `opened`.
    text : str
        Only those whose name has this text.

    Raises
    ------
    UserError
        `where` is no release or does not answer, no result there is called so, or a file is not as
        its hashes say; nothing damaged is kept.
    """
    copy, root = opened(where), cache_dir() / "artifacts"
    work = root / ".fetched"
    with one_process(root / ".fetched.lock", "fetching results"):
        work.mkdir(exist_ok=True)
        _copied(copy, SUMS, work / SUMS, f"{where} is no release, which is what `make archive` "
                                         "packs, unpacked")
        files: dict[str, dict[str, str]] = {}
        for line in LINE.finditer(read_text(work / SUMS)):
            if text in line[2]:
                files.setdefault(line[2], {})[line[3]] = line[1]
        if not files:
            raise UserError(f"{where} has no result" + (f" whose name has {text!r}." if text
                                                        else "s."))
        wanted = [name for name in files if not find(name)]
        with progress_bar("fetching results", len(wanted)) as advance:
            for name in wanted:
                for file, known in files[name].items():
                    _checked(copy, f"data/artifacts/{name}/{file}", work / name / file, known)
                if problems := Artifact(work / name).problems():
                    shutil.rmtree(work / name)
                    raise UserError(f"{where}: {'; '.join(problems)}. It is not kept.")
                publish(work / name, root / name)
                advance(1)
        shutil.rmtree(work)
    return [Artifact(root / name) for name in wanted]


def _checked(copy: Copy, name: str, target: Path, known: str) -> None:
    if target.is_file() and not differs(target, known):  # of a call that was cut off
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    _copied(copy, name, target, f"{name} cannot be fetched")
    if differs(target, known):
        target.unlink()
        raise UserError(f"{name}: what came differs from {SUMS} of the release, so it is not kept. "
                        "Give the command again, or ask who keeps the release.")


def _copied(copy: Copy, name: str, target: Path, otherwise: str) -> None:
    try:
        copy(name, target)
    except (ServerError, UserError) as error:
        target.unlink(missing_ok=True)
        raise UserError(f"{otherwise}: {error}") from error
