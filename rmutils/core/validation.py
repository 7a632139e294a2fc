"""Values read from words of a command line or call, and validation errors in plain words."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import from_json

from rmutils.core.errors import UserError, did_you_mean, unknown

P = ParamSpec("P")
R = TypeVar("R")

SHOWN = 80  # characters of a wrong value that a message repeats
HINTS: dict[type, str] = {}
"""What to do with something of a class that is given in place of something else."""


def parse_json(text: str) -> Any:
    """Read JSON from elsewhere."""
    from_json(text.encode())
    return json.loads(text, object_pairs_hook=_once_each)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:80]!r} occurs twice")
    return found


class InnerError(ValueError):
    """An error within a value whose model is found out while it is read."""

    def __init__(self, error: ValidationError, model: type[BaseModel]):
        super().__init__(explain(error, model))
        self.error, self.model = error, model


def read(text: str, annotation: Any) -> Any:
    """Read a word of a command line as a value of a type: `none`, `a,b`, `a=1,b=2`, JSON."""
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    found = list(readings(text))
    for reading in found:
        if not counts_a_bool(reading, annotation):
            with contextlib.suppress(ValidationError):
                return adapter.validate_python(reading)
    wanted = str(annotation)
    if text[:1] in ("[", "{"):
        return next((r for r in found if not isinstance(r, str)), text)
    if "tuple[" in wanted:
        return _words(text)
    return text


class Strict(BaseModel):
    """Base of what is checked: takes no true or false for a number, and no seed below 0, which
    NumPy refuses and Python takes for the same above it."""

    @model_validator(mode="before")
    @classmethod
    def _numbers(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, dict) else ():
            if name in cls.model_fields and counts_a_bool(
                    value, cls.model_fields[name].annotation):
                raise ValueError(f"{name}: expected numbers, got {_short(value)}")
            if name.endswith("seed") and isinstance(value, int) and value < 0:
                raise ValueError(f"{name}: expected at least 0, got {value}")
        return values


def counts_a_bool(value: Any, annotation: Any) -> bool:
    """True for true or false among numbers; pydantic counts true as 1."""
    if isinstance(value, tuple | list):
        return any(counts_a_bool(one, annotation) for one in value)
    kinds = _kinds_in(annotation)
    return isinstance(value, bool) and (int in kinds or float in kinds) and bool not in kinds


def _kinds_in(annotation: Any) -> list[Any]:
    parts = get_args(annotation)
    return [kind for part in parts for kind in _kinds_in(part)] if parts else [annotation]


def readings(text: str) -> Iterator[Any]:
    """Return what a text may mean, likeliest first."""
    if text.lower() in ("none", "null"):
        yield None
    yield text
    with contextlib.suppress(ValueError):
        yield parse_json(text)
    words = _words(text)
    yield words
    if words and all("=" in word for word in words):
        yield dict(word.split("=", 1) for word in words)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")] if text.strip() else []


class _Arguments(Strict):
    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of the interface: a wrong argument is refused in plain words."""
    signature = inspect.signature(function)
    names = inspect.unwrap(function).__globals__

    @functools.cache  # not before the first call: the module is not complete yet
    def arguments() -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if parameter.annotation is not parameter.empty and not several:
                with contextlib.suppress(NameError):  # imported for type checkers alone
                    fields[parameter.name] = (_taken(eval(parameter.annotation, names)), None)
        return create_model(function.__name__, __base__=_Arguments, **fields)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound, model = signature.bind(*args, **kwargs), arguments()
        given = bound.arguments.keys() & model.model_fields
        try:
            read_as = model(**{name: bound.arguments[name] for name in given})
        except ValidationError as error:
            raise UserError(explain(error, model)) from None
        bound.arguments |= {name: getattr(read_as, name) for name in given}
        return function(*bound.args, **bound.kwargs)

    return call


def _taken(annotation: Any) -> Any:
    """An annotation by which pydantic does not look into data classes."""
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(map(_taken, get_args(annotation)))]  # noqa: UP007
    return InstanceOf[annotation] if is_dataclass(annotation) else annotation  # type: ignore[misc]


