"""Calls functions that a model wrote in a sandbox.

The code runs in a Python of its own without site packages, in an empty folder that is removed
afterwards, with an empty environment, under limits for processor time, memory, files and processes
(`rmutils.evaluation.abilities.inside`), and is killed with all its children when its time is over.
It has no network, a `/proc` with nothing but itself, and disks that are only read: where the system
has no `unshare`, or does not allow it, nothing is called. The code still may read what this user
may read. That is good enough for what a model writes when it is asked for a function; it is no
place for code that somebody wrote to do harm.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from select import select
from typing import Any, BinaryIO

from rmutils.core.errors import UserError
from rmutils.core.validation import parse_json
from rmutils.evaluation.abilities import inside

WALL_SECONDS = 20.0
"""Ours: ten times the processor time that the code has, for machines with other work."""
LONGEST = 2**16
"""Bytes that results may take."""
_READ_ONLY = """\
for place in $(cut -d ' ' -f 2 /proc/self/mounts); do
    mount -o remount,bind,ro "$place" 2>/dev/null
done
exec env -i "$0" --user -- "$@"
"""
"""Then a second namespace of users, in which the first one's rights to mount are gone."""
_CANNOT_WRITE = """\
import errno, os
try:
    os.mkfifo("pipe")
except OSError as error:
    os._exit(error.errno != errno.EROFS or [n for n in os.listdir("/proc") if n.isdigit()] != ["1"])
os._exit(1)
"""
REFUSED = ("programs that a model wrote are run only in namespaces of their own (`unshare`), which "
           "this system does not have or does not allow, as Windows, macOS and most containers")
_PYTHON = (sys.executable, "-I", "-S", "-B")


@dataclass(frozen=True)
class Outcome:
    """Outcome of some calls.

    Attributes
    ----------
    values : tuple
        Results in the order of the calls; empty if there was a problem.
    problem : str
        What went wrong, or empty.
    """

    values: tuple[Any, ...] = ()
    problem: str = ""


@cache
def isolation() -> tuple[str, ...]:
    """The command in front of a program that takes its network, its view of other processes, and
    all places where it could write.

    Everything that the program starts dies with it. Empty where the system does not allow that:
    then no program is run (`REFUSED`).
    """
    unshare = shutil.which("unshare")
    if not unshare:
        return ()
    words = (unshare, "--map-root-user", "--net", "--ipc", "--pid", "--mount", "--mount-proc",
             "--kill-child", "sh", "-c", _READ_ONLY, unshare)
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run([*words, *_PYTHON, "-c", _CANNOT_WRITE], capture_output=True,
                               cwd=folder, env={"PATH": os.defpath})
    return words if tried.returncode == 0 else ()


def call(
    code: str, function: str, calls: Sequence[Sequence[Any]], *, wall: float = WALL_SECONDS
) -> Outcome:
    """Define a function and call it.

    Parameters
    ----------
    code : str
        Source that defines it.
    function : str
        Its name.
    calls : sequence of sequences
        The arguments of each call, all of kinds that JSON has.
    wall : float
        Seconds after which all is killed.

    Raises
    ------
    UserError
        The system allows no isolation.
    """
    if not isolation():
        raise UserError(f"{REFUSED}. On Windows use WSL.")
    job = json.dumps({"code": code, "function": function, "calls": list(map(list, calls))})
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*isolation(), *_PYTHON, inside.__file__], cwd=folder, start_new_session=True,
            env={"PATH": os.defpath},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started = time.monotonic()
        try:
            said = _talk(process, job.encode(), started + wall)
        finally:
            with suppress(PermissionError):  # macOS, of a group that has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
    if not said:
        over = time.monotonic() - started >= wall
        return Outcome(problem="took too long" if over else "ended without a result")
    try:
        found = parse_json(said.decode())
        if problem := found.get("problem"):
            return Outcome(problem=str(problem))
        values = tuple(map(ast.literal_eval, found["values"]))
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError,
            MemoryError):  # what Python's parser raises for what is nested too deeply
        return Outcome(problem="its results cannot be read")
    same = len(values) == len(calls)
    return Outcome(values) if same else Outcome(problem="its results cannot be read")


def _talk(process: subprocess.Popen, job: bytes, end: float) -> bytes:
    """Hand over the job; what comes back until then, if it is not too long."""
    try:
        process.stdin.write(job)
        process.stdin.close()
    except BrokenPipeError:
        return b""
    return _read(process.stdout, end)


def _read(stream: BinaryIO, end: float) -> bytes:
    said = b""
    while select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(stream.fileno(), LONGEST)
        said += piece
        if not piece or len(said) > LONGEST:
            return said
    return b""
