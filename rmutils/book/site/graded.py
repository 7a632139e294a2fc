"""What the checks of a worksheet see of an answer: plain data, whose comparisons are Python's."""

import functools
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

SINGLE = {type(None), bool, int, float, complex, str, bytes, range, Decimal, Fraction,
          *np.sctypeDict.values()} - {np.object_, np.void}
SEVERAL = {list, tuple, set, frozenset, deque}
BY_NAME = {dict, OrderedDict, defaultdict, Counter}


def graded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, which fails where what it returns is not plain data.

    Examples
    --------
    >>> class Anything(float):
    ...     __eq__ = lambda self, other: True
    >>> graded(lambda x: [1, x])(2.5)
    [1, 2.5]
    >>> graded(lambda x: [1, Anything(x)])(2.5)
    Traceback (most recent call last):
    ...
    AssertionError: the answer holds a value of the type Anything: return plain data
    """
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        _plain(answer)
        return answer
    return call


def _plain(value: Any) -> None:
    kind = type(value)
    if kind in SEVERAL:
        within = value
    elif kind in BY_NAME:
        within = [*value, *value.values()]
    elif kind is np.ndarray:
        within = value.ravel().tolist() if value.dtype.hasobject else ()
    elif kind in SINGLE or kind is getattr(sys.modules.get("torch"), "Tensor", None):
        within = ()
    else:
        raise AssertionError(f"the answer holds a value of the type {kind.__name__}: return plain "
                             "data")
    for one in within:
        _plain(one)
