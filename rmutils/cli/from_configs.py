"""Options of commands, made from the fields of configurations: names, choices, defaults, help."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand

from rmutils.cli import hyphens
from rmutils.core.config import Config, ConfigField
from rmutils.core.errors import UserError, unknown

Parameters = Annotated[list[str] | None, typer.Option(
    "-p", metavar="NAME VALUE", show_default=False, help="Another spelling of --NAME VALUE.")]


class Part:
    """Configurations among a command's options; if `raw`, the command gets a dictionary of what is
    given, as `Config.changed` takes it, instead."""

    def __init__(self, *defaults: Config, prefix: str = "", skip: Sequence[str] = (),
                 names: Mapping[str, str] | None = None, raw: bool = False):
        self.defaults, self.prefix, self.skip = defaults, prefix, skip
        self.names, self.raw = names or {}, raw

    def fields(self) -> list[str]:
        """Return the names of the fields that are options."""
        return [name for one in self.defaults for name in one.fields() if name not in self.skip]

    def claims(self, name: str) -> bool:
        """Return True if a dotted name is one of these configurations."""
        first = name.removeprefix(self.prefix).split(".")[0]
        return name.startswith(self.prefix) and first in self.fields()

    def make(self, changes: dict[str, str]) -> Any:
        """Return what the command gets."""
        return changes if self.raw else self.defaults[0].changed(changes)


def configured(**given: Any) -> Callable[[Callable], Callable]:
    """Give a command the options of configurations."""
    parts = {name: one if isinstance(one, Part) else Part(one) for name, one in given.items()}

    def decorate(command: Callable) -> Callable:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values()
               if p.name not in parts]
        options: dict[str, Option] = {}
        for part in parts.values():
            for default in part.defaults:
                for option in _options(default, part):
                    if option.parameter not in {p.name for p in own}:
                        options.setdefault(option.parameter, option)

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            changes = dict(pairs(values.pop("parameters", None)))
            for name, option in options.items():
                if (value := values.pop(name, None)) is not None:
                    if option.name in changes:
                        raise UserError(f"{option.name} is given twice.")
                    changes[option.name] = value
            return run.body(**values, **_shared_out(changes, parts))

        required = [p for p in own if p.default is p.empty]
        signature = [*required, *(option.as_parameter() for option in options.values()),
                     *(p for p in own if p not in required),
                     inspect.Parameter("parameters", _KEYWORD, default=None, annotation=Parameters)]
        run.body = command
        run.__signature__ = inspect.Signature([p.replace(kind=_KEYWORD) for p in signature])
        run.__annotations__ = {p.name: p.annotation for p in signature}
        del run.__wrapped__  # Typer would look for the annotations there
        return run

    return decorate


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _shared_out(changes: dict[str, str], parts: dict[str, Part]) -> dict[str, Any]:
    """Give each configuration its changes; a name may be one of several."""
    given: dict[str, dict[str, str]] = {key: {} for key in parts}
    plain = [key for key, part in parts.items() if not part.prefix]
    for name, value in changes.items():
        claiming = [key for key, part in parts.items() if part.claims(name)]
        if not claiming and len(plain) > 1:
            known = [n for key in plain for n in parts[key].fields()]
            raise UserError(unknown(name, known))
        for key in claiming or plain:  # a single configuration says itself what it does not know
            given[key][name.removeprefix(parts[key].prefix)] = value
    return {key: part.make(given[key]) for key, part in parts.items()}


def pairs(words: list[str] | None) -> dict[str, str]:
    """Return what `-p NAME VALUE` gives, by name."""
    found = dict(word.partition("=")[::2] for word in words or [] if "=" in word)
    if len(found) < len(words or []):
        raise UserError(f"cannot read {' '.join(words or [])!r}: give each parameter once, as "
                        "-p NAME VALUE")
    return {name.replace("-", "_"): value for name, value in found.items()}


class Command(TyperCommand):
    """Understands `-p NAME VALUE`, which Typer has no word for."""

    open_names = False

    def parse_args(self, ctx, args):
        known = {hyphens(name) for p in self.params for name in (*p.opts, *p.secondary_opts)}
        if "-p" in known:
            args = list(_joined(args, known | {"--help"}, self.open_names))
        return super().parse_args(ctx, args)


class OpenCommand(Command):
    """Takes `--NAME VALUE` for `-p NAME VALUE` where only the command's subject knows the name."""

    open_names = True


def _joined(args: list[str], known: set[str], open_names: bool) -> Iterator[str]:
    """`-p NAME VALUE` as `-p NAME=VALUE`, which can be repeated."""
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "-p":
            name = next(words, "")
            yield from ("-p", name if "=" in name else "=".join([name, *_one(words)]))
        elif open_names and word.startswith("--") and len(word) > 2 and hyphens(name) not in known:
            yield from ("-p", f"{name[2:]}=" + (value if equals else next(words, "")))
        else:
            yield word


