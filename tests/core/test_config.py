"""Parameters are checked, and their hash depends on nothing but their values."""

import hashlib
import shlex
from typing import Annotated, Literal

import pytest
from pydantic import Field

from rmutils.core.config import Config, command_line, digest
from rmutils.core.errors import UserError


class Grid(Config):
    size: int = 3
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("a", "ä")


def test_digest_is_that_of_the_sorted_json():
    want = hashlib.sha256('{"names":["a","ä"],"size":3}'.encode()).hexdigest()
    assert Grid().digest() == digest({"size": 3, "names": ["a", "ä"]}) == want
    assert Grid(size=4).digest() != want


class Whole(Config):
    grid: Grid = Grid()
    tau: float | None = 0.1
    name: str = "x"
    other: Grid | None = None
    kind: Literal["any", "own"] = "any"
    seed: int = 0
    depths: tuple[float, ...] = ()


@pytest.mark.parametrize("texts", [
    {}, {"tau": "0.05"}, {"tau": "null", "name": "some words"},
    {"grid.names": '["b", "c"]', "grid.size": "7", "name": "a.jsonl"},
    {"other": '{"size": 7, "names": ["b"]}'},
])
def test_values_come_from_texts_and_become_texts(texts):
    made = Whole().changed(texts)
    assert made.differences(Whole()) == texts
    assert Whole().changed(made.differences(Whole())) == made


@pytest.mark.parametrize(("texts", "changes"), [
    ({"grid.names": "b,c"}, {"grid": Grid(names=("b", "c"))}),
    ({"other.size": "7"}, {"other": Grid(size=7)}),  # begins with the defaults, for it was None
    ({"grid": "size=4", "tau": "none"}, {"grid": Grid(size=4), "tau": None}),
    ({"name": "17"}, {"name": "17"})])
def test_what_a_command_line_may_say(texts, changes):
    assert Whole().changed(texts) == Whole(**changes)


@pytest.mark.parametrize(("texts", "message"), [
    ({"size": "3"}, r"there is no size\. Did you mean grid.size\? Known names: grid.size, "
                    r"grid.names, tau, name, other, kind, seed, depths\."),
    ({"grid.sise": "3"},
     r"there is no grid.sise\. Did you mean grid.size\? Known names: grid.size, grid.names."),
    ({"tau.size": "3"}, "there is no tau.size."),
    ({"grid.names": ""}, "grid.names: expected at least 1 value, got none"),
    ({"kind": "anny"}, r"kind: expected one of any, own, got 'anny'\. Did you mean any\?$"),
    ({"tau": "much"}, "tau: expected a number, got .much."),
    ({"grid.size": "2.5"}, "grid.size: expected a whole number, got '2.5'"),
    ({"grid.size": "true"}, "grid.size: expected a whole number, got 'true'"),
    ({"tau": "false"}, "tau: expected a number, got 'false'"),
    ({"seed": "-1"}, "seed: expected at least 0, got -1"),
])
def test_wrong_texts(texts, message):
    with pytest.raises(UserError, match=message):
        Whole().changed(texts)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Grid(sise=3), "there is no sise. Did you mean size? Known names: size, names."),
    (lambda: Grid(size="many"), "size: expected a whole number, got 'many'."),
    (lambda: Whole(grid={"sise": 3, "names": []}),
     "there is no grid.sise. Did you mean grid.size? Known names: grid.size, grid.names; "
     "grid.names: expected at least 1 value, got none."),
    (lambda: Grid(size=True), "size: expected numbers, got True."),
    (lambda: Whole(depths=[0.5, False]), "depths: expected numbers, got [0.5, false]."),
    (lambda: setattr(Grid(), "size", 4),
     "a configuration stays as it is: .changed({'size': ...}) gives one with another value."),
])
def test_wrong_values_in_python(make, message):
    with pytest.raises(UserError) as told:
        make()
    assert str(told.value) == message


def test_a_command_has_an_option_for_each_value_that_is_not_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my model").mkdir()
    config = Whole(grid=Grid(size=7, names=("b", "c")), tau=None, other=Grid(), name="two words")
    assert shlex.split(command_line("do", str(tmp_path / "my model"), config=config)) == [
        "rmutils", "do", "my model", "--grid.size", "7", "--grid.names", "b,c", "--tau", "null",
        "--name", "two words", "--other", '{"size": 3, "names": ["a", "\\u00e4"]}']
    assert command_line("do", config=Whole(), more=Grid(size=1)) == "rmutils do --more.size 1"
    assert command_line("do", config=Whole(), default=Whole(tau=None)) == "rmutils do --tau 0.1"
