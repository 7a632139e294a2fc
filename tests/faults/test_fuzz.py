"""Files of others: whatever is in them, a reader gives a result or a clear error, and comes back.

`RMUTILS_FUZZ=100000 pytest tests/faults/test_fuzz.py` is the long mode: so many files per reader,
of which the later half are made from those that came to most lines of this project. Where a reader
is slow, each of these is followed by many that are made from it by a cheaper kind of damage.
"""

import json
import os
import resource
import shutil
import signal
import socketserver
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal
from httpcore2 import AsyncMockBackend
from httpcore2._async import connection_pool
from hypothesis import HealthCheck, Phase, example, given, settings, target
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rmutils.attention.sharing_plans import load_sharing
from rmutils.book.site.parameters import check_parameters
from rmutils.core import paths
from rmutils.core import server as core_server
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal
from rmutils.core.results import Artifact, stored
from rmutils.core.server import Client, ServerError
from rmutils.corpora.niah import load_needles
from rmutils.evaluation.abilities.harness import read_results
from rmutils.evaluation.abilities.mt_bench import read_questions
from rmutils.evaluation.helmet.metrics import read_grades
from rmutils.evaluation.helmet.official_results import collect
from rmutils.heads.scores import HeadScores
from rmutils.models import load_model
from rmutils.models.known_models import check
from rmutils.paper.tables import PAPER, SCORE_BINS, read_records
from rmutils.preference.instructions import Instruction, draw
from rmutils.preference.judges import ServerJudge, rating
from rmutils.preference.served import _response
from tests.evaluation.abilities.test_harness import KNOWN
from tests.evaluation.helmet import helmet_files
from tests.faults.damage import SCALARS, VALUES, damaged, damaged_further

FILES = int(os.environ.get("RMUTILS_FUZZ", "30"))
PACKAGE = str(paths.ROOT / "rmutils")
SECONDS, MEMORY = 10, 500_000
"""A reader that takes longer hangs; and one that takes more KiB takes too much."""
_MISSING = object()
LONG = FILES >= 1000
BATCH = 200 if LONG else 3
"""Files that one of Hypothesis stands for in the tests of slow readers. It alone is traced."""
fuzz = settings(max_examples=FILES, deadline=None, derandomize=not LONG, database=None,
                phases=[Phase.explicit, Phase.generate, *[Phase.target] * LONG],
                suppress_health_check=[*HealthCheck])
