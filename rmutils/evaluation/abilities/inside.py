"""The inner side of the sandbox: calls a function that a model wrote.

`rmutils.evaluation.abilities.sandbox` runs this file as a program of its own, with nothing but the
standard library. It reads a job from standard input (code, name of the function, arguments of each
call), gives up for good what could do harm, and says what came out, as JSON. It never knows what
should come out.

The boundary is the kernel's, so it does not matter what Python can be talked into: new namespaces
without a network or other processes; a root with nothing in it but Python's own folders, read-only;
no privileges; and, by libseccomp, only those system calls that a computation needs: no sockets (of
any family), no programs, processes or threads, no memory shared with others.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys

CPU_SECONDS = 2  # processor time for all calls together; one second more, and the kernel kills
MEMORY = 512 * 2**20  # bytes of address space
LIMITS = {"RLIMIT_CPU": (CPU_SECONDS, CPU_SECONDS + 1), "RLIMIT_AS": (MEMORY, MEMORY),
          "RLIMIT_CORE": (0, 0)}
CLOSED = b"closed\n"  # said before the code runs
CALLS = """
brk mmap munmap mremap mprotect madvise futex
open openat close read pread64 readv lseek write writev fcntl dup dup2 dup3
stat lstat fstat newfstatat statx access faccessat faccessat2 readlink readlinkat
getdents64 getcwd chdir
clock_gettime clock_getres clock_nanosleep nanosleep restart_syscall gettimeofday time times
rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack
getpid getppid gettid getuid geteuid getgid getegid uname sysinfo getrandom
getrusage getrlimit prlimit64 sched_yield sched_getaffinity exit exit_group
"""
"""The system calls that are left. All others fail with EPERM."""
# Values of <linux/sched.h>, <linux/prctl.h>, <linux/mount.h>, <seccomp.h>
_NAMESPACES = 0x7E020000  # cgroup, ipc, mount, net, pid, user, uts
_DIE_WITH_PARENT = 1
_PRIVATE, _BIND, _DETACH, _HERE, _RECURSIVE = 0x44000, 0x5000, 2, -100, 0x8000
_READ_ONLY = (ctypes.c_uint64 * 4)(7)  # no device, no set-user-ID program either
_ALLOW, _FAIL = 0x7FFF0000, 0x50000 | errno.EPERM


def main() -> None:
    """Read a job, do it, say what came out."""
    job = json.load(sys.stdin)
    answer = os.dup(1)
    for stream in (1, 2):  # whatever the code prints goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        enclose(os.getcwd())
    except OSError as error:
        os.write(answer, f"{error}\n".encode())
        os._exit(1)
    os.write(answer, CLOSED)  # before the code could say it
    said = json.dumps(_do(job)).encode()
    while said:
        said = said[os.write(answer, said):]
    os._exit(0)  # without what the code may have left for the end


def enclose(folder: str) -> None:
    """Go on in a process that the kernel keeps in; an empty folder becomes its root."""
    import resource

    seccomp, libc = ctypes.CDLL("libseccomp.so.2"), ctypes.CDLL(None, use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p

    def kernel(name: str, *arguments: object) -> None:
        words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if libc.syscall(ctypes.c_long(number), *words) == -1:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    def close(place: str, how: int) -> None:
        kernel("mount_setattr", _HERE, place.encode(), how, _READ_ONLY, len(bytes(_READ_ONLY)))

    user, group = os.geteuid(), os.getegid()
    kernel("prctl", _DIE_WITH_PARENT, signal.SIGKILL)
    kernel("unshare", _NAMESPACES)
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                       ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as told:
            told.write(text)
    if child := os.fork():  # the first process of the new namespace
        os.waitpid(child, 0)
        os._exit(0)
    kernel("prctl", _DIE_WITH_PARENT, signal.SIGKILL)
    kernel("mount", None, b"/", None, _PRIVATE, None)
    kernel("mount", b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=1m,mode=755")
    for place in _needed():
        os.makedirs(folder + place, exist_ok=True)
        kernel("mount", place.encode(), (folder + place).encode(), None, _BIND, None)
        close(folder + place, _RECURSIVE)
    os.chdir(folder)
    kernel("pivot_root", b".", b".")
    kernel("umount2", b".", _DETACH)
    os.chdir("/")
    close("/", 0)
    signal.signal(signal.SIGXCPU, _too_long)
    for name, ends in LIMITS.items():
        resource.setrlimit(getattr(resource, name), ends)
    kernel("capset", (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)())
    rules = ctypes.c_void_p(seccomp.seccomp_init(_FAIL))
    for name in CALLS.split():
        seccomp.seccomp_rule_add(
            rules, _ALLOW, seccomp.seccomp_syscall_resolve_name(name.encode()), 0)
    if failed := seccomp.seccomp_load(rules):
        raise OSError(-failed, f"seccomp_load: {os.strerror(-failed)}")


def _needed() -> set[str]:
    """Folders of the standard library, and of the shared libraries that Python has loaded."""
    with open("/proc/self/maps") as maps:
        files = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return {*filter(os.path.isdir, sys.path),
            *(os.path.dirname(file) for file in files if file[:1] == "/" and ".so" in file)}


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {CPU_SECONDS} s")


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
