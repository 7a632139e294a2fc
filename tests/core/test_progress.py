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
        assert re.search(rf" {amount} +0:00:0\d left 0:00:00", lines[last[name]]), lines[last[name]]


def test_lines_without_a_terminal(monkeypatch, capsys):
    """One of 601 was done before; of the others each takes 16 seconds, and 30 have to pass from a
    line to the next. Nothing is told before something is done."""
    seconds = iter([1000, 1000, 1031, 1032, 1048, 1064, 1080])
    monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with journal.progress_bar("work", 601, done=1) as advance:
        for amount in (0, 0, 2, 1, 1, 1):
            advance(amount)
    told = capsys.readouterr().err.splitlines()
    assert told == ["work: 3/601 cases, 159.5 min left", "work: 5/601 cases, 158.9 min left"]
