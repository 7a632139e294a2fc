"""Real bad programs: none gets out, none holds up the run, none passes by a trick."""

import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rmutils.core.errors import UserError
from rmutils.core.paths import ROOT
from rmutils.evaluation.abilities import inside, sandbox
from rmutils.evaluation.abilities.sandbox import Outcome, call, missing
from tests.clock import until

TWICE = "def f(x):\n    return 2 * x"
NOT_PERMITTED = r"Errno 1\] Operation not permitted"
needs_sandbox = pytest.mark.skipif(bool(missing()), reason="this system has no sandbox")


def body(*lines: str) -> str:
    """A function `f` of these lines."""
    return "\n".join(["def f(x):", *(f"    {line}" for line in lines)])


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """Change the program inside; return its path."""
    def change(old: str, new: str) -> str:
        path = tmp_path / "inside.py"
        path.write_text(Path(inside.__file__).read_text().replace(old, new, 1))
        monkeypatch.setattr(sandbox, "inside", SimpleNamespace(
            __file__=str(path), CLOSED=inside.CLOSED))
        return str(path)

    return change


@pytest.mark.parametrize(("script", "why"), [
    ("print('unshare: Operation not permitted')", "unshare: Operation not permitted"),
    ("", "ended without a word")])
def test_without_a_sandbox_nothing_is_called(tmp_path, monkeypatch, script, why):
    (tmp_path / "inside.py").write_text(script)
    monkeypatch.setattr(sandbox, "inside", SimpleNamespace(
        __file__=str(tmp_path / "inside.py"), CLOSED=inside.CLOSED))
    with pytest.raises(UserError, match=f"only in a sandbox of Linux.*{why}"):
        call(TWICE, "f", [[2]])
    assert why in missing.__wrapped__()


def test_other_systems_have_none(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert "on Windows, WSL" in missing.__wrapped__()


def elsewhere(shell: str, code: str, folder: Path) -> str:
    """What a Python prints that a shell starts as `"$@"` in a system of its own."""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec",
         shell, "sh", sys.executable, "-c", code], capture_output=True, text=True, cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)})
    return done.stdout + done.stderr


@needs_sandbox
def test_a_kernel_that_refuses_is_said(tmp_path):
    """Really: one that allows no further namespaces."""
    said = elsewhere('echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"',
                     f"from {sandbox.__name__} import *; print(missing())", tmp_path)
    assert "does not allow (" in said and "unshare: " in said


@needs_sandbox
def test_mounts_are_left_behind_whatever_they_are_called(tmp_path):
    """A space in the name of a mount once kept it open."""
    (tmp_path / "a b").mkdir()
    place = str(tmp_path / "a b" / "new")
    said = elsewhere('mount -t tmpfs none "a b"; exec "$@"', f"""
from {sandbox.__name__} import *
from pathlib import Path
print(call({body(f"open({place!r}, 'w')")!r}, "f", [[1]]).problem)
print("made", [*Path("a b").iterdir()])""", tmp_path)
    assert "FileNotFoundError" in said and "made []" in said


@needs_sandbox
def test_results_come_back():
    assert call(TWICE, "f", [[2], [-1], ["ab"], [[1]]]) == Outcome((4, -2, "abab", [1, 1]))
    code = "import math\n\ndef g(a, b):\n    return {'root': math.isqrt(a), 'both': (a, b, None)}"
    assert call(code, "g", [[9, True]]).values == ({"root": 3, "both": (9, True, None)},)
    code = ("import collections, datetime, decimal, hashlib, itertools, random, re, string, zlib\n"
            + body("return hashlib.sha256(b'').hexdigest()[:x], str(decimal.Decimal(x) / 3)[:4]"))
    assert call(code, "f", [[2]]).values == (("e3", "0.66"),)


