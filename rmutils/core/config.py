"""Validated parameters: what a stage is configured by, and the options that say it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from rmutils.core.errors import UserError, did_you_mean, unknown
from rmutils.core.registry import Offers, Registry, plugin_options
from rmutils.core.validation import Strict, explain, models_in, read

_STORED = "read from a manifest"
DEVICE, DTYPE = "RMUTILS_DEVICE", "RMUTILS_DTYPE"
"""Environment variables: where models are loaded and in which precision, unless it is said."""


class Config(Strict):
    """Base of all stage configurations: refuses unknown keys and wrong types; values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(explain(error, type(self))) from None

    # Configurations within others are validated by pydantic alone; their errors are in the outer's.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        raise UserError(f"a configuration stays as it is: .changed({{{name!r}: ...}}) gives one "
                        "with another value.")

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Values that are not the defaults: the others are in the reference."""
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(str(name))
            if field is None or value != field.get_default(call_default_factory=True):
                yield name, value

    def __str__(self) -> str:
        return repr(self)

    def digest(self) -> str:
        """SHA-256 (hex) of `identity`."""
        return digest(self.identity())

    def identity(self) -> dict[str, Any]:
        """All values as JSON, but for `added` ones that leave the result as it was."""
        values = self.model_dump(mode="json")
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if any(isinstance(one, _Added) and one.before == value for one in field.metadata):
                values.pop(name, None)
            elif name in values:
                values[name] = _identity(value, values[name])
        return values

    def outside(self) -> dict[str, str]:
        """Return the outside code that registered what the values name: part of the identity."""
        found: dict[str, str] = {}
        if not Registry.outside:
            return found
        for name, field in type(self).model_fields.items():
            leaves = [*_leaves(getattr(self, name))]
            names = [getattr(leaf, "kind", leaf) for leaf in leaves]
            for registry in _registries([field.annotation, *field.metadata]):
                found |= registry.origins(names)
            for leaf in leaves:
                found |= leaf.outside() if isinstance(leaf, Config) else {}
        return found

    @classmethod
    def from_identity(cls, values: dict[str, Any]) -> Self:
        """Return the configuration of a manifest, where `added` fields may be missing."""
        return cls.model_validate(values, context=_STORED)

    @model_validator(mode="before")
    @classmethod
    def _missing(cls, values: Any, info: ValidationInfo) -> Any:
        if info.context is not _STORED or not isinstance(values, dict):
            return values
        return {name: one.before for name, field in cls.model_fields.items()
                for one in field.metadata if isinstance(one, _Added)} | values

    def changed(self, values: dict[str, Any], before: str = "") -> Self:
        """A copy with other values by name (`recipe.learning_rate`); texts are read."""
        fields: dict[str, Any] = dict(self)  # not model_dump, which leaves some out
        inner: dict[str, dict[str, Any]] = {}
        kinds = self.fields()
        for given, value in values.items():
            name = given.replace("-", "_")
            first, _, rest = name.partition(".")
            if first not in kinds or rest and not kinds[first].configs:
                raise UserError(unknown(before + name, [before + n for n in self.dotted_names()]))
            if rest:
                inner.setdefault(first, {})[rest] = value
            else:
                fields[first] = read(value, kinds[first].type) if isinstance(value, str) else value
        for name, changes in inner.items():
            fields[name] = kinds[name].start(fields[name], changes.get("kind")).changed(
                changes, f"{before}{name}.")
        try:
            return type(self).model_validate(fields)
        except ValidationError as error:
            raise UserError(explain(error, type(self), before)) from error

    @classmethod
    def fields(cls) -> dict[str, ConfigField]:
        return {name: ConfigField(name, info) for name, info in cls.model_fields.items()}

    def dotted_names(self) -> list[str]:
        """All names that `changed` knows, dotted ones included."""
        return [dotted for name, value in self for dotted in (
            [f"{name}.{rest}" for rest in value.dotted_names()]
            if isinstance(value, Config) else [name])]

    def differences(self, other: Self) -> dict[str, str]:
        """Return what `changed` needs to make this out of `other`, as texts."""
        return {name: value if isinstance(value, str) else json.dumps(value, default=_plain)
                for name, value, _ in _changes(self, other)}


class NoConfig(Config):
    """Nothing is left to configure: a result depends on its inputs alone."""


@dataclass(frozen=True)
class _Added:
    before: Any


def added(default: Any, *, before: Any = ..., **limits: Any) -> Any:
    """Declare a field that comes to a configuration of which results are stored."""
    field: Any = Field(default, **limits)
    field.metadata.append(_Added(default if before is ... else before))
    return field


def command_line(*words: str, config: Config | None = None, default: Config | None = None,
                 **parts: Config | None) -> str:
    """The command that makes a result: `rmutils`, the words, and an option for each other value."""
    outside = any(part.outside() for part in (config, *parts.values()) if part)
    said = ["env", f"{DTYPE}={os.environ[DTYPE]}"] if os.environ.get(DTYPE) else []
    said += ["rmutils", *(plugin_options() if outside else ())]
    said += [os.path.relpath(word) if os.path.exists(word) else word for word in words]
    for prefix, one in {"": config, **{f"{name}.": part for name, part in parts.items()}}.items():
        if one is not None:
            against = default if default is not None and not prefix else type(one)()
            said += _options(one, against, prefix)
    return shlex.join(said)


def run_notebook(name: str, parameters: Mapping[str, str]) -> str:
    """Return the command that runs a notebook of the book with some parameters."""
    return command_line("run", name, *(word for item in parameters.items()
                                       for word in ("-p", *item)))


def _options(config: Config, default: Config, prefix: str) -> Iterator[str]:
    for name, value, before in _changes(config, default):
        option = (prefix + name).replace("_", "-")
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{option}"
            continue
        yield f"--{option}"
        if isinstance(value, tuple) and isinstance(before, tuple) and not any(
                isinstance(one, tuple | list | dict | Config) for one in value):
            yield ",".join(map(str, value))
        elif isinstance(value, Path):
            yield os.path.relpath(value)
        else:
            yield value if isinstance(value, str) else json.dumps(value, default=_plain)


def _changes(config: Config, other: Config) -> Iterator[tuple[str, Any, Any]]:
    """Dotted names, values, and values in the other configuration, where they differ."""
    for name, value in config:
        before = getattr(other, name)
        if isinstance(value, Config) and type(value) is type(before):
            yield from ((f"{name}.{k}", v, b) for k, v, b in _changes(value, before))
        elif value != before:
            yield name, value, before


def _identity(value: Any, dumped: Any) -> Any:
    """A value's JSON without what `identity` leaves out of the configurations in it."""
    if isinstance(value, Config):
        return value.identity()
    if isinstance(value, dict) and isinstance(dumped, dict):
        return {key: _identity(one, dumped[key]) for key, one in zip(
            dumped, value.values(), strict=True)}
    if isinstance(value, tuple | list) and isinstance(dumped, list):
        return [_identity(v, d) for v, d in zip(value, dumped, strict=True)]
    return dumped


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what a value holds: names, numbers, configurations."""
    if isinstance(value, Mapping):
        yield from (leaf for one in value.values() for leaf in _leaves(one))
    elif isinstance(value, tuple | list):
        yield from (leaf for one in value for leaf in _leaves(one))
    else:
        yield value


def _registries(declared: list[Any]) -> Iterator[Registry[Any]]:
    """Yield the registries that types are annotated with."""
    for one in declared:
        if isinstance(one, Registry | Offers):
            yield one if isinstance(one, Registry) else one.registry
        else:
            yield from _registries([*get_args(one)])


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.model_dump(mode="json") if isinstance(value, Config) else str(value)


class ConfigField:
    """A field of a configuration, as a command line needs it."""

    def __init__(self, name: str, info: FieldInfo):
        self.name, self.info, self.doc = name, info, info.description or ""
        self.type: Any = info.annotation
        for more in info.metadata:
            self.type = Annotated[self.type, more]
        if info.discriminator:
            self.type = Annotated[self.type, Field(discriminator=info.discriminator)]
        open_to = [more for more in info.metadata if isinstance(more, Registry)]
        self.configs: tuple[type[Config], ...] = tuple(
            m for m in (open_to[0].values() if open_to else models_in(self.type, inside=False))
            if isinstance(m, type) and issubclass(m, Config))

    def registry(self) -> Registry[Any] | None:
        """Return the registry whose names the field takes, if there is one."""
        return next(_registries([self.info.annotation, *self.info.metadata]), None)

    def kinds(self) -> Mapping[str, type[Config]]:
        """Return the configurations that the field takes by `kind`, if several, sorted."""
        if len(self.configs) > 1:
            by_kind = {config.model_fields["kind"].default: config for config in self.configs}
            return dict(sorted(by_kind.items()))
        return {}

    def start(self, value: Any, kind: str | None) -> Config:
        """Return what changes within this field are made to: its value, or one of another kind."""
        known = self.kinds()
        if kind and known and getattr(value, "kind", None) != kind:
            if kind not in known:
                raise UserError(f"{self.name}.kind: expected one of {', '.join(known)}, got "
                                f"{kind!r}.{did_you_mean(kind, known)}")
            return known[kind]()
        return value if isinstance(value, Config) else self.configs[0]()


def digest(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
