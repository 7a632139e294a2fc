"""Models of the hub: which they are, whether they are here, and bringing them here."""

from __future__ import annotations

from pathlib import Path

from rmutils.errors import UserError
from rmutils.models.fetch import offline
from rmutils.models.registry import REGISTRY

FILES = ["*.safetensors", "*.json", "*.jinja"]
"""No others are read: no pickled weights, and no code."""


def fetch_hub(hub_id: str) -> Path:
    """Download a model into the hub's own cache; what is there is not fetched again.

    Raises
    ------
    UserError
        It cannot be reached, or not without a token.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        cause = "HF_HUB_OFFLINE is set." if offline() else str(error).splitlines()[0]
        raise UserError(f"{hub_id} could not be fetched: {cause} A gated model needs a token: "
                        f"`hf auth login`.") from error


def hub_id_of(name: str) -> str | None:
    """The hub id behind a name that `load_model` takes; None if it comes from elsewhere."""
    if name in REGISTRY:
        return REGISTRY[name].hub_id
    there = Path(name).exists() or name.startswith((".", "/", "~"))
    return name if name.count("/") == 1 and not there else None


def fetched(hub_id: str) -> bool:
    """Whether a model of the hub is on this machine, as far as is to be seen without the network.
    """
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(hub_id, "config.json"), str)
