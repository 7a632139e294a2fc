"""A judge that misbehaves in every way, behind a real server; the proxy worked by hand."""

import itertools
import math
import threading
import time
from contextlib import suppress

import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.preference import judges
from rmutils.preference.judges import Proxy, ServerJudge
from tests.clock import PATIENCE
from tests.conftest import two_families
from tests.servers import Answering, serving


class Handler(Answering):
    """Says what `server.plan` has for the response in question, attempt by attempt.

    A number is a status without a body, text a reply, bytes a body, None a closed connection; a
    function is called.
    """

    def do_POST(self):  # noqa: N802
        asked = self.posted()
        question = asked["messages"][0]["content"]
        response = question.split("<response>\n")[1].split("\n</response>")[0]
        self.server.key = self.headers["Authorization"]
        with self.server.lock:
            self.server.log.append((self.path, response, asked["temperature"], asked["model"]))
            what = self.server.plan[response].pop(0)
        if callable(what):
            with suppress(OSError):  # it may be given up on
                what(self)
        elif isinstance(what, str):
            self.says(what)
        elif what is not None:
            self.send(*((b"", what) if isinstance(what, int) else (what,)))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("rmutils.core.server.PAUSE", 0.0)
    with serving(Handler, lock=threading.Lock(), log=[], plan={}) as server:
        yield server


def judge(server, end: str = "") -> ServerJudge:
    return ServerJudge(f"{server.address}{end}")


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_ratings(server, monkeypatch, end):
    """Each response gets its own rating, from the paper's judge, in one question."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.plan = {"Good {braces}.": ["[[9]]"], "So, so.": ["Rating: [[ 4.5 ]]."]}
    assert judge(server, end).score("Say {it}.", ["Good {braces}.", "So, so."]) == [9.0, 4.5]
    assert sorted(server.log) == [
        ("/v1/chat/completions", response, 0, "google/gemma-3-27b-it")
        for response in ("Good {braces}.", "So, so.")]


@pytest.mark.fault("server", "a judge that answers with garbage")
@pytest.mark.parametrize("nonsense", [
    "Nine.", "9", "", "[[eleven]]", "[[0]]", "[[11]]", "[[-3]]", "[[3]] or [[8]]",
    b"<html>oops</html>", b"[]", b'{"choices": []}', b'{"choices": [{"message": null}]}',
    b'{"choices": [{"message": {"content": null}}]}', b"[" * 100_000,
    b'{"choices": [{"message": {"content": "[[7]] \\ud800"}}]}'])
def test_no_rating_is_tried_again_and_then_unscored(server, nonsense):
    """A rating counts that comes at last; one that never comes is missing for its response only."""
    server.plan = {"never": [nonsense] * 9, "at last": [nonsense, nonsense, "[[7]]"],
                   "at once": ["[[2]]"]}
    assert judge(server).score("Go.", ["never", "at last", "at once"]) == [None, 7.0, 2.0]
    assert [t for _, response, t, _ in server.log if response == "never"] == [0, 1, 1]


@pytest.mark.fault("server", "a judge that answers with errors, or hangs up")
@pytest.mark.parametrize("trouble, told", [
    (500, "status 500"), (503, "status 503"), (429, "status 429"), (None, "gives no reply: ")])
def test_trouble_is_tried_again_and_then_told(server, trouble, told):
    """A response that the judge never saw is not unscored: that would be stored for good."""
    server.plan = {"at last": [trouble, trouble, "[[7]]"], "never": [trouble] * 9}
    assert judge(server).score("Go.", ["at last"]) == [7.0]
    with pytest.raises(UserError, match=f"{told}.*run the same command"):
        judge(server).score("Go.", ["never"])
    assert [t for _, _, t, _ in server.log] == [0] * 6


@pytest.mark.fault("server", "a judge that hangs")
def test_slow_judge(server, monkeypatch):
    monkeypatch.setattr(judges, "TIMEOUT", 0.1)
    gate = threading.Event()
    monkeypatch.setattr(Handler, "do_POST", lambda self: gate.wait(PATIENCE))
    with pytest.raises(UserError, match=r"gives no reply: timed out after 0\.1 s"):
        judge(server).score("Go.", ["a"])
    gate.set()


def test_bad_request_is_not_repeated(server):
    """For example of a prompt that is too long: the next one may be shorter."""
    server.plan = {"long": [400, "[[5]]"], "short": ["[[5]]"]}
    assert judge(server).score("Go.", ["long", "short"]) == [None, 5.0]
    assert len(server.log) == 2


@pytest.mark.parametrize("status, cause", [(401, "wants a key"), (404, "has no such model")])
def test_refusals_are_told(server, status, cause):
    server.plan = {"a": [status]}
    with pytest.raises(UserError, match=f"google/gemma-3-27b-it at .* status {status}: .*{cause}"):
        judge(server).score("Go.", ["a"])


@pytest.mark.parametrize("key", [None, "abc"])
def test_a_key_is_sent_where_there_is_one(server, monkeypatch, key):
    monkeypatch.delenv(judges.KEY, raising=False)
    if key:
        monkeypatch.setenv(judges.KEY, key)
    server.plan = {"a": ["[[5]]"]}
    judge(server).score("Go.", ["a"])
    assert server.key == (f"Bearer {key}" if key else None)
    assert judge(server).identity == ServerJudge("http://other:1").identity


@pytest.mark.fault("server", "a judge that is not there")
def test_judge_that_is_down(server):
    there = judge(server)
    server.shutdown()
    server.server_close()
    with pytest.raises(UserError, match=r"127.0.0.1:\d+ cannot be reached: .*failed.*"
                                        r"`vllm serve google/gemma-3-27b-it`"):
        there.score("Go.", ["a"])


def redirect(handler):
    """To a server that would answer, and be given the key."""
    handler.send_response(307)
    handler.send_header("Location", f"http://localhost:{handler.server.server_port}/elsewhere")
    handler.end_headers()


def trickle(handler):
    """A byte now and then, so that the connection is never idle."""
    for byte in itertools.chain(b"HTTP/1.0 200 OK\r\n\r\n", itertools.repeat(32)):
        handler.wfile.write(bytes([byte]))
        time.sleep(0.02)


def flood(handler):
    """Chunks without end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        handler.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")


