"""The inner side of the sandbox: calls a function that a model wrote.

`rmutils.evaluation.abilities.sandbox` runs this file as a program of its own, with nothing but the
standard library. It reads a job from standard input (code, name of the function, arguments of each
call) and says what came out, as JSON. It never knows what should come out.
"""

from __future__ import annotations

import json
import os
import signal
import sys

CPU_SECONDS = 2
"""Processor time for all calls together; one second more, and the kernel kills."""
MEMORY = 512 * 2**20
"""Bytes of address space."""
LIMITS = {
    "RLIMIT_CPU": (CPU_SECONDS, CPU_SECONDS + 1), "RLIMIT_AS": (MEMORY, MEMORY),
    "RLIMIT_CORE": (0, 0),
    "RLIMIT_FSIZE": (0, 0),  # no file can take a byte, wherever it is
    "RLIMIT_NPROC": (0, 0),  # no further process; the kernel excepts root
}
REFUSED = (
    "ctypes.", "os.chdir", "os.chmod", "os.chown", "os.exec", "os.fork", "os.kill", "os.link",
    "os.mkdir", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.setxattr", "os.symlink",
    "os.system", "os.truncate", "os.utime", "pty.", "resource.", "shutil.", "socket.",
    "subprocess.")
"""Beginnings of the events (`sys.addaudithook`) that end a call: what would change something
outside. The limits and, where the system has them, namespaces do not depend on this list."""
UNHEARD = ("mkfifo", "mknod", "setsid", "setpgid", "setpgrp", "pidfd_open")
"""Functions of the system that no event tells of, and which the code does not find."""
MODULES = ("_interpreters", "_xxsubinterpreters", "_interpchannels", "_sqlite3", "_testcapi")
"""Modules that open files, or run code, past the events."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def main() -> None:
    """Read a job, do it, say what came out."""
    job = json.load(sys.stdin)
    answer = os.dup(1)
    for stream in (1, 2):  # whatever the code prints goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    limit()
    for module in (os, sys.modules["posix"]):
        for name in UNHEARD:
            module.__dict__.pop(name, None)
    sys.addaudithook(_refuse)
    said = json.dumps(_do(job)).encode()
    while said:
        said = said[os.write(answer, said):]
    os._exit(0)  # without what the code may have left for the end


def limit() -> None:
    """Put this process under `LIMITS`; no code is called where the system has none, on Windows."""
    import resource

    signal.signal(signal.SIGXCPU, _too_long)
    for name, ends in LIMITS.items():
        resource.setrlimit(getattr(resource, name), ends)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {CPU_SECONDS} s")


def _refuse(event: str, args: tuple) -> None:
    if event.startswith(REFUSED) or (event == "open" and args[2] & _WRITES) or (
            event == "import" and args[0] in MODULES):
        raise PermissionError(f"{event} is not allowed here")


def _do(job: dict) -> dict:
    """`values`: the results as Python writes them; or `problem`: the first exception."""
    try:
        space = {"__name__": "solution"}
        exec(compile(job["code"], "<solution>", "exec"), space)
        function = space[job["function"]]
        return {"values": [repr(function(*call)) for call in job["calls"]]}
    except BaseException as error:  # SystemExit, too
        return {"problem": f"{type(error).__name__}: {error}"[:200]}


if __name__ == "__main__":
    main()
