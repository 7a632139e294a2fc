"""Models by a name: of the registry, a folder, the hub, or of a stored training (`train-...`)."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from rmutils.artifacts import Artifact, find, stored
from rmutils.errors import UserError
from rmutils.models import REGISTRY, LanguageModel, identify, load_model
from rmutils.training.loading import RECORD, TRAIN, load_trained


def is_training(name: str) -> bool:
    """Whether a name is that of a stored training, as `rmutils retmask` prints it."""
    return re.fullmatch(rf"{TRAIN.name}-[0-9a-f]{{16}}", name) is not None


def identity_of(name: str) -> str:
    """What a model's results depend on: its weights, or a training's name, which tells all that
    they are made from. So results can be looked up where the weights are not."""
    return name if is_training(name) else identify(name)


def base_of(training: str) -> str:
    """The model that a stored training began with.

    Raises
    ------
    UserError
        The training is not stored on this machine, or began with a folder, whose place it does not
        know.
    """
    name = _told_base(_stored(training))
    if name not in REGISTRY and "/" not in name:
        raise UserError(f"{training} began with a folder called {name}. Say where it is: --base.")
    return name


def load_by_name(name: str, base: str | None = None) -> LanguageModel:
    """A model by its name.

    Parameters
    ----------
    base : str, optional
        The model that a stored training began with. Default: the one that it tells itself.

    Raises
    ------
    UserError
        As of `load_model` and `base_of`.
    """
    if not is_training(name):
        return load_model(name)
    artifact = _stored(name)
    needs_base = (artifact.folder / "adapter_config.json").exists()
    if needs_base or base or _told_base(artifact) in REGISTRY:  # whose precision it has
        lm = load_trained(load_model(base or base_of(name)), artifact.folder)
    else:
        lm = load_model(str(artifact.folder))
    return replace(lm, name=name, identity=name)


def _told_base(training: Artifact) -> str:
    return json.loads(training.path(RECORD).read_text())["model"]


def _stored(training: str) -> Artifact:
    if artifact := find(training):
        return artifact
    commands = [run.manifest["command"] for run in stored() if run.name.startswith("retmask-")
                and json.loads(run.path("run.json").read_text())["training"] == training]
    how = f" `{commands[0]} --compute always` makes them anew." if commands else ""
    raise UserError(f"the weights of {training} are not stored on this machine.{how}")
