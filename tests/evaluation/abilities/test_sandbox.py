"""Real bad programs: none gets out, none holds up the run, none passes by a trick."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rmutils.core.errors import UserError
from rmutils.evaluation.abilities import inside, sandbox
from rmutils.evaluation.abilities.sandbox import Outcome, call, isolation

TWICE = "def f(x):\n    return 2 * x"


def body(*lines: str) -> str:
    """A function `f` of these lines."""
    return "\n".join(["def f(x):", *(f"    {line}" for line in lines)])


@pytest.fixture(params=["isolated", "limits only"])
def walls(request, monkeypatch):
    """With namespaces, where the system has them, and with limits alone, which must hold, too."""
    if request.param == "isolated" and not isolation():
        pytest.skip("this system allows no namespaces")
    if request.param == "limits only":
        monkeypatch.setattr(sandbox, "isolation", lambda: ("/usr/bin/env", "-i"))


def test_without_isolation_nothing_is_called(monkeypatch):
    """As on Windows and in most containers, where `unshare` is missing or fails."""
    monkeypatch.setattr(sandbox, "isolation", lambda: ())
    with pytest.raises(UserError, match="only in namespaces of their own .*On Windows use WSL"):
        call(TWICE, "f", [[2]])


def test_isolation_is_tried_out(tmp_path, monkeypatch):
    """An `unshare` that is not there, that is refused, and one that isolates nothing."""
    for script in (None, "exit 1", 'while [ "$1" != sh ]; do shift; done\nshift 4\nexec "$@"'):
        if script:
            (tmp_path / "unshare").write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "unshare").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        isolation.cache_clear()
        assert isolation() == ()
    isolation.cache_clear()


def test_results_come_back(walls):
    assert call(TWICE, "f", [[2], [-1], ["ab"], [[1]]]) == Outcome((4, -2, "abab", [1, 1]))
    code = "import math\n\ndef g(a, b):\n    return {'root': math.isqrt(a), 'both': (a, b, None)}"
    assert call(code, "g", [[9, True]]).values == ({"root": 3, "both": (9, True, None)},)


@pytest.mark.parametrize("code, problem", [
    (body("return [0] * 10**9"), "MemoryError"),
    (body("kept = []", "while True: kept.append(bytes(10**7))"), "MemoryError"),
    ("import sys\nsys.exit(0)", "SystemExit: 0"),
    (body("raise SystemExit"), "SystemExit"),
    ("import os\nos._exit(0)", "ended without a result"),
    (body("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)"), "os.kill is not allowed"),
    (body("import ctypes", "ctypes.string_at(0)"), "ctypes.* is not allowed"),
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
    (body("import os", "os.mkfifo('pipe')"), "AttributeError"),
    (body("import os", "os.mknod('pipe')"), "AttributeError"),
    (body("import posix", "posix.mknod('device', 0o20600, 0x103)"), "AttributeError"),
    (body("import os", "os.pidfd_open(os.getppid())"), "AttributeError"),
    (body("import os", "os.setsid()"), "AttributeError"),
    (body("import sqlite3", "sqlite3.connect('new')"), "import is not allowed"),
    (body("import _xxsubinterpreters"), "import is not allowed|ModuleNotFound"),
])
def test_bad_programs_do_not_pass(walls, code, problem):
    outcome = call(code, "f", [[2]])
    assert outcome.values != (4,)
    if problem:
        assert outcome.values == () and re.search(problem, outcome.problem)


@pytest.mark.parametrize("code", [
    body("while True: pass"),
    body("while True:", "    try:", "        while True: pass", "    except BaseException: pass"),
    body("while True: print('flood' * 10**4)"),
])
@pytest.mark.parametrize("walls", ["limits only"], indirect=True)
def test_endless_programs_lose_their_processor_time(walls, code):
    started = psutil.Process().children()
    outcome = call(code, "f", [[2]])
    assert outcome.values == ()
    assert outcome.problem in ("TimeoutError: more than 2 s", "ended without a result")
    assert psutil.Process().children() == started


def test_a_program_that_waits_is_killed(walls):
    started = time.monotonic()
    outcome = call("import time\n" + body("time.sleep(60)"), "f", [[2]], wall=1.0)
    assert outcome == Outcome(problem="took too long")
    assert time.monotonic() - started < 20


def test_nothing_is_written_or_removed(walls, tmp_path):
    kept = tmp_path / "kept.txt"
    kept.write_text("precious")
    for line in (f"open({str(kept)!r}, 'w').write('x')", f"import os; os.remove({str(kept)!r})",
                 f"import pathlib; pathlib.Path({str(tmp_path)!r}, 'new').mkdir()",
                 f"import os; os.rename({str(kept)!r}, {str(kept)!r} + '2')",
                 f"import os; os.open({str(kept)!r}, os.O_TRUNC)",
                 "import tempfile; tempfile.NamedTemporaryFile().write(b'x')"):
        assert "not allowed" in call(body(line), "f", [[2]]).problem or \
            "No usable temporary directory" in call(body(line), "f", [[2]]).problem, line
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("kept.txt", "precious")]


def test_the_environment_is_empty_and_the_folder_is_its_own(walls, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    line = "return [sorted(os.environ), os.listdir(), sys.path[:1], 'torch' in sys.modules]"
    (names, files, path, loaded), = call("import os, sys\n" + body(line), "f", [[0]]).values
    assert set(names) <= {"LC_CTYPE"} and files == [] and not loaded
    assert not path or not Path(path[0]).is_relative_to(Path(__file__).parents[3])


def test_processes_are_refused(walls):
    """A fork bomb does not get to its second process."""
    for line in ("while True: os.fork()", "os.system('true')", "subprocess.run(['true'])",
                 "os.posix_spawn('/bin/true', ['true'], {})", "os.execv('/bin/true', ['true'])"):
        outcome = call("import os, subprocess\n" + body(line), "f", [[0]])
        assert "is not allowed here" in outcome.problem, line


def limited(code: str, **changes) -> subprocess.CompletedProcess:
    """Code under the kernel's limits alone, without the list of refused events."""
    start = f"import runpy; runpy.run_path({inside.__file__!r})['limit']()\n"
    return subprocess.run([changes.pop("python", sys.executable), "-I", "-S", "-B", "-c",
                           start + code], capture_output=True, text=True, timeout=60, **changes)


