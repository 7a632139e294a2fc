"""Checks whether a response kept the name, the format or the reasoning (appendix H).

No model judges. Every check is a rule over the text, with a result between right and lost, and the
first result of each kind is the only one that passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from rmutils.corpora.world.failure_prompts import FailureKind, FailurePrompt
from rmutils.models.language_model import without_thoughts

NAME = ("copied", "near miss", "in part", "missing")
FORMAT = ("kept", "another shape", "does not parse")
CHAIN = ("right", "a step lost", "taken back", "wrong")
OUTCOMES: dict[FailureKind, tuple[str, ...]] = {
    "entity name": NAME, "format constraint": FORMAT, "reasoning chain": CHAIN}
"""Possible outcomes of each kind; the first one passes."""

NEAR = 0.8
"""From this similarity on, of 1 at most, another name is a near miss (`difflib`'s ratio: twice the
letters in common over the letters of both). Ours."""
TELLING = 4
"""Letters that a word of a name needs so that it alone counts as a part of the name. Ours: `Co.`,
`Ltd` and `Way` have fewer."""


def outcome(prompt: FailurePrompt, response: str) -> str:
    """Return the outcome, one of `OUTCOMES` of the prompt's kind."""
    if prompt.kind == "entity name":
        return max((name_outcome(name, response) for name in prompt.wanted), key=NAME.index)
    if prompt.kind == "format constraint":
        return format_outcome(SHAPES[prompt.form], prompt.wanted[0], response)
    return chain_outcome(prompt.wanted, response)


def name_outcome(name: str, response: str) -> str:
    """`copied`: it is there letter by letter. `near miss`: something much like it does.
    `in part`: only some of its words do. Else `missing`.
    """
    if _holds(name, response):
        return "copied"
    if similarity(name, response) >= NEAR:
        return "near miss"
    parts = [word for word in re.findall(r"\w+", name) if len(word) >= TELLING]
    return "in part" if any(_holds(part, response) for part in parts) else "missing"


def similarity(name: str, response: str) -> float:
    """Largest similarity of the name to as many words in a row, or one more or less; 0 to 1."""
    words, size = response.split(), len(name.split())
    spans = {" ".join(words[i : i + n]).strip('.,;:!?"*') for n in (size - 1, size, size + 1)
             for i in range(len(words) - n + 1) if n}
    best = 0.0
    for span in spans:
        matcher = SequenceMatcher(None, name, span, autojunk=False)
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:  # upper bounds
            best = max(best, matcher.ratio())
    return best


def format_outcome(shape: Callable[[str], object], right: str, response: str) -> str:
    """`kept`: the response has the shape of a right one. `another shape`: it has one that the
    format's reader understands. Else `does not parse`.
    """
    found = shape(response)
    return "does not parse" if found is None else "kept" if found == shape(right) else \
        "another shape"


def _record(response: str) -> dict[str, str] | None:
    """Keys of a JSON object with the types of their values; a code fence may stand around it."""
    text = re.sub(r"^```(json)?\n(.*?)\n?```$", r"\2", response.strip(), flags=re.DOTALL)
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return {key: type(value).__name__ for key, value in found.items()} \
        if isinstance(found, dict) else None


def _numbers(response: str) -> list[int] | None:
    """The numbers of a list with a number and something else on each line."""
    lines = [re.fullmatch(r"\s*(\d+)[.)] +\S.*", line)
             for line in response.splitlines() if line.strip()]
    return [int(line[1]) for line in lines] if lines and all(lines) else None


def _items(response: str) -> list[str] | None:
    """Return the items between the commas of a line."""
    items = response.strip(" .\n").split(", ")
    return items if len(items) > 1 and "\n" not in response.strip() else None


def _listing(response: str) -> tuple[int, str] | None:
    """Different things in "A, b and c are things.", and what they are said to be."""
    match = re.fullmatch(r"(.+) are (\w+)\.", response.strip())
    return match and (len({*re.split(", | and ", match[1].lower())}), match[2])


def _sentences(response: str) -> int | None:
    """Number of whole sentences; a text that breaks off has none."""
    return len(sentences(response)) if re.search(r"[.!?]$", response.strip()) else None


SHAPES: dict[str, Callable[[str], object]] = {
    "record": _record, "score": _record, "numbered list": _numbers, "reversed list": _items,
    "listing": _listing, "three sentences": _sentences}
"""Form -> reader: what makes up the format in a response; None if it is not there."""


def chain_outcome(steps: Sequence[str], response: str) -> str:
    """`right`: all steps are named in order, and the last of them that is named is the answer.
    `a step lost`: the answer, but not all steps in order. `taken back`: all steps in order, the
    answer among them, and then another one. Else `wrong`. Thoughts count as steps, never as the
    answer.
    """
    said = without_thoughts(response)
    places = {step: [found.start() for found in _find(step, said)] for step in steps}
    named = max(steps, key=lambda step: max(places[step], default=-1))
    right = named == steps[-1] and bool(places[named])
    if _in_order(steps, response):
        return "right" if right else "taken back"
    return "a step lost" if right else "wrong"


def sentences(text: str) -> list[str]:
    """The sentences of a text, by their punctuation."""
    return [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]


def _in_order(names: Iterable[str], text: str) -> bool:
    place = 0
    for name in names:
        found = next(_find(name, text[place:]), None)
        if not found:
            return False
        place += found.end()
    return True


def _holds(name: str, text: str) -> bool:
    return any(_find(name, text))


def _find(name: str, text: str) -> Iterator[re.Match]:
    return re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text)
