"""A process that kills itself at a change of a file, or in the middle of a write.

Python tells of each file that it opens, renames or removes (`sys.addaudithook`). The kernel ends a
process that writes beyond a limit (`RLIMIT_FSIZE`), in whichever language, with what came before.
"""

import os
import re
import resource
import signal
import sys
import zlib
from collections import Counter
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
"""Audit events of Python that change files, besides `open`."""
TORN, LATER = 16, 1024
"""Bytes that still come through before a process dies in the middle of a write: of the file that is
opened; of a longer one, which other languages may write without an event of Python's."""


class Deaths:
    """Where a process dies: at the first change of a file in a cache at which none has died yet.

    Parameters
    ----------
    known : set of str
        Where others have died: stage, what was changed, how often before, and how they died.
    every : int
        One of so many is tried.
    """

    stage, words = "fetch", 2

    def __init__(self, cache: Path, known: set[str], every: int):
        self.cache, self.known, self.every = f"{cache}/", known, every
        self.seen: Counter[str] = Counter()
        self.dying = False

    def watch(self) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.addaudithook(self.happened)

    def happened(self, event: str, given: tuple) -> None:
        opens = event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)
        if not opens and event not in CHANGES or not isinstance(given[0], str | os.PathLike):
            return
        path = _whole(os.fspath(given[0]), None if opens else given[-1])
        if path.startswith(self.cache) and not (event == "os.mkdir" and os.path.exists(path)):
            what = re.sub(r"/tmp[^/.]+$", "/tmp", path.removeprefix(self.cache))
            self.seen[what] += 1
            grows = opens and given[2] & os.O_APPEND and os.path.exists(path)
            self.changed(f"{event} {what} {self.seen[what]}", bool(opens),
                         os.path.getsize(path) if grows else 0)

    def changed(self, what: str, opens: bool, size: int) -> None:
        if self.dying:  # nothing was written since
            self.die(f"{what} kill")
        for how, room in (("kill", 0), ("torn", TORN), ("later", LATER)):
            death = f"{what} {how}"
            if (death in self.known or how == "torn" and not opens
                    or zlib.crc32(death.encode()) % self.every):
                continue
            if how == "kill":
                self.die(death)
            self.tell(death)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, size + room))
            self.dying = True
            return

    def die(self, death: str) -> None:
        self.tell(death)
        os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, death: str) -> None:
        os.write(self.words, f"{self.stage} {death}\n".encode())


def _whole(path: str, folder: int | None) -> str:
    """A path that may be relative to an open folder, as where folders are removed."""
    if folder in (None, -1):
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