batches = settings(fuzz, max_examples=max(20, -(-FILES // BATCH)))
SEEDS = st.integers(0, 2**32)


def text(file: Path, content: str) -> Path:
    file.write_text(content, encoding="utf-8")
    return file


def scores(folder: Path) -> tuple[list[Path], Callable]:
    made = HeadScores(np.arange(8.0).reshape(2, 2, 2) / 8, "made")
    made.to_wu_json(folder / "scores.json")
    return [folder / "scores.json"], HeadScores.from_wu_json


def instructions(folder: Path) -> tuple[list[Path], Callable]:
    file = text(folder / "own.jsonl", '{"instruction": "Say it."}\n{"messages": [{"role": "user", '
                '"content": "Why?"}, {"role": "assistant", "content": "So."}]}\n')
    return [file], lambda path: draw(str(path), 1)


def needles(folder: Path) -> tuple[list[Path], Callable]:
    file = folder / "needles.jsonl"
    file.write_bytes(b"".join(paths.NEEDLES.read_bytes().splitlines(keepends=True)[:2]))
    return [file], load_needles


def tables(folder: Path) -> tuple[list[Path], Callable]:
    file = folder / SCORE_BINS.file
    file.write_bytes(b"".join((PAPER / file.name).read_bytes().splitlines(keepends=True)[:6]))
    return [file], lambda path: read_records(SCORE_BINS, path.parent)


def helmet(folder: Path) -> tuple[list[Path], Callable]:
    """One data set of each kind: scored by rules, graded, and one of Cite with its means."""
    whole = helmet_files.written(folder / "all")
    few = folder / "helmet"
    few.mkdir()
    for start in ("icl_trec_coarse", "infbench_sum", "alce_asqa"):
        for file in whole.glob(f"{start}*"):
            shutil.copy(file, few)
    files = sorted(few.iterdir())
    assert len(files) == 5, files
    return files, lambda path: collect(path.parent)


def harness(folder: Path) -> tuple[list[Path], Callable]:
    recorded = Path(__file__).parents[1] / "evaluation/abilities/harness_results"
    shutil.copytree(recorded, folder / "harness")
    files = sorted(p for p in (folder / "harness").rglob("*.json*") if p.is_file())
    return files, lambda path: read_results(folder / "harness", KNOWN)


def questions(folder: Path) -> tuple[list[Path], Callable]:
    file = text(folder / "question.jsonl", '{"question_id": 1, "category": "math", "turns": '
                '["1 + 1?", "And 2?"], "reference": ["2", "4"]}\n' * 2)
    return [file], read_questions


def sharing(folder: Path) -> tuple[list[Path], Callable]:
    file = text(folder / "sharing.json", '{"0": {"essential_heads": [0, 1], "share_to": '
                '{"0": [2]}}, "1": {"essential_heads": [0, 1, 2], "share_to": {}}}')
    return [file], load_sharing


def manifest(folder: Path) -> tuple[list[Path], Callable]:
    """Changed payloads are the business of tests/core/test_results.py."""
    shipped = next(a for a in stored("detect") if a.shipped)
    copy = shutil.copytree(shipped.folder, folder / shipped.name)
    return [copy / "manifest.json"], lambda path: Artifact(path.parent).problems()


def journal(folder: Path) -> tuple[list[Path], Callable]:
    return [text(folder / "journal.jsonl", '["a", 1]\n["b", {"c": [2]}]\n["d"')], Journal


READERS = {
    scores: "scores of heads", instructions: "instructions", needles: "needles",
    tables: "tables of the paper", helmet: "results of HELMET", harness: "results of lm-eval",
    questions: "questions of MT-Bench", sharing: "plans of shared heads", manifest: "a manifest",
    journal: "a journal"}


def peak() -> int:
    """The most memory that this process had so far, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Tries:
    """Counts attempts that ended well, and those that did not: all are made, whatever happens."""

    def __init__(self):
        self.kept, self.losses, self.before = 0, [], peak()

    def __call__(self, attempt: Callable[[], object]) -> None:
        try:
            attempt()
            self.kept += 1
        except Exception as error:
            self.losses.append(error)

    def count(self, tally: Callable, what: str) -> None:
        """Write the counts down for the page on reliability; raises the first loss."""
        lost = len(self.losses)
        tally(what=what, tried=self.kept + lost, kept=self.kept, lost=lost)
        if self.losses:
            raise self.losses[0]
        assert peak() - self.before < MEMORY


@pytest.mark.fault("foreign file", "damaged")
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_damaged_file(reader, tmp_path, tally):
    files, read = reader(tmp_path)
    tries = Tries()
    good = {file: file.read_bytes() for file in files}
    for file in files:
        read(file)  # as it should be, it can be read

    @fuzz
    @given(data=st.data())
    def check(data):
        file = data.draw(st.sampled_from(files))
        file.write_bytes(data.draw(damaged(good[file])))
        tries(lambda: told_or_read(read, file))
        file.write_bytes(good[file])

    check()
    tries.count(tally, READERS[reader])


def told_or_read(read: Callable, *given) -> None:
    """Read, or be told in words of this project what is wrong."""
    with guiding():
        told(read, *given)


def told(read: Callable, *given) -> None:
    """The same, without counting the lines."""
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(*given)
    except UserError as error:
        assert str(error).strip()
    finally:
        signal.alarm(0)


@contextmanager
def guiding():
    """In the long mode tell Hypothesis how many lines of this project are come to."""
    if not LONG:
        yield
        return
    lines = set()

    def enter(frame, event, given):
        return line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def line(frame, event, given):
        lines.add((frame.f_code, frame.f_lineno))
        return line

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
        target(len(lines))


def _hangs(*_):
    raise TimeoutError("the reader hangs")


@pytest.mark.fault("foreign file", "lines of a journal, with their checksums")
def test_damaged_lines_of_a_journal(tmp_path, tally):
    """What is read back is what was written, but for lines of version 1.0, without a checksum."""
    tries, file = Tries(), tmp_path / "journal.jsonl"
    written = {"a": 1.286, "b": {"c": [2, "ü"]}, "d": None}
    Journal(file).update(written)
    good = file.read_bytes()

    def attempt(content):
        file.write_bytes(content)
        found = Journal(file)
        bare = [_name(line) for line in content.decode("utf-8", "replace").split("\n")
                if "\t" not in line]
        for name, result in found.items():
            assert written.get(name, _MISSING) == result or name in bare

    @batches
    @given(damaged(good), SEEDS)
    @example(good.replace(b"1.286", b"0.286"), 0)
    def check(content, seed):
        with guiding():
            tries(lambda: attempt(content))
        for one in damaged_further(content, good, BATCH - 1, seed):
            tries(lambda one=one: attempt(one))

    check()
    tries.count(tally, "lines of a journal, with their checksums")


def _name(line: str) -> object:
    """What a line names, if it is one of version 1.0."""
    try:
        return json.loads(line)[0]
    except (ValueError, LookupError, TypeError, RecursionError):
        return _MISSING


class Says(socketserver.StreamRequestHandler):
    """Sends what its server is told to, whatever it is asked, and ends the connection."""

    def handle(self):
        length = 0
        while line := self.rfile.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.rfile.read(length)
        self.wfile.write(self.server.said)


@contextmanager
def in_memory(monkeypatch):
    """Replies come from the list that this yields, through the client's own reader of HTTP. A
    socket and two threads for each would take ten times as long."""
    replies: list[bytes] = []
    with monkeypatch.context() as patch, start_blocking_portal() as portal:
        patch.setattr(connection_pool, "AutoBackend", lambda: AsyncMockBackend(replies))
        patch.setattr(core_server, "start_blocking_portal", lambda: nullcontext(portal))
        yield replies


@pytest.fixture
def server():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Says) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def completed(client):
    response = client.call("/v1/completions", lambda answer: _response(
        Instruction.of("Say it."), 6, answer), {"prompt": [1]})
    assert 0 <= response.tokens <= 6 and type(response.finished) is bool
    response.text.encode()  # can be written


def judged(client):
    judge = ServerJudge(client.url, "judge")
    judge._client = client
    assert (found := rating(judge.reply("How good is it?", 0))) is None or 1 <= found <= 10


@pytest.mark.fault("server", "sends a damaged reply: status, headers or body")
@pytest.mark.parametrize("ask, body", [
    (completed, '{"choices": [{"text": "So.", "finish_reason": "stop"}], '
                '"usage": {"completion_tokens": 3}}'),
    (judged, '{"choices": [{"message": {"content": "[[7]]"}}]}')], ids=["completed", "judged"])
def test_reply_of_a_server(server, monkeypatch, tally, ask, body):
    """The first of a batch comes through a socket, the others from memory."""
    tries = Tries()
    client = Client(f"http://127.0.0.1:{server.server_address[1]}", timeout=5, tries=1)
    good = f"HTTP/1.1 200 OK\nConnection: close\n\n{body}".encode()

    def attempt():
        try:
            ask(client)
        except ServerError as error:
            raise UserError(str(error)) from error

    server.said = good
    ask(client)

    @settings(batches, max_examples=batches.max_examples // 2)  # of each question
    @given(damaged(good), SEEDS)
    @example(good.replace(b'_tokens": 3', b'_tokens": -1'), 0)
    @example(good.replace(b"So.", rb"\ud800"), 0)
    @example(good.replace(b"[[7]]", b"[[70]]"), 0)
    def check(reply, seed):
        server.said = reply
        tries(lambda: told_or_read(attempt))
        with in_memory(monkeypatch) as replies:
            for one in damaged_further(reply, good, BATCH - 1, seed):
                replies[:] = [one]
                tries(lambda: told(attempt))

    check()
    tries.count(tally, "sends a damaged reply: status, headers or body")


@pytest.mark.fault("foreign file", "settings, tokenizer or chat template of a model's folder")
def test_damaged_folder_of_a_model(llama, tmp_path, monkeypatch, tally):
    """The first of a batch is loaded whole; of the others what the damaged file decides."""
    tries = Tries()
    del llama.model.model.layers[1:]  # to load all takes four times as long
    llama.model.config.num_hidden_layers = 1
    llama.model.save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    model, tokenizer = llama.model, llama.tokenizer
    found = model, {"missing_keys": (), "mismatched_keys": ()}
    template = tmp_path / "chat_template.jinja"

    def generating(*_, **__):
        return GenerationConfig.from_pretrained(tmp_path) and found

    def templated(*_, **__):
        tokenizer.chat_template = template.read_text("utf-8")
        return tokenizer

    stand_ins = {
        tmp_path / "config.json": {AutoTokenizer: lambda *_, **__: tokenizer},
        tmp_path / "generation_config.json": {
            AutoTokenizer: lambda *_, **__: tokenizer, AutoModelForCausalLM: generating},
        tmp_path / "tokenizer_config.json": {AutoModelForCausalLM: lambda *_, **__: found},
        template: {AutoTokenizer: templated, AutoModelForCausalLM: lambda *_, **__: found}}
    good = {file: file.read_bytes() for file in stand_ins}

    def attempt():
        check(load_model(tmp_path, device="cpu"))

    @batches
    @given(data=st.data(), seed=SEEDS)
    def damage(data, seed):
        file = data.draw(st.sampled_from([*good]))
        first = data.draw(damaged(good[file]))
        file.write_bytes(first)
        tries(lambda: told_or_read(attempt))
        with monkeypatch.context() as patch:
            for kind, stand_in in stand_ins[file].items():
                patch.setattr(kind, "from_pretrained", stand_in)
            for one in damaged_further(first, good[file], BATCH - 1, seed):
                file.write_bytes(one)
                tries(lambda: told(attempt))
        file.write_bytes(good[file])
        tokenizer.chat_template = good[template].decode()

    damage()
    tries.count(tally, "settings, tokenizer or chat template of a model's folder")


@pytest.mark.fault("parameter", "anything, also code, brackets and a megabyte")
def test_parameter_of_a_notebook(tally):
    tries = Tries()

    def attempt(name, value):
        told_or_read(check_parameters, paths.NOTEBOOKS / "01_preliminaries.ipynb", {name: value})
        assert not Path("hacked").exists()

    @fuzz
    @given(st.sampled_from(["tau", "lengths", "model", "no_such"]), SCALARS | VALUES | st.text())
    @example("tau", "__import__('os').system('touch hacked')")
    @example("lengths", "[" * 100_000)
    @example("model", "x" * 1_000_000)
    @example("model", "'\"\n{}\\")
    def check(name, value):
        tries(lambda: attempt(name, value))

    check()
    tries.count(tally, "anything, also code, brackets and a megabyte")


@pytest.mark.fault("foreign file", "replies of a judge")
def test_reply_of_a_judge(tally):
    tries = Tries()

    def attempt(reply):
        with guiding():
            grades = read_grades(reply.decode(errors="replace"), "fluency", "correctness")
        assert grades is None or {*grades} == {"fluency", "correctness"}

    @fuzz
    @given(damaged(b'{"fluency": 3, "correctness": 2}'))
    def check(reply):
        tries(lambda: attempt(reply))

    check()
    tries.count(tally, "replies of a judge")
