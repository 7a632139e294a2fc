"""Calls functions that a model wrote in a sandbox.

The code runs in a Python of its own, which the kernel keeps in
(`rmutils.evaluation.abilities.inside`). Where the system does not offer that, nothing is called.
"""

from __future__ import annotations

import ast
import json
import os
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

WALL_SECONDS = 8.0
"""Ours: four times the processor time that the code has, for machines with other work."""
LONGEST = 2**16  # bytes that results may take
REFUSED = ("programs that a model wrote are run only in a sandbox of Linux's namespaces and "
           "libseccomp, which this system does not have or does not allow")


@dataclass(frozen=True)
class Outcome:
    values: tuple[Any, ...] = ()  # results in the order of the calls; empty if there was a problem
    problem: str = ""  # what went wrong, or empty


@cache
def missing() -> str:
    """Return why this system has no sandbox; empty if it has one."""
    try:
        call("f = abs", "f", [])
    except UserError as error:
        return str(error)
    return ""


def call(code: str, function: str, calls: Sequence[Sequence[Any]], *,
         wall: float = WALL_SECONDS) -> Outcome:
    """Define a function and call it."""
    if sys.platform != "linux":
        raise UserError(f"{REFUSED} (on Windows, WSL has them)")
    job = json.dumps({"code": code, "function": function, "calls": list(map(list, calls))})
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", inside.__file__], cwd=folder, bufsize=0,
            env={}, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(job.encode())
                process.stdin.close()
            walls = process.stdout.readline()
            started = time.monotonic()
            said = _read(process.stdout, started + wall) if walls == inside.CLOSED else b""
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
    if walls != inside.CLOSED:
        why = walls.decode("utf-8", "replace").strip() or "it ended without a word"
        raise UserError(f"{REFUSED} ({why})")
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


def _read(stream: BinaryIO, end: float) -> bytes:
    said = b""
    while select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
        piece = os.read(stream.fileno(), LONGEST)
        said += piece
        if not piece or len(said) > LONGEST:
            return said
    return b""
