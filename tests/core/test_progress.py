"""Progress on a real terminal, and without one."""

import os
import pty
import re
import sys
import termios

from rmutils.core import journal


def test_bars_within_a_bar_share_its_display(monkeypatch):
    """Each bar ends full, and the outer one and the next stay."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
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
    for name, amount in {"outer": "2/2", "first": "1/3", "next": "2.05k/2.05k"}.items():
        assert re.search(rf"{name}: .*{amount}", shown.decode()), shown


def test_lines_without_a_terminal(monkeypatch, capsys):
    """Nothing is told before 30 seconds have passed, and then a line each 30."""
    clock = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with journal.progress_bar("work", 9) as advance:
        advance(9)
    assert capsys.readouterr().err == ""
    with journal.progress_bar("work", 601, done=1) as advance:
        for clock[0] in (1016.0, 1032.0, 1048.0, 1064.0):
            advance(2)
        told = [line.strip() for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert [line.partition(" cases, ")[0] for line in told] == ["work: 5/601", "work: 9/601"]