def _one(words: Iterator[str]) -> Iterator[str]:
    with_value = next(words, None)
    if with_value is not None:
        yield with_value


@dataclass(frozen=True)
class Option:
    """An option of one field: its dotted name, and how it is shown."""

    name: str
    field: ConfigField
    default: Any
    more: str | None = None
    panel: str | None = None
    hidden: bool = False
    kinds: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        """The name of the Python parameter."""
        return self.name.replace(".", "__")

    def as_parameter(self) -> inspect.Parameter:
        """Return the parameter that Typer makes an option of."""
        spelled = [f"--{self.name.replace('_', '-')}"]
        if _is_bool(self.field.type):
            spelled[0] += f"/--no-{spelled[0][2:]}"
        if self.more:
            spelled.append(self.more)
        text, none = described(self.field.doc)
        metavar = f"<{'|'.join(self.kinds)}>" if self.kinds else _metavar(self.field)
        default = _shown(self.default, none)
        if metavar and len(metavar) > 26 and "|" in metavar:
            words, dots = metavar[1:-1].replace("|", ", "), ",..." * metavar.endswith(",...>")
            text += f" {'Any' if dots else 'One'} of {words.removesuffix(dots)}."
            metavar = f"<name{dots}>"
        text += f" [default: {default}]" * bool(default)
        how = typer.Option(*spelled, help=escape(text), hidden=self.hidden, metavar=metavar,
                           rich_help_panel=self.panel, show_default=False)
        kind = bool if _is_bool(self.field.type) else str
        return inspect.Parameter(self.parameter, _KEYWORD, default=None,
                                 annotation=Annotated[kind | None, how])


def _options(
    default: Config, part: Part, before: str = "", kinds: tuple[str, ...] = ()
) -> Iterator[Option]:
    """Yield the options of a configuration, then those of the configurations within."""
    within = []
    for name, one in default.fields().items():
        if not before and name in part.skip:
            continue
        value, dotted = getattr(default, name), f"{part.prefix}{before}{name}"
        panel = f"Options of {(part.prefix + before).rstrip('.')}" if part.prefix + before else None
        if one.configs:
            within.append((f"{before}{name}.", one, value))
        yield Option(dotted, one, value, part.names.get(f"{before}{name}"), panel,
                     hidden=bool(one.configs), kinds=kinds if name == "kind" else ())
    for dotted, one, value in within:
        for inner in one.kinds().values() or one.configs:
            start = value if isinstance(value, inner) else inner()
            yield from _options(start, part, dotted, tuple(one.kinds()))


def described(doc: str) -> tuple[str, str]:
    """Return the first sentence of a field's docstring, and what it says that None stands for."""
    doc = " ".join(doc.split())
    none = re.search(r"None:? ((?:[^.;]|\.(?=\d))+)[.;]?", doc)
    sentence = re.split(r"(?<=[^.])\.(?= [A-Z`\"]|$)", doc)[0]
    sentence = re.sub(r"[;,.]? ?None:? (?:[^.;]|\.(?=\d))+", "", sentence).strip("; ")
    return (sentence and sentence + "."), none[1] if none else ""


def _shown(value: Any, none: str) -> str:
    if value is None or value == ():
        return none
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        text = ",".join(map(str, value))
        return text if len(text) < 60 else f"all {len(value)}"
    return str(value) if isinstance(value, int | float | str | Path) else ""


def _is_bool(annotation: Any) -> bool:
    return bool in _members(annotation) and str not in _members(annotation)


def _members(annotation: Any) -> list[Any]:
    """Return the types that a union consists of, without constraints."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [annotation]


_WORDS = {int: "int", float: "float", str: "str", Path: "path", dict: "name=value,..."}


def _metavar(one: ConfigField) -> str | None:
    """Return what stands for the value in the help; choices from `Literal` and registries."""
    if _is_bool(one.type):
        return None
    if one.configs:
        return "<JSON>"
    registry = one.registry()
    words = [word for kind in _members(one.type) for word in _words(kind)]
    if registry:
        words = ["|".join(sorted(registry)) + ",..." * words[0].endswith(",...")]
    return f"<{'|'.join(dict.fromkeys(words))}>"


def _words(kind: Any) -> list[str]:
    origin = get_origin(kind)
    if kind is type(None):
        return []
    if origin is Literal:
        return list(map(str, get_args(kind)))
    if origin is tuple:
        first = _members(get_args(kind)[0])[0]
        return ["JSON"] if get_origin(first) is tuple else [f"{'|'.join(_words(first))},..."]
    return [_WORDS.get(origin or kind, "value")]
