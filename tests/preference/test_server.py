"""Whatever a server does, the responses are the model's own, or the user is told what is wrong.

The server here is a real one over HTTP, with our own generator behind it. It can be told to fail in
ways that a good server cannot be made to.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.dummy import DummyProcess

import pandas as pd
import pytest

from rmutils.core.errors import UserError
from rmutils.heads import export_masked, mask_heads
from rmutils.heads.masking import RECORD
from rmutils.models import load_model, loading
from rmutils.models.engine.generation import generate
from rmutils.preference import served
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from rmutils.preference.served import Server
from tests.clock import PATIENCE, until

ASKED = [Instruction.of(f"Name {n} animals that live near the river.") for n in range(7)]
HEADS = ((0, 1), (2, 3))
CONFIG = ResponseConfig(max_new_tokens=6, top_p=0.9)

Fault = Callable[[BaseHTTPRequestHandler], None]


class Fake(ThreadingHTTPServer):
    """Serves a model; `faults` are what it does instead, one for each of the next requests."""

    request_queue_size = 64

    def __init__(self, lm, checkpoint: str, heads=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lm, self.checkpoint, self.heads = lm, checkpoint, heads
        self.faults: list[Fault] = []
        self.asked = self.now = self.most = 0
        self.meet = 0
        """So many requests wait until they are there at once."""
        self.one, self.released = threading.Lock(), threading.Event()
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def complete(self, payload: dict) -> dict:
        assert payload["model"] == self.checkpoint
        with self.one, mask_heads(self.lm, self.heads):
            tokens, = generate(
                self.lm, [payload["prompt"]], max_new_tokens=payload["max_tokens"],
                temperature=payload["temperature"], top_p=payload["top_p"],
                seeds=[payload["seed"]], stop_ids=payload["stop_token_ids"])
        stopped = len(tokens) < payload["max_tokens"]
        text = self.lm.tokenizer.decode(tokens, skip_special_tokens=True)
        return {"choices": [{"text": text, "finish_reason": "stop" if stopped else "length"}],
                "usage": {"completion_tokens": len(tokens) + stopped}}


class Handler(BaseHTTPRequestHandler):
    server: Fake

    def log_message(self, *args) -> None:
        pass

    def send(self, body: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        assert self.path == "/v1/models"
        self.send(json.dumps({"data": [{"id": self.server.checkpoint, "owned_by": "fake"}]}))

    def do_POST(self) -> None:
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake = self.server
        with fake.one:
            fake.asked, fake.now = fake.asked + 1, fake.now + 1
            fake.most = max(fake.most, fake.now)
            fault = fake.faults.pop(0) if fake.faults else None
        until(lambda: fake.most >= fake.meet)
        answer = None if fault else json.dumps(fake.complete(payload))
        with fake.one:
            fake.now -= 1
        if fault:
            fault(self)
        else:
            self.send(answer)


def hang(handler: Handler) -> None:
    handler.server.released.wait(PATIENCE)


FAULTS: dict[str, Fault] = {
    "an error of its own": lambda h: h.send("out of memory", 500),
    "too many requests": lambda h: h.send("busy", 429),
    "the connection ends at once": lambda h: h.connection.close(),
    "the connection ends in the answer": lambda h: h.wfile.write(
        b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{"),
    "no JSON": lambda h: h.send("<html>busy</html>"),
    "other JSON": lambda h: h.send('{"error": {"message": "busy"}}'),
    "JSON that is deep": lambda h: h.send("[" * 100_000),
    **{f"{tokens} tokens": lambda h, tokens=tokens: h.send(
        '{"choices": [{"text": "a", "finish_reason": "stop"}], '
        f'"usage": {{"completion_tokens": {tokens}}}}}')
       for tokens in ("-1", "0", "2.5", "NaN", "true", "7", "9" * 999)},
    "half a character": lambda h: h.send(
        '{"choices": [{"text": "\\ud800", "finish_reason": "length"}], '
        '"usage": {"completion_tokens": 1}}'),
}


@pytest.fixture
def folder(llama, tmp_path):
    return str(export_masked(llama, HEADS, tmp_path / "masked"))


@pytest.fixture
def fake(llama, folder, monkeypatch):
    """A server of the masked model."""
    monkeypatch.setattr("rmutils.core.server.PAUSE", 0.01)
    fake = Fake(llama, folder, HEADS)
    yield fake
    fake.released.set()
    fake.shutdown()
    fake.server_close()


@pytest.fixture
def masked():
    return CONFIG.model_copy(update={"heads": HEADS})


def test_answers_of_each_server_are_those_of_its_model(llama, fake, folder, masked, tmp_path,
                                                       monkeypatch):
    """Prompt, seed, temperature, top_p, length and stop tokens all arrive, past any proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (tmp_path / "copy").mkdir()  # only the record is here, the weights are where they are served
    (tmp_path / "copy" / RECORD).write_text((tmp_path / "masked" / RECORD).read_text())
    fake.checkpoint = "/elsewhere/copy"
    whole = Fake(llama, str(export_masked(llama, [], tmp_path / "whole")))
    backend = Server(llama, {f"{whole.address}/v1": tmp_path / "whole",
                             fake.address: tmp_path / "copy"})
    assert backend.identity == f"{llama.identity}, served by fake"
    for config in (CONFIG, masked):
        expected = respond(Transformers(llama), ASKED, config)
        pd.testing.assert_frame_equal(respond(backend, ASKED, config), expected)
    whole.shutdown()


