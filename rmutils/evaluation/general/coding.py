"""Functions to be written, which are then called: the small stand-in for HumanEval.

The problems are in `data/abilities/problems.yaml`. What the calls should give never enters the
sandbox, so a program that prints a right result without computing it gains nothing.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import yaml

from rmutils.evaluation.general.items import Item, passes
from rmutils.evaluation.general.sandbox import call
from rmutils.files import intact
from rmutils.paths import DATA

PROBLEMS = DATA / "abilities" / "problems.yaml"
_PROMPT = '''\
Write this Python function. Answer with the code only.

```python
{begins}
    """{does} For example, {function}({arguments}) is {result!r}."""
```'''
_FENCED = re.compile(r"```[a-zA-Z]*\n(.*?)(?:```|\Z)", re.DOTALL)


def coding(count: int, seed: int) -> list[Item]:
    """The first `count` problems; there are no seeds to them."""
    problems = yaml.safe_load(intact(PROBLEMS).read_text(encoding="utf-8"))
    return [_item(problem) for problem in problems[:count]]


def _item(problem: dict[str, Any]) -> Item:
    arguments, result = problem["example"]
    prompt = _PROMPT.format(**problem, arguments=", ".join(map(repr, arguments)), result=result)
    return Item(problem["function"], prompt, f"```python\n{problem['solution']}```",
                partial(_score, problem["function"], problem["tests"]))


def code_of(answer: str, function: str) -> str:
    """The code of an answer: the first fenced block that defines the function, or all of it."""
    defines = re.compile(rf"^def {function}\b", re.MULTILINE)
    return next(filter(defines.search, _FENCED.findall(answer)), answer)


def _score(function: str, tests: list[list], answer: str) -> float:
    """All calls must give what they should."""
    calls, wanted = zip(*tests, strict=True)
    return passes(call(code_of(answer, function), function, calls).values == wanted)