def test_the_kernel_limits_files(tmp_path):
    done = limited("with open('x', 'w') as file: file.write('a' * 10)", cwd=tmp_path)
    assert "File too large" in done.stderr and (tmp_path / "x").stat().st_size == 0


def test_the_kernel_limits_processes(tmp_path):
    """For root, whom this limit does not bind, as nobody; eight forks at most."""
    code = ("import os, time\nmade = 0\nfor _ in range(8):\n    try:\n        child = os.fork()\n"
            "    except OSError:\n        break\n    if not child:\n        os._exit(0)\n"
            "    made += 1\nprint(made)")
    python = Path("/usr/bin/python3")
    if os.geteuid():
        done = limited(code)
    elif python.exists():
        copied = tmp_path / "inside.py"  # where nobody can read it
        copied.write_text(Path(inside.__file__).read_text())
        for folder in (tmp_path, *tmp_path.parents):
            if folder.owner() != "root" or folder.stat().st_mode & 0o5 != 5:
                folder.chmod(0o755)
        code = f"import runpy; runpy.run_path({str(copied)!r})['limit']()\n{code}"
        done = subprocess.run([python, "-I", "-S", "-B", "-c", code], capture_output=True,
                              text=True, timeout=60, user=65534, group=65534, extra_groups=[],
                              cwd="/")
    else:
        pytest.skip("root has no Python here that nobody may run")
    assert done.stdout == "0\n", done.stderr


@pytest.mark.skipif(not isolation(), reason="this system allows no namespaces")
def test_namespaces_hold_without_python_s_help(tmp_path):
    """No place takes a file or a device, no other process can be held, `/proc` knows one, and no
    right to mount is left."""
    code = (f"import os\nfor place in ({str(tmp_path)!r}, '/tmp', '/dev/shm', '/root', '.'):\n"
            "    try: os.mkfifo(place + '/pipe')\n    except OSError: pass\n"
            "    else: print('made in', place)\n"
            "for place in ('/dev/null2', '/tmp/null', 'null'):\n"
            "    try: os.mknod(place, 0o20666, os.makedev(1, 3))\n    except OSError: pass\n"
            "    else: print('made', place)\n"
            f"try: os.pidfd_open({os.getpid()})\nexcept OSError: pass\n"
            "else: print('made in hold of another process')\n"
            "print([n for n in os.listdir('/proc') if n.isdigit()], dict(os.environ).keys(),\n"
            "      [l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')])")
    done = subprocess.run([*isolation(), sys.executable, "-I", "-S", "-c", code], cwd=tmp_path,
                          capture_output=True, text=True, env={"PATH": os.defpath, "SECRET": "x"})
    assert "made" not in done.stdout and "['1']" in done.stdout, done
    assert "['0000000000000000']" in done.stdout and "SECRET" not in done.stdout
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(not isolation(), reason="this system allows no namespaces")
def test_there_is_no_network():
    """A server on this machine answers this process, and not one in isolation."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket; socket.create_connection({server.getsockname()!r}, 5)"
        words = [sys.executable, "-I", "-S", "-c", connect]
        assert subprocess.run(words, capture_output=True).returncode == 0
        assert b"unreachable" in subprocess.run([*isolation(), *words], capture_output=True).stderr


def test_children_die_with_the_program(walls, monkeypatch, tmp_path):
    """One that has children, contrary to what is allowed, loses them."""
    script = tmp_path / "mother.py"
    script.write_text("import os, time\nos.fork() or os.fork()\ntime.sleep(600)")
    monkeypatch.setattr(sandbox, "inside", SimpleNamespace(__file__=str(script)))
    assert call(TWICE, "f", [[1]], wall=2.0).problem == "took too long"
    for _ in range(50):  # the kernel may take a moment
        left = [p for p in psutil.process_iter(["cmdline", "status"])
                if str(script) in (p.info["cmdline"] or ())
                and p.info["status"] != psutil.STATUS_ZOMBIE]
        if not left:
            return
        time.sleep(0.1)
    for process in left:
        process.send_signal(signal.SIGKILL)
    pytest.fail("children are left")
