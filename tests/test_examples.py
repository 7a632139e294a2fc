"""The examples in docstrings show what really comes out."""

import doctest
import importlib
import re

import pytest

import rmutils
from rmutils.core.paths import ROOT

MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
           for path in sorted((ROOT / "rmutils").rglob("*.py"))
           if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)]


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


def test_every_promised_name_has_one():
    for name in rmutils.__all__:
        assert ">>> " in getattr(rmutils, name).__doc__, name