def test_an_ordinary_user_has_a_sandbox(tmp_path):
    """Root tries it as nobody, with a Python that nobody may run."""
    python = Path("/usr/bin/python3")
    if os.geteuid() or missing() or not python.exists():
        pytest.skip("this is an ordinary user, or there is no Python for another one")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder.stat().st_mode & 0o5 != 5:
            folder.chmod(0o755)
    (tmp_path / "inside.py").write_text(Path(inside.__file__).read_text())
    (tmp_path / "root").mkdir()
    job = '{"code": "import os\\ndef f(x): return os.getuid()", "function": "f", "calls": [[1]]}'
    done = subprocess.run(
        [python, "-I", "-S", "-B", tmp_path / "inside.py"], cwd=tmp_path / "root", input=job,
        capture_output=True, text=True, user=65534, group=65534, extra_groups=[], env={})
    assert done.stdout == 'closed\n{"values": ["65534"]}', done


@needs_sandbox
@pytest.mark.parametrize("code, problem", [
    (body("return [0] * 10**9"), "MemoryError"),
    (body("kept = []", "while True: kept.append(bytes(10**7))"), "MemoryError"),
    ("import sys\nsys.exit(0)", "SystemExit: 0"),
    (body("raise SystemExit"), "SystemExit"),
    ("import os\nos._exit(0)", "ended without a result"),
    (body("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)"), NOT_PERMITTED),
    (body("import ctypes", "ctypes.string_at(0)"), "ended without a result"),
    (body("return f(x)"), "RecursionError"),
    (body("return x +"), "SyntaxError"),
    (body("return 1 / 0"), "ZeroDivisionError: division by zero"),
    ("f = 3", "TypeError"), ("", "KeyError: 'f'"),
    # a program that prints what is expected, and computes nothing
    ("print(4)\nprint('values: [4]')", "KeyError: 'f'"),
    # one that writes an answer into every pipe it can find
    ("import os\nfor i in range(3, 40):\n    try: os.write(i, b'{\"values\": [\"4\"]}')\n"
     "    except OSError: pass\ndef f(x): return 0", "cannot be read"),
    (body("class Any:", "    def __eq__(self, other): return True", "return Any()"),
     "cannot be read"),
    (body("class Any:", "    def __repr__(self): return '4, 4'", "return Any()"), None),
    (body("return 'x' * 10**6"), "cannot be read"),  # longer than results may be
    # values that Python's parser would fall over
    *((body("class Deep:", f"    def __repr__(self): return {text!r} * 9000 + '1'",
            "return Deep()"), "cannot be read") for text in ("-", "[", "not ", "1+", "1**")),
    # one that says that there is no sandbox
    ("import os\nfor i in range(3, 40):\n    try: os.write(i, b'unshare: not permitted\\n')\n"
     "    except OSError: pass\ndef f(x): return 0", "cannot be read"),
])
def test_bad_programs_do_not_pass(code, problem):
    outcome = call(code, "f", [[2]])
    assert outcome.values != (4,)
    if problem:
        assert outcome.values == () and re.search(problem, outcome.problem)


@pytest.mark.parametrize("code", [
    body("while True:", "    try:", "        while True: pass", "    except BaseException: pass"),
    body("while True: print('flood' * 10**4)"),
])
@needs_sandbox
def test_endless_programs_lose_their_processor_time(changed, code):
    changed("CPU_SECONDS = 2", "CPU_SECONDS = 1")
    started = psutil.Process().children()
    outcome = call(code, "f", [[2]])
    assert outcome.values == ()
    assert outcome.problem in ("TimeoutError: more than 1 s", "ended without a result")
    assert psutil.Process().children() == started


@needs_sandbox
def test_a_program_that_waits_is_killed():
    outcome = call("import time\n" + body("time.sleep(600)"), "f", [[2]], wall=1.0)
    assert outcome == Outcome(problem="took too long")
    assert sandbox.WALL_SECONDS < 10