def test_weights_are_not_needed(llama, fake, folder, masked, tmp_path, monkeypatch):
    llama.model.save_pretrained(tmp_path / "model")
    llama.tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(loading, "_checked_device", str)  # refuses a device without data
    light = load_model(str(tmp_path / "model"), device="meta", dtype=llama.model.dtype)
    record = json.loads((tmp_path / "masked" / RECORD).read_text())
    (tmp_path / "masked" / RECORD).write_text(json.dumps(record | {"identity": light.identity}))
    pd.testing.assert_frame_equal(respond(Server(light, {fake.address: folder}), ASKED, masked),
                                  respond(Transformers(llama), ASKED, masked))


@pytest.mark.fault("server", "answers with errors or garbage, or drops the connection, for a while")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_passing_faults_do_not_show(llama, fake, folder, masked, fault):
    """Three in all, whichever requests meet them."""
    backend = Server(llama, {fake.address: folder})
    expected = respond(Transformers(llama), ASKED, masked)
    for asked in (ASKED[:1], ASKED):
        before, fake.faults = fake.asked, [fault] * 3
        pd.testing.assert_frame_equal(respond(backend, asked, masked), expected[: len(asked)])
        assert fake.asked - before == 3 + len(asked)


@pytest.mark.fault("server", "hangs once")
def test_an_answer_that_never_comes(llama, fake, folder, masked):
    backend = Server(llama, {fake.address: folder}, timeout=PATIENCE)
    client = backend._served[frozenset(HEADS), "zero"].client
    client.timeout = 1

    def hang_once(handler):
        client.timeout = PATIENCE  # of what is asked from now on
        hang(handler)

    fake.faults = [hang_once]
    pd.testing.assert_frame_equal(respond(backend, ASKED[:1], masked),
                                  respond(Transformers(llama), ASKED[:1], masked))
    assert fake.asked == 2


@pytest.mark.fault("server", "hangs, or answers with errors or garbage, for good")
@pytest.mark.parametrize(("fault", "said"), [
    (FAULTS["an error of its own"], "500 Internal Server Error: out of memory"),
    (FAULTS["half a character"], "its answer is not what was expected"),
    (FAULTS["NaN tokens"], "its answer is not what was expected"),
    (FAULTS["no JSON"], "its answer is not what was expected"), (hang, "timed out")])
def test_lasting_faults_are_told(llama, fake, folder, masked, fault, said):
    backend = Server(llama, {fake.address: folder})
    backend._served[frozenset(HEADS), "zero"].client.timeout = 0.5 if fault is hang else PATIENCE
    fake.faults = [fault] * 9
    with pytest.raises(UserError) as error:
        respond(backend, ASKED[:1], masked)
    for part in (f"{fake.address}/v1/completions failed 4 times", said,
                 f"vllm serve {folder} --dtype float32 --host 127.0.0.1 "
                 f"--port {fake.server_port}"):
        assert part in str(error.value)
    assert fake.asked == 4


@pytest.mark.fault("server", "is not there")
def test_no_server_there(llama, fake, folder):
    fake.shutdown()
    fake.server_close()
    with pytest.raises(UserError, match=rf"{fake.address}/v1/models failed 4 times: .* failed.*"
                                        rf"`vllm serve {folder}"):
        Server(llama, {fake.address: folder})


@pytest.mark.fault("server", "still owes answers when the run is stopped")
def test_stopped_run_ends_at_once_and_goes_on(llama, fake, folder, masked, tmp_path, monkeypatch):
    """Though the server still owes answers, and without asking again for what has come."""
    monkeypatch.setattr(served, "CONCURRENCY", 2)
    backend, journal = Server(llama, {fake.address: folder}), tmp_path / "journal"
    fake.faults = [hang]
    give_out = backend.respond

    def stop_after_three(instructions, config, done):
        def count(response):
            done(response)
            if len(journal.read_text().splitlines()) == 3:
                raise KeyboardInterrupt

        give_out(instructions, config, count)

    monkeypatch.setattr(backend, "respond", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        respond(backend, ASKED, masked, journal)
    assert not fake.released.is_set()
    fake.released.set()
    until(lambda: not any(isinstance(one, DummyProcess) for one in threading.enumerate()))
    before, backend.respond = fake.asked, give_out
    table = respond(backend, ASKED, masked, journal)
    assert fake.asked - before == 4
    pd.testing.assert_frame_equal(table, respond(Transformers(llama), ASKED, masked))


def test_requests_go_together(llama, fake, folder, masked):
    backend, fake.meet = Server(llama, {fake.address: folder}), 5
    many = [Instruction.of(f"Sing {n} songs.") for n in range(80)]
    table = respond(backend, many, masked.model_copy(update={"max_new_tokens": 1}))
    assert table["id"].tolist() == [i.id for i in many]
    assert 4 < fake.most <= served.CONCURRENCY


def test_only_heads_that_the_server_has_masked(llama, fake, folder, masked):
    backend = Server(llama, {fake.address: folder})
    for heads in ((), HEADS[:1], (*HEADS, (3, 0))):
        with pytest.raises(UserError, match=rf"no server answers .* these {len(heads)} heads "
                                            rf"masked \(masked at {fake.address}: 2\)"):
            respond(backend, ASKED, masked.model_copy(update={"heads": heads}))
    assert fake.asked == 0


def test_another_model(llama, fake, folder, tmp_path):
    other = str(export_masked(llama, [], tmp_path / "other"))
    with pytest.raises(UserError, match=f"serves masked, not {other}.*`vllm serve {other}"):
        Server(llama, {fake.address: other})
    record = json.loads((tmp_path / "masked" / RECORD).read_text())
    (tmp_path / "masked" / RECORD).write_text(json.dumps(record | {"identity": "another"}))
    with pytest.raises(UserError, match=f"{folder} is a checkpoint of another, not of"):
        Server(llama, {fake.address: folder})
    with pytest.raises(UserError, match="'localhost:8000' is not the address"):
        Server(llama, {"localhost:8000": other})
