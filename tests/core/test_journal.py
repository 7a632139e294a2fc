"""A journal gives back what was written to it, also after a kill in the middle of a line."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from rmutils.core import journal as module
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, one_thread, side_by_side, worker_part
from tests.clock import PATIENCE, forked, until


@pytest.fixture(autouse=True)
def in_this_process():
    """Not here."""


def test_a_pipe_is_no_journal(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is a pipe"):
        Journal(tmp_path / "pipe")


def test_goes_on_after_a_cut_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    first["a"], first["b"] = {"text": "two\nlines, ümlaut"}, [1.5, None]
    path.write_text(path.read_text(encoding="utf-8") + '["c", {"tex', encoding="utf-8")
    again = Journal(path)
    assert dict(again) == {"a": {"text": "two\nlines, ümlaut"}, "b": [1.5, None]}
    again["c"] = 3
    assert dict(Journal(path)) == dict(again) and len(Journal(path)) == 3
    assert path.read_text(encoding="utf-8").count("\n") == 3


def test_what_is_whole_is_never_written_anew(tmp_path, full_disk):
    """Files may not grow here, as on a full disk: what was kept is still there."""
    path = tmp_path / "journal.jsonl"
    Journal(path)["a"] = 1
    with path.open("a", encoding="utf-8") as file:
        file.write('["b", ')
    with full_disk(0):
        assert dict(Journal(path)) == {"a": 1}
    assert path.read_text(encoding="utf-8").startswith('["a", 1]\t')
    assert path.read_text(encoding="utf-8").count("\n") == 1


@pytest.mark.fault("flipped byte", "a journal, at every place")
def test_a_damaged_line_is_done_again(tmp_path):
    """Each bit of a byte in turn: what is still there is what was written."""
    path, written = tmp_path / "journal.jsonl", {"a": 0.286, "b": {"text": "ü"}, "c": [1, 2]}
    Journal(path).update(written)
    good = path.read_bytes()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << place % 8
        path.write_bytes(bad)
        found = dict(Journal(path))
        assert found.items() <= written.items() and len(found) >= 1, bytes(bad)


def test_lines_of_version_1_0_have_no_checksum(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('["a", 1]\n["b", 2]\tffffffff\n3\n[4]\n[[5], 6]\n')
    Journal(path)["c"] = 3
    assert dict(Journal(path)) == {"a": 1, "c": 3}


def test_only_what_is_of_the_same_is_taken(tmp_path):
    """Results of other things may stand in the same file, workers' too; and each finds its own."""
    path, one, other = tmp_path / "journal.jsonl", {"model": "a"}, {"model": "b"}
    Journal(path, one)["answer"] = 1.0
    assert dict(Journal(path, other)) == {}
    Journal(path, other)["answer"] = 0.0
    Journal(worker_part(path, 0), other)["more"] = 5
    Journal(worker_part(path, 1), one)["less"] = 6
    assert dict(Journal(path, one)) == {"answer": 1.0, "less": 6}
    assert [*tmp_path.iterdir()] == [path]
    path.write_text('["answer", 2.0]\n["less", 3]\t7a9dd1b2\n')  # of nobody knows what
    assert dict(Journal(path, one)) == {}


def test_what_it_is_of_cannot_be_changed(tmp_path):
    Journal(path := tmp_path / "journal.jsonl", "a")["answer"] = 1
    other = Journal(None, "b").of
    path.write_text(path.read_text().replace(Journal(None, "a").of, other))
    assert dict(Journal(path, "b")) == dict(Journal(path)) == {}


