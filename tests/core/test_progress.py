"""Progress on a real terminal, and without one."""

import os
import pty
import re
import subprocess
import sys

import pytest

from rmutils.core import journal

NESTED = """
from rmutils.core.journal import progress_bar
with progress_bar("outer", 2, unit="steps") as advance:
    for name in ("first", "second"):
        with progress_bar(name, 3, done=1) as inner:
            inner(2)
        advance(1)
with progress_bar("next", 2048, unit="bytes") as advance:
    advance(2048)
"""


def test_bars_within_a_bar_share_its_display():
    """A second live display would be an error; each bar ends full, the outer one above."""
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", NESTED], stderr=theirs, check=False,
                          env=os.environ | {"TERM": "xterm", "COLUMNS": "100"})
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "\n").split("\n")
    assert done.returncode == 0, lines
    last = {line.split()[0]: n for n, line in enumerate(lines) if line.strip()}
    assert last["outer"] < last["first"] < last["second"] < last["next"]
    for name, amount in {"outer": "2/2", "first": "3/3", "second": "3/3",
                         "next": "2.0/2.0 kB"}.items():
        assert amount in lines[last[name]], lines[last[name]]


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 2), (1e6, 0)])
def test_lines_without_a_terminal(monkeypatch, capsys, seconds, lines):
    monkeypatch.setattr(journal, "QUIET_SECONDS", seconds)
    with journal.progress_bar("work", 4, done=2) as advance:
        advance(1)
        advance(1)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines
    if told:
        assert told[0].startswith("work: 3/4 cases, ") and told[1].startswith("work: 4/4 cases, ")
