"""Parameters are checked, and their hash depends on nothing but their values."""

from __future__ import annotations

import hashlib

import pytest
from pydantic import ValidationError

from rmutils.core.config import Config, digest
from rmutils.core.errors import UserError


class Grid(Config):
    size: int = 3
    names: tuple[str, ...] = ("a", "ä")


def test_digest_is_that_of_the_sorted_json():
    want = hashlib.sha256('{"names":["a","ä"],"size":3}'.encode()).hexdigest()
    assert Grid().digest() == digest({"size": 3, "names": ["a", "ä"]}) == want
    assert Grid(size=4).digest() != want


def test_wrong_parameters_are_refused():
    for wrong in ({"sise": 3}, {"size": "many"}, {"size": 2.5}):
        with pytest.raises(ValidationError):
            Grid(**wrong)
    with pytest.raises(ValidationError):
        Grid().size = 4


class Whole(Config):
    grid: Grid = Grid()
    tau: float | None = 0.1
    name: str = "x"
    other: Grid | None = None


@pytest.mark.parametrize("texts", [
    {}, {"tau": "0.05"}, {"tau": "null", "name": "some words"},
    {"grid.names": '["b", "c"]', "grid.size": "7", "name": "a.jsonl"},
    {"other": '{"size": 7, "names": ["b"]}'},
])
def test_values_come_from_texts_and_become_texts(texts):
    made = Whole().changed(texts)
    assert made.differences(Whole()) == texts
    assert Whole().changed(made.differences(Whole())) == made


def test_words_between_commas():
    assert Whole().changed({"grid.names": "b,c"}).grid.names == ("b", "c")


@pytest.mark.parametrize(("texts", "message"), [
    ({"size": "3"}, "there is no size. Known names: grid.size, grid.names, tau, name, other."),
    ({"grid.sise": "3"}, "there is no sise. Known names: size, names."),
    ({"tau.size": "3"}, "there is no tau.size."),
    ({"tau": "much"}, "tau: Input should be a valid number.*got 'much'"),
    ({"grid.size": "2.5"}, "size: .*got 2.5"),
])
def test_wrong_texts(texts, message):
    with pytest.raises(UserError, match=message):
        Whole().changed(texts)
