"""The library stands without the book."""

import pkgutil
import re
import subprocess
import sys

from rmutils.book import MOVED
from rmutils.core.paths import DATA

WITHOUT = """
import sys
from rmutils.evaluation.helmet import EvaluateConfig
assert EvaluateConfig.model_validate({"variant": {"kind": "extended"}}).variant.kind == "extended"
import rmutils
for name in rmutils.__all__:
    getattr(rmutils, name)
import rmutils.cli.method, rmutils.cli.models, rmutils.paper, rmutils.evaluation.teaching_card
print(*[name for name in sys.modules if name.startswith("rmutils.book")])
"""


def test_the_library_loads_no_module_of_the_book():
    """And knows all variants of attention from the start."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == ""


def test_what_plans_name_is_found():
    named = {name for plan in (DATA / "plans").glob("*.yml")
             for name in re.findall(r"\brmutils(?:\.\w+)+", plan.read_text(encoding="utf-8"))}
    for name in named:
        for old, new in MOVED.items():
            name = name.replace(old, new)
        assert pkgutil.resolve_name(name), name
    assert all(any(name.startswith(old) for name in named) for old in MOVED), "nobody needs it"