def head_of(text: str) -> tuple[int, int]:
    """Return layer and head of `layer-head`, which has one spelling only."""
    if not (found := re.fullmatch(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)", text)):
        raise ValueError(f"{_short(text)} is no head")
    return int(found[1]), int(found[2])


def _whole(number: Any) -> int:
    if isinstance(number, bool):  # Python counts True as 1
        raise TypeError
    return operator.index(number)


def heads_of(given: Any) -> tuple[tuple[int, int], ...]:
    """Return heads, given as pairs or as text like "18-6,3-4", as pairs of whole numbers."""
    try:
        pairs = [head_of(one) if isinstance(one, str) else map(_whole, one)
                 for one in (_words(given) if isinstance(given, str) else given)]
        return tuple((layer, head) for layer, head in pairs)
    except (TypeError, ValueError):
        raise ValueError(f"expected pairs (layer, head) or texts such as '18-6', got "
                         f"{_short(given)}") from None


Count = Annotated[int, Field(ge=1)]  # at least one
Heads = Annotated[Iterable[tuple[int, int]], PlainValidator(heads_of)]
"""Heads that a function takes: pairs (layer, head), or texts such as `18-6`."""
FrozenHeads = Annotated[tuple[tuple[int, int], ...], BeforeValidator(heads_of)]
"""The same as a field of a configuration."""


def models_in(annotation: Any, inside: bool = True) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, by default also those in tuples and dictionaries."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif inside or get_origin(annotation) in (Annotated, Union, UnionType):
        for part in get_args(annotation):
            yield from models_in(part, inside)


def explain(error: ValidationError, model: type[BaseModel], before: str = "") -> str:
    """Say in plain words what is wrong with each value of a model."""
    expected: dict[tuple[str, str, str], list[str]] = {}
    said = []
    for one in error.errors():
        kind, context = one["type"], one.get("ctx", {})
        names, known = _place(one["loc"], model, whole=kind in ("extra_forbidden", "missing"))
        name = before + ".".join(names)
        colon = f"{name}: " if names else ""
        if kind == "extra_forbidden":
            inside = name.removesuffix(names[-1])
            said.append(unknown(name, [inside + other for other in known]).rstrip("."))
        elif kind == "missing":
            said.append(f"{name} is missing")
        elif isinstance(inner := context.get("error"), InnerError):
            said.append(explain(inner.error, inner.model, f"{name}.").removesuffix("."))
        elif kind in ("value_error", "assertion_error"):
            said.append(f"{colon}{context['error']}")
        elif kind == "json_invalid":
            said.append(f"{colon}this is not valid JSON: {context['error']}")
        elif "url" not in one and kind != "path_type":  # a validator of this project
            said.append(f"{colon}{one['msg']}")
        elif kind != "too_short" or not one["input"]:  # else its items are wrong, as said already
            expected.setdefault((colon, *got(one["input"])), []).append(
                _expected(kind, context, str(one["msg"])))
    for (colon, given, hint), wanted in expected.items():
        what = " or ".join(dict.fromkeys(wanted))
        known = what.replace(",", "").split() if "one of" in what else []
        more = hint or did_you_mean(given.strip("'"), known)
        said.append(f"{colon}expected {what}, got {given}" + (more and f".{more}"))
    whole = "; ".join(said)
    return whole if whole.endswith("?") else whole + "."


def _place(loc: tuple[int | str, ...], model: type[BaseModel],
           whole: bool) -> tuple[list[str], list[str]]:
    """Return the names of fields in a location, and all names where the last is looked up."""
    names, models, known = list[str](), {model}, list[str]()
    for i, part in enumerate(loc):
        known = [name for m in models for name in m.model_fields]
        fields = [m.model_fields[str(part)] for m in models if part in m.model_fields]
        if fields or whole and i == len(loc) - 1:
            names.append(str(part))
        if fields:
            models = {m for field in fields for m in models_in(field.annotation)}
    return names, known


def got(value: Any) -> tuple[str, str]:
    """Return how a message shows a wrong value, and what to do with it, if that is known."""
    for kind, hint in HINTS.items():
        if isinstance(value, kind):
            return f"a {type(value).__name__}", f" {hint}"
    return _short(value), ""


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple, dict)):
        shown = json.dumps(value, default=str) if value else "none"
    else:
        shown = repr(value)
        if "\n" in shown:  # a model, a table
            return f"a {type(value).__name__}"
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


_KINDS = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "text",
    "path": "a path", "tuple": "a list", "list": "a list", "dict": "values by name",
    "finite": "a finite number", "none": "nothing"}
_CLASSES = {"Sequence": "a list", "Collection": "a list", "ndarray": "an array"}
_BOUNDS = {"greater_than_equal": ("ge", "at least"), "greater_than": ("gt", "more than"),
           "less_than_equal": ("le", "at most"), "less_than": ("lt", "less than")}


def _expected(kind: str, context: dict[str, Any], said: str) -> str:
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{words} {context[name]}"
    if kind in ("literal_error", "enum"):
        return "one of " + str(context["expected"]).replace("'", "").replace(" or ", ", ")
    if kind == "union_tag_invalid":
        return "one of " + str(context["expected_tags"]).replace("'", "")
    if kind == "too_short":
        return f"at least {context['min_length']} value{'s' * (context['min_length'] != 1)}"
    if kind == "too_long":
        return f"at most {context['max_length']} values"
    if kind == "model_type":
        return f"settings by name ({context['class_name']})"
    if kind == "is_instance_of":
        name = context["class"]
        return _CLASSES.get(name, f"{'an' if name[0] in 'AEIO' else 'a'} {name}")
    word = _KINDS.get(kind.split("_")[0])
    return word or said.replace("Input should be ", "").replace("Input should ", "to ")
