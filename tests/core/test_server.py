"""What servers send that they should not: too much, too slowly, control characters, secrets."""

import gzip
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core import server
from rmutils.core.errors import UserError
from rmutils.core.server import Client, ServerError, fetch_results

KEY = 'sk-"secret"/1'


@pytest.fixture
def serve(monkeypatch):
    """Start a server that answers by a function of the handler; return its address."""
    monkeypatch.setattr(server, "PAUSE", 0)
    started = []

    def start(answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    ended.set()

            def log_message(self, *words):
                pass

        ended = threading.Event()
        started.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=started[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{started[-1].server_port}"

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


def headed(handler, status=200, **headers) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def endless(handler) -> None:
    headed(handler)
    while True:
        handler.wfile.write(bytes(2**16))


def dripping(handler) -> None:
    headed(handler)
    stopped = threading.Event()
    while not stopped.wait(0.02):
        handler.wfile.write(b"a")


def silent(handler) -> None:
    handler.rfile.read(1)  # until the client has gone


def announced(handler) -> None:
    headed(handler, Content_Length=str(2**40))
    handler.wfile.write(b"a")
    handler.rfile.read(1)


def packed(handler) -> None:
    headed(handler, Content_Encoding="gzip")
    handler.wfile.write(gzip.compress(b"sums"))


def test_a_slow_server_is_given_up_after_a_time(serve, tmp_path, monkeypatch):
    """As fast as it must be at any time, which would take hours for what it announces."""
    monkeypatch.setattr(server, "SLOWEST", 1)
    monkeypatch.setattr(server, "USUAL", 10**6)
    monkeypatch.setattr(server, "MINUTE", 0.0)
    with pytest.raises(ServerError, match="less than 1000 kB in all"):
        Client(serve(dripping), timeout=0.2, tries=1).save("/", tmp_path / "file", 10**5)


@pytest.mark.fault("server", "sends without end, ever more slowly, or nothing")
@pytest.mark.parametrize(("answer", "stalled", "said"), [
    (endless, 60, "longer than 100000 bytes"), (announced, 60, "longer than 100000 bytes"),
    (dripping, 0.2, "less than 10 kB in a second"), (packed, 60, r"compressed \(gzip"),
    (silent, 0.2, "or nothing for 0.2 s")])
def test_no_release_is_endless(serve, cache, monkeypatch, answer, stalled, said):
    monkeypatch.setattr(server, "STALLED", stalled)
    monkeypatch.setattr(server, "LARGEST", 100_000)
    with pytest.raises(UserError, match=f"is no release.*{said}"):
        fetch_results(serve(answer))
    assert not [*(cache / "artifacts/.fetched").iterdir()]


def test_an_answer_as_long_as_allowed_is_taken(serve, tmp_path):
    def answer(handler):
        headed(handler)
        handler.wfile.write(b"ab" * 20)

    client = Client(serve(answer), timeout=60, tries=1)
    client.save("/", tmp_path / "file", 40)
    assert (tmp_path / "file").read_bytes() == b"ab" * 20
    with pytest.raises(ServerError, match="longer than 39 bytes"):
        client.save("/", tmp_path / "file", 39)


def test_nothing_from_a_server_steers_the_terminal(serve):
    """Neither its reason phrase, nor its text; nor an address that a user was given."""
    def answer(handler):
        handler.wfile.write(b"HTTP/1.0 500 bad \x1b[2J\x07\r\n\r\nworse \x1b]0;title\x07\nmore")

    with pytest.raises(ServerError) as error:
        Client(serve(answer), timeout=60, tries=1).call("/", str)
    said = str(error.value)
    assert said.isprintable() and "bad" in said and "worse" in said and said.endswith("more")
    done = CliRunner().invoke(app, ["artifacts", "show", "\x1b[2J"])
    assert done.exit_code == 2 and "\x1b" not in done.stderr


@pytest.mark.parametrize("form", [
    KEY, KEY.replace("cr", "c\x1b[2Jr"), KEY.replace("cr", "c\x1b[2Jr\x00"), 'sk-\\"secret\\"/1',
    "sk-%22secret%22%2F1"])
def test_a_server_that_repeats_the_key_does_not_show_it(serve, form):
    """As text, in JSON, in an address; in the phrase, in the text, and where that is cut off."""
    def answer(handler):
        assert handler.headers["Authorization"] == f"Bearer {KEY}"
        handler.wfile.write(f"HTTP/1.0 400 no {form}\r\n\r\n{'a ' * 120} Bearer {form} {form}"
                            .encode())

    with pytest.raises(ServerError) as error:
        Client(serve(answer), timeout=60, tries=1, key=KEY).call("/", str)
    assert "secret" not in str(error.value) and "[the key]" in str(error.value)
    assert not re.search("sec.*ret", str(error.value))