def test_a_result_that_is_no_json_is_not_kept(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(TypeError):
        journal["a"] = {1, 2}
    assert dict(Journal(tmp_path / "journal.jsonl")) == {}


@pytest.mark.parametrize("begun", [True, False])
def test_takes_in_what_workers_left(tmp_path, begun):
    """Also where they were killed together with the command that would have done it."""
    path = tmp_path / "journal.jsonl"
    if begun:
        Journal(path)["a"] = 1
    Journal(worker_part(path, 0))["b"] = 2
    worker_part(path, 11).write_text('["c", 3]\n["d", ', encoding="utf-8")
    expected = {**({"a": 1} if begun else {}), "b": 2, "c": 3}
    assert dict(Journal(path)) == expected and [*tmp_path.iterdir()] == [path]
    assert dict(Journal(path)) == expected


@pytest.fixture
def heard():
    """Ctrl-C is heard, as in a terminal; a background job of a shell ignores it from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_shares_are_done_side_by_side(tmp_path, monkeypatch, heard):
    """By threads in the place of processes. Each knows what is done; the bar tells of the rest, and
    of what the first has done before the second begins."""
    path, told, before = tmp_path / "journal.jsonl", [], signal.getsignal(signal.SIGINT)
    files = set()
    Journal(path)["0"] = "known"

    @contextmanager
    def bar(doing, total, *, unit, done):
        told.append((doing, total, unit, done))
        yield told.append

    def wait_for(count):
        until(lambda: sum(told[1:]) >= count)

    def work(own, share, done):
        wait_for(2 * share.start)
        assert torch.get_num_threads() == 1
        files.add((share.start, own.path))
        for name in map(str, range(5)[share]):
            if name not in own:
                own[name] = share.start
        done(1)
        wait_for(4)
        return share

    class Pool(ThreadPoolExecutor):
        def __init__(self, count, context, prepare, given):
            assert context.get_start_method() == "spawn" and prepare is module._begin
            assert given == (module.outside_modules(),) and count == 2
            super().__init__(count)

        def submit(self, *job):
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            return super().submit(*job)

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(module, "progress_bar", bar)
    with one_thread():
        shares = side_by_side(work, path, 2, "counting", 5, of=None, unit="numbers")
    assert shares == [slice(0, None, 2), slice(1, None, 2)]
    assert files == {(k, worker_part(path, k)) for k in range(2)}
    assert told[0] == ("counting", 5, "numbers", 1) and sum(told[1:]) == 4
    assert [*tmp_path.iterdir()] == [path] and signal.getsignal(signal.SIGINT) == before
    assert dict(Journal(path)) == {"0": "known", "1": 1, "2": 0, "3": 1, "4": 0}


def test_workers_take_the_gpus_in_turn(tmp_path, monkeypatch):
    """Six workers of three GPUs; each knows what the others have done before."""
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)

    def work(own, share, done):
        return dict(own), share.start

    with one_thread():
        found = [module._share(work, {"a": 1}, tmp_path / str(k), None, slice(k, None, 6))
                 for k in range(6)]
    assert taken == [0, 1, 2, 0, 1, 2] and found == [({"a": 1}, k) for k in range(6)]


def test_torch_has_its_threads_back():
    torch.set_num_threads(before := torch.get_num_threads() + 1)
    with pytest.raises(ZeroDivisionError), one_thread():
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
    torch.set_num_threads(before - 1)


SLEEPERS = """
import signal, sys, time
from pathlib import Path
from rmutils.core import journal
from rmutils.core.journal import side_by_side

journal.QUIET_SECONDS = 600  # on a slow machine it would tell of the progress

def work(journal, share, done):
    journal[str(share.start)] = 1
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has none
    try:
        side_by_side(work, Path(sys.argv[1]), 2, "sleeping", 2, of="sleep")
    except KeyboardInterrupt:
        print("stopped")
"""


def test_ctrl_c_ends_all_processes_without_a_word(tmp_path):
    """As from a terminal, which sends it to each of them."""
    script, journal = tmp_path / "sleepers.py", tmp_path / "journal.jsonl"
    script.write_text(SLEEPERS)
    run = subprocess.Popen([sys.executable, script, journal], stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT, start_new_session=True)
    parts = [worker_part(journal, k) for k in range(2)]
    until(lambda: all(part.exists() and part.stat().st_size for part in parts)
          or run.poll() is not None)
    os.killpg(run.pid, signal.SIGINT)
    assert run.communicate(timeout=PATIENCE) == ("stopped\n", None)
    assert dict(Journal(journal)) == {"0": 1, "1": 1}


def sleep(first, own, share, done):
    own[str(share.start)] = 1
    time.sleep(PATIENCE * (first or share.start))


def sleeping(first: int, journal: Path, said: Path) -> None:
    """`side_by_side` in a process whose workers are forked: new ones would import for seconds."""
    fork = multiprocessing.get_context("fork")
    module.QUIET_SECONDS, module.multiprocessing.get_context = PATIENCE, lambda kind: fork
    try:
        side_by_side(partial(sleep, first), journal, 2, "sleeping", 2, of="sleep")
    except UserError as error:
        said.write_text(str(error))


@pytest.fixture
def asleep(tmp_path):
    """Start two workers; return the command, them and their journal, to which both have written."""
    def start(first: int) -> tuple[psutil.Process, list[psutil.Process], Path]:
        journal = tmp_path / "journal.jsonl"
        run = forked(sleeping, first, journal, tmp_path / "said")
        parts = [worker_part(journal, k) for k in range(2)]
        until(lambda: all(part.exists() and part.stat().st_size for part in parts))
        return run, psutil.Process(run.pid).children(), journal

    return start


@pytest.mark.fault("kill -9", "one of several workers")
def test_a_worker_that_is_killed(asleep, tmp_path):
    """It is told, and what it has written is kept."""
    run, (worker, _), journal = asleep(1)
    worker.kill()
    run.join(PATIENCE)
    said = (tmp_path / "said").read_text()
    assert "sleeping: a worker was stopped" in said and "--workers 1" in said
    assert dict(Journal(journal)) == {"0": 1, "1": 1}


@pytest.mark.fault("kill -9", "workers, one of them without work")
def test_workers_end_with_the_command(asleep):
    """One is busy; the first has nothing more to do, and waits for another share."""
    run, workers, journal = asleep(0)
    run.kill()
    run.join(PATIENCE)
    assert len(workers) == 2
    until(lambda: all(_ended(worker) for worker in workers))
    assert dict(Journal(journal)) == {"0": 1, "1": 1}


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # nobody has asked for its status yet
    except psutil.NoSuchProcess:
        return True


def test_what_is_whole_is_only_read(tmp_path, monkeypatch):
    """Another process may be writing to it."""
    Journal(path := tmp_path / "journal.jsonl")["a"] = 1
    monkeypatch.setattr(os, "truncate", lambda *what: pytest.fail("cut"))
    assert dict(Journal(path)) == {"a": 1}


def test_what_others_keep_beside_it_stays(tmp_path):
    """As the detections of variants, of which each has a file of its own."""
    path, other = tmp_path / "journal.jsonl", tmp_path / "journal.jsonl.0"
    other.write_text('{"case": 1}\n', encoding="utf-8")
    assert dict(Journal(path)) == {}
    assert other.read_text(encoding="utf-8") == '{"case": 1}\n'


def test_what_a_journal_is_of_may_hold_a_tab(tmp_path):
    with_tab = Journal(tmp_path / "journal.jsonl", "a\tb")
    with_tab["one"] = 1
    assert dict(Journal(tmp_path / "journal.jsonl", "a\tb")) == {"one": 1}
    assert not Journal(tmp_path / "journal.jsonl", "a")
