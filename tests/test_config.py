"""Parameters are checked, and their hash depends on nothing but their values."""

from __future__ import annotations

import hashlib

import pytest
from pydantic import ValidationError

from rmutils.config import Config, digest


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