@pytest.mark.fault("server", "a judge that redirects, answers for ever or without end")
@pytest.mark.parametrize("what, told", [
    (redirect, r"sends elsewhere \(status 307\)"), (trickle, "timed out after 0.5 s"),
    (flood, "longer than 10485760 bytes")])
def test_answers_that_lead_away_or_never_end(server, monkeypatch, what, told):
    monkeypatch.setattr(judges, "TIMEOUT", 0.5 if what is trickle else PATIENCE)
    monkeypatch.setattr(judges, "ATTEMPTS", 1)
    monkeypatch.setenv(judges.KEY, "secret")
    server.plan = {"a": [what, "[[5]]"]}
    with pytest.raises(UserError, match=told):
        judge(server).score("Go.", ["a"])
    assert [path for path, *_ in server.log] == ["/v1/chat/completions"]


@pytest.mark.parametrize("url", [
    "", "localhost:8000", "file:///etc/hosts", "http://a:b/v1", "http://", "http://a b", "http://[",
    "http://\ud800", "http://a:65536"])
def test_not_a_url(url):
    with pytest.raises(UserError, match="is not the address of a server"):
        ServerJudge(url)


@pytest.mark.fault("server", "an address or a key that must not be shown")
@pytest.mark.parametrize("url", [
    "http://user:secret@host", "http://secret@host", "http://host/v1?key=secret",
    "http://host#secret", "http://user:secret@ho st", "user:secret@host"])
def test_addresses_hold_no_secrets(url):
    """They are part of commands, which manifests tell."""
    with pytest.raises(UserError, match="not shown here") as error:
        ServerJudge(url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("key", ["secret\n", "sec\rret", "secret\x00", "sécret", " secret"])
def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch, key):
    monkeypatch.setattr(judges.os, "environ", {judges.KEY: key})
    with pytest.raises(UserError, match="not shown here") as error:
        ServerJudge("http://host")
    assert "cret" not in str(error.value) and error.value.__cause__ is None


def test_a_host_that_cannot_be(server):
    with pytest.raises(UserError, match="cannot be reached|gives no reply"):
        ServerJudge(f"http://{'a' * 300}").score("Go.", ["a"])


def test_identities(llama):
    """They tell apart what scores differently: models, not addresses."""
    a, b = "http://a/v1", "http://b/v1"
    assert ServerJudge(a).identity == ServerJudge(b).identity != ServerJudge(a, "other").identity
    assert Proxy(llama).identity != Proxy(llama, thinking=False).identity


def ids(lm, text: str) -> list[int]:
    return lm.tokenizer(text, add_special_tokens=False)["input_ids"]


def test_proxy_by_hand(llama):
    """A model without weights finds each of its 512 tokens as probable as any other."""
    for weight in llama.model.parameters():
        weight.data.zero_()
    broken_off = math.log(1 / 512 / 0.01)
    once, loop = "a b", " a" * 6
    assert len(ids(llama, loop)) == 6  # four trigrams, all the same
    assert Proxy(llama).score("Go.", [once, loop, "a", ""]) == [
        pytest.approx(-math.log(512) + broken_off, abs=1e-5),
        pytest.approx(-math.log(512) + math.log(1 / 4) + broken_off, abs=1e-5),
        pytest.approx(-math.log(512) + broken_off, abs=1e-5), None]


@two_families
def test_proxy_against_one_token_at_a_time(lm):
    """Every text is read anew for each of its tokens, and the trigrams are counted in a loop."""
    texts = ["The river is long.", "He said he said he said.", " the" * 9, "Why?", "1 2 3 4 5 6 7"]
    ends = set()
    for text, found in zip(texts, Proxy(lm).score("Tell me.", texts), strict=True):
        read, logs, trigrams = lm.render("Tell me.", thinking=True), [], []
        for token in [*ids(lm, text), lm.tokenizer.eos_token_id]:
            with torch.inference_mode():
                odds = lm.model(torch.tensor([read])).logits[0, -1].double().softmax(0)
            logs.append(math.log(odds[token]))
            trigrams.append(tuple(read[-2:]) + (token,))
            read.append(token)
        *logs, end = logs
        trigrams = trigrams[2:-1]
        expected = sum(logs) / len(logs)
        if trigrams:
            expected += math.log(len(set(trigrams)) / len(trigrams))
        if end < math.log(0.01):
            expected += end - math.log(0.01)
        ends.add(end < math.log(0.01))
        assert found == pytest.approx(expected, abs=1e-3)
    assert True in ends


def test_proxy_does_not_count_a_probable_end(llama):
    """Of 64 equally probable tokens, each has more than 1 in 100."""
    llama.model.resize_token_embeddings(64)
    for weight in llama.model.parameters():
        weight.data.zero_()
    assert Proxy(llama)._score([3, 4], [5, 6, 7]) == pytest.approx(-math.log(64), abs=1e-5)


def test_proxy_leaves_out_what_does_not_fit(llama):
    long = " a" * llama.window
    assert Proxy(llama).score("Go.", [long, "a"])[0] is None