@needs_sandbox
def test_no_file_of_this_machine_is_there(tmp_path, monkeypatch):
    """Nor anything of the environment; nothing can be written where there is something."""
    (tmp_path / "kept").write_text("precious")
    monkeypatch.setenv("SECRET", "x")
    code = "import os, sys\n" + body(
        "seen = [place for place in x if os.path.lexists(place)]",
        "open_to = []",
        "for folder in ['.', '/', '/usr', '/usr/lib', os.path.dirname(os.__file__), *sys.path]:",
        "    for make in (os.mkdir, os.open):",
        "        try: make(folder + '/new', 0o102)",
        "        except OSError: pass",
        "        else: open_to.append(folder)",
        "return seen, open_to, os.getpid(), sorted(os.environ), 'torch' in sys.modules")
    places = [str(tmp_path / "kept"), str(ROOT), "/etc", "/tmp", "/proc", "/dev", "/sys", "/run"]
    (seen, open_to, process, names, loaded), = call(code, "f", [[places]]).values
    assert seen == open_to == [] and process == 1 and set(names) <= {"LC_CTYPE"} and not loaded
    assert (tmp_path / "kept").read_text() == "precious"


LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
FAMILIES = {"unix": 1, "inet": 2, "netlink": 16}
RAW = {"unshare": 272, "memfd_create": 319, "bpf": 321, "io_uring_setup": 425, "ptrace": 101}
"""Numbers on x86-64."""
ATTEMPTS = {
    "fork": body("import os", "while True: os.fork()"),
    "program": body("import os", "os.execv('/bin/true', ['true'])"),
    "shell": body("import os", "assert os.system('true') == 0, 'Operation not permitted'"),
    "child": body("import os", "os.posix_spawn('/bin/true', ['true'], {})"),
    "other process": body("import os", "os.kill(-1, 9)"),
    "hold of a process": body("import os", "os.pidfd_open(1)"),
    "session": body("import os", "os.setsid()"),
    "pipe by a fresh posix": body("import sys", "del sys.modules['posix']", "import posix",
                                  "posix.mkfifo('pipe')"),
    "device": body("import os", "os.mknod('device', 0o20600, 0x103)"),
    "sub-interpreter": body(
        "try: import _interpreters as inner",
        "except ImportError: import _xxsubinterpreters as inner",
        "failed = inner.run_string(inner.create(), 'import _socket; _socket.socket(1, 1)')",
        "assert not failed, failed"),
    **{f"socket: {name}": body("import socket", f"socket.socket({number}, 3 if x else 1, 0)")
       for name, number in FAMILIES.items()},
    **{f"{name} past Python": LIBC + body(
        "import os", f"found = libc.syscall({number}, 0, 0, 0, 0, 0)",
        "assert found >= 0, os.strerror(ctypes.get_errno())")
       for name, number in RAW.items() if platform.machine() == "x86_64"},
}


@needs_sandbox
@pytest.mark.parametrize("code", ATTEMPTS.values(), ids=ATTEMPTS)
def test_the_kernel_refuses(code):
    """Nothing in Python stands in the way of these."""
    outcome = call(code, "f", [[2]])
    assert outcome.values == () and "Operation not permitted" in outcome.problem, outcome


@needs_sandbox
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other system calls")
def test_system_calls_of_the_other_kind_end_the_program():
    """x32's, which have numbers of their own."""
    code = LIBC + body("return libc.syscall(0x40000000 + 41, 1, 1, 0)")
    assert call(code, "f", [[2]]).values in ((), (-1,))


@needs_sandbox
def test_there_is_no_network_for_sockets_either(changed):
    """A server on this machine answers this process, and none inside."""
    changed("getrandom", "getrandom socket connect")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.socket().connect({server.getsockname()!r})"
        exec(code)
        assert "Network is unreachable" in call(body(code), "f", [[2]]).problem


@needs_sandbox
def test_children_would_die_with_the_program(changed):
    path = changed("getrandom", "getrandom clone clone3")
    code = "import os, time\n" + body("os.fork() or os.fork()", "time.sleep(600)")
    assert call(code, "f", [[1]], wall=1.0).problem == "took too long"
    until(lambda: not [p for p in psutil.process_iter(["cmdline", "status"])
                       if path in (p.info["cmdline"] or ())
                       and p.info["status"] != psutil.STATUS_ZOMBIE])
