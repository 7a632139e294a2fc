"""Models and files of the Hugging Face hub: their names, their cache, and where they are."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, snapshot_download
from huggingface_hub import try_to_load_from_cache as _in_cache
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.models.known_models import REGISTRY

FILES = ["*.safetensors", "*.json", "*.jinja"]
"""No others are read: no pickled weights, and no code."""
PATIENCE = 5  # seconds in which the hub must answer where the file can be had elsewhere, too


def offline() -> bool:
    """True if `HF_HUB_OFFLINE` forbids the network (the hub's own variable and its spellings)."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def no_network() -> str:
    """Return why the hub can't be asked, which its client would try for half a minute; else ""."""
    if offline():
        return "HF_HUB_OFFLINE is set"
    host = urlsplit(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).hostname
    try:
        if not getproxies():  # a proxy may know the name
            socket.getaddrinfo(host, None)
    except OSError:
        return f"there is no network ({host} is not found)"
    return ""


def fetch_hub(hub_id: str) -> Path:
    """Download a model into the hub's own cache; what is there is not fetched again."""
    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES,
                                      local_files_only=bool(no_network())))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        cause = f"{no_network() or str(error).splitlines()[0].rstrip('.')}."
        raise UserError(f"{hub_id} could not be fetched: {cause} A gated model needs a token: "
                        f"`hf auth login`.") from error


def hub_id_of(name: str) -> str | None:
    """The hub id behind a name that `load_model` takes; None if it comes from elsewhere."""
    if name in REGISTRY:
        return REGISTRY[name].hub_id
    there = Path(name).exists() or name.startswith((".", "/", "~"))
    return name if name.count("/") == 1 and not there else None


def fetched(hub_id: str) -> bool:
    """Return whether a model of the hub is on this machine, as far as that can be seen offline."""
    return isinstance(_in_cache(hub_id, "config.json"), str)


def find_in_cache(filename: str, known: str) -> Path | None:
    """Return the file of this SHA-256 in the hub's cache, from any repository."""
    cache = Path(constants.HF_HUB_CACHE)
    for pattern in (f"models--*/blobs/{known}", f"models--*/snapshots/*/{filename}"):
        for file in cache.glob(pattern):
            if file.is_file() and sha256(file) == known:
                return file.resolve()
    return None


def url_of(place: str, filename: str, known: str) -> str:
    """Return where the hub has a file now."""
    repository, _, revision = place.partition("@")
    try:
        found = get_hf_file_metadata(hf_hub_url(
            repository, filename, revision=revision, endpoint=os.environ.get("HF_ENDPOINT")),
            timeout=PATIENCE)
    except Exception as error:  # whatever the client meets, there is another way to the file
        raise ConnectionError((str(error).strip().splitlines() or [type(error).__name__])[0]
                              ) from error
    if found.etag != known:
        raise ConnectionError("it has another file under this name")
    return found.location
