"""What files can be like that others wrote, or that a disk, an editor or a joker has been at."""

import copy
import json
from random import Random
from typing import Any

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-2, 3), st.floats(), st.text(max_size=8),
    st.sampled_from(["", "NaN", "1e999", "../x", "\x00", "=1+1", "<script>", "１", "0x1", "1_0",
                     "\ud800", "a\udfff"]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.text(max_size=5), inner, max_size=3), max_leaves=6)
BYTES = st.binary(max_size=6) | st.sampled_from(
    [b"", b"\n", b"\r", b"\x00", b"\xff", b"\xef\xbb\xbf", b'"', b",", b"{", b"]", b"-1", b"NaN",
     b"[" * 3000, b"9" * 5000])


PIECES = [b"", b"\n", b"\t", b"\x00", b"\xff", b'"', b",", b"{", b"]", b"-1", b"NaN", b"1e999",
          b"null", b'""', b"[" * 300, b"9" * 500, rb"\ud800"]


def damaged_further(start: bytes, good: bytes, count: int, seed: int) -> list[bytes]:
    """So many files made from a damaged and a good one: a bit flipped, a piece replaced, cut out,
    doubled or moved. That takes a thousandth of the time that Hypothesis needs for a file."""
    random, found = Random(seed), []
    for number in range(count):
        file = start if number % 2 else good
        for _ in range(random.choice((1, 1, 2, 3))):
            first = random.randrange(len(file) + 1)
            last = min(len(file), first + random.choice((0, 1, 1, 2, 8, 40)))
            other, piece = random.randrange(len(file) + 1), random.choice(PIECES)
            how = random.randrange(5)
            if how == 0 and first < len(file):
                flipped = bytes([file[first] ^ 1 << random.randrange(8)])
                file = file[:first] + flipped + file[first + 1:]
            elif how == 1:
                file = file[:other] + file[first:last] + file[other:]
            else:
                file = file[:first] + (b"" if how == 2 else piece) + file[last:]
        found.append(file)
    return found


@st.composite
def damaged(draw, good: bytes) -> bytes:
    """A file with some of its bytes replaced, cut off, doubled or moved; or quite another one."""
    how = draw(st.sampled_from(["bytes", "bytes", "value", "value", "value", "other"]))
    if how == "other":
        return draw(st.binary(max_size=50) | st.builds(_dumped, VALUES, st.booleans()))
    if how == "value" and (changed := _other_value(draw, good)) is not None:
        return changed
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*2 * [st.integers(0, len(good))])))
        if draw(st.booleans()):
            end = min(end, start + 8)
        good = good[:start] + draw(BYTES) * draw(st.integers(0, 2)) + good[end:]
    return good


def _other_value(draw, good: bytes) -> bytes | None:
    """The file, or one of its lines, as JSON with one value replaced or taken out."""
    text = good.decode()
    lines = [text] if _loaded(text) is not None else text.splitlines()
    chosen = draw(st.integers(0, len(lines) - 1))
    whole = _loaded(lines[chosen])
    if whole is None:
        return None
    whole = {"": copy.deepcopy(whole)}
    parent, key = draw(st.sampled_from(_places(whole)))
    if key != "" and draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(VALUES)
    lines[chosen] = _dumped(whole[""], draw(st.booleans())).decode("utf-8", "surrogatepass")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) within."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [place for key, inner in items for place in
            [(value, key), *(_places(inner) if isinstance(inner, dict | list) else [])]]


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _dumped(value: Any, escaped: bool) -> bytes:
    """As JSON: half a character is an escape, or bytes that are no UTF-8."""
    return json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
