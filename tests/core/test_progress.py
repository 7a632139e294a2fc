"""Progress on a real terminal, and without one."""

import os
import pty
import re
import sys
from types import SimpleNamespace

from rmutils.core import journal


def test_bars_within_a_bar_share_its_display(monkeypatch):
    """A second live display would be an error; each bar ends full, the outer one above."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with journal.progress_bar("outer", 2, unit="steps") as advance:
            for name in ("first", "second"):
                with journal.progress_bar(name, 3, done=1) as inner:
                    inner(2)
                advance(1)
        with journal.progress_bar("next", 2048, unit="bytes") as advance:
            advance(2048)
        monkeypatch.undo()
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "\n").split("\n")
    last = {line.split()[0]: n for n, line in enumerate(lines) if line.strip()}
    assert last["outer"] < last["first"] < last["second"] < last["next"]
    for name, amount in {"outer": "2/2", "first": "3/3", "second": "3/3",
                         "next": "2.0/2.0 kB"}.items():
        assert amount in lines[last[name]], lines[last[name]]


def test_lines_without_a_terminal(monkeypatch, capsys):
    """One of four was done before; of the other three each takes 60 seconds, told from the second
    on, as 100 have to pass."""
    monkeypatch.setattr(journal, "QUIET_SECONDS", 100)
    seconds = iter([1000, 1000, 1060, 1120, 1180])
    monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with journal.progress_bar("work", 4, done=1) as advance:
        for amount in (0, 1, 1, 1):
            advance(amount)
    told = capsys.readouterr().err.splitlines()
    assert told == ["work: 3/4 cases, 1.0 min left"]
