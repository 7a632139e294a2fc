"""Models by name, those of stored trainings (`train-...`) among them."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rmutils.core.errors import UserError
from rmutils.core.files import sha256
from rmutils.core.results import Artifact, Stage, find, stored
from rmutils.models.known_models import REGISTRY
from rmutils.models.language_model import LanguageModel
from rmutils.models.loading import corpus_of, identify, load_model

TRAIN = Stage("train", version=1)
RECORD = "training.json"
"""Record of what was trained on what, and how; written last."""


@dataclass(frozen=True)
class ModelRef:
    """A model that is loaded, or that is named and loaded only if a result has to be computed.

    Parameters
    ----------
    given : LanguageModel or str
        A name may also be that of a stored training, whose results can be read where its weights
        are not.
    base : str, optional
        The model that such a training began with. Default: the one that it names itself.
    """

    given: LanguageModel | str
    base: str | None = None

    @property
    def name(self) -> str:
        return self.given if isinstance(self.given, str) else self.given.name

    @cached_property
    def identity(self) -> str:
        """Content of its weights, as in the inputs of results."""
        return identity_of(self.given) if isinstance(self.given, str) else self.given.identity

    @cached_property
    def corpus(self) -> str:
        """Name of the texts that it is asked about."""
        if not isinstance(self.given, str):
            return self.given.corpus
        return corpus_of(self.base or (
            base_of(self.given) if is_training(self.given) else self.given))

    def load(self) -> LanguageModel:
        return load_by_name(self.given, self.base) if isinstance(self.given, str) else self.given


def is_training(name: str) -> bool:
    """True for the name of a stored training, as `rmutils retmask` prints it."""
    return re.fullmatch(rf"{TRAIN.name}-[0-9a-f]{{16}}", name) is not None


def identity_of(name: str) -> str:
    """Return what a model's results depend on: its weights, or the name of a training, which says
    what they are made from. So results can be looked up where the weights are not stored."""
    return name if is_training(name) else identify(name)


def base_of(training: str) -> str:
    """Return the model that a stored training began with.

    Raises
    ------
    UserError
        The training is not stored on this machine, or began with a folder whose place is not
        known.
    """
    name = _told_base(_stored(training))
    if name not in REGISTRY and "/" not in name:
        raise UserError(f"{training} began with a folder called {name}. Say where it is: --base.")
    return name


def load_by_name(name: str, base: str | None = None) -> LanguageModel:
    """Load a model of the registry, a folder, the hub, or a stored training.

    Parameters
    ----------
    base : str, optional
        The model that a stored training began with. Default: the one that it names itself.

    Raises
    ------
    UserError
        As `load_model` and `base_of` do.
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
    commands = [run.manifest["command"] for run in stored("retmask")
                if json.loads(run.path("run.json").read_text())["training"] == training]
    how = f" `{commands[0]} --compute always` trains them again." if commands else ""
    raise UserError(f"the weights of {training} are not stored on this machine.{how}")


def load_trained(base: LanguageModel, folder: Path) -> LanguageModel:
    """Load what `rmutils.training.running.train` wrote, all weights or an adapter."""
    if (folder / "adapter_config.json").exists():
        return load_adapter(base, folder)
    return load_model(str(folder), device=str(base.model.device), dtype=base.model.dtype)


def load_adapter(base: LanguageModel, folder: Path) -> LanguageModel:
    """Load a LoRA adapter and merge it into the weights of its model.

    Parameters
    ----------
    base : LanguageModel
        The model that the adapter was trained on; it stays as it is.
    folder : Path
        What `train` wrote for a recipe with `lora_rank`. UserError if it is another model's.
    """
    if not (folder / "adapter_config.json").is_file():
        raise UserError(f"{folder} holds no LoRA adapter. A whole model is loaded with load_model.")
    weights = folder / "adapter_model.safetensors"
    if not weights.is_file():
        raise UserError(f"{folder} holds no {weights.name} (pickled weights are never read).")
    record = json.loads((folder / RECORD).read_text())
    if record["identity"].split()[:-1] != base.identity.split()[:-1]:  # all but the precision
        raise UserError(f"the adapter in {folder} was trained on {record['model']} with other "
                        f"weights than those of {base.name}.")
    from peft import PeftModel  # here, because importing it takes seconds

    model = PeftModel.from_pretrained(copy.deepcopy(base.model), folder).merge_and_unload()
    return LanguageModel(
        model.eval(), base.tokenizer, folder.name, base.family,
        f"{base.identity} + adapter sha256:{sha256(weights)}")
