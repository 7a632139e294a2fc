"""Short prompts on which a model can lose a name, a format or its reasoning, and checks of that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import count as count_from
from itertools import pairwise
from typing import Literal

from rmutils.corpora.world import knowledge, writing
from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import World, sentence, values
from rmutils.corpora.world.lexicon import Kind, names, table
from rmutils.models.language_model import without_thoughts

FailureKind = Literal["entity name", "format constraint", "reasoning chain"]
"""The kinds of things that a model "is supposed to maintain" (appendix H)."""


@dataclass(frozen=True)
class FailurePrompt:
    """A prompt, and what distinguishes a right response from a wrong one."""

    kind: FailureKind
    form: str  # which of the kind's prompts it is
    text: str  # the user turn
    # For an entity name: the names that a response must hold. For a format constraint: a response
    # in the right format. For a reasoning chain: the results of the steps, the last of which
    # answers the question.
    wanted: tuple[str, ...]


_TEXTS = table("failure_prompts")
Maker = Callable[[World], tuple[str, tuple[str, ...]]]
"""Draws the text of a prompt and what is wanted."""


def failure_prompts(count: int, seed: int | str = 0, corpus: str = "book") -> list[FailurePrompt]:
    """`count` different prompts of each kind, whose forms take turns."""
    prompts: list[FailurePrompt] = []
    for kind, forms in FORMS[corpus].items():
        drawn: dict[str, FailurePrompt] = {}
        for draw in count_from():
            if len(drawn) == count:
                break
            form = list(forms)[draw % len(forms)]
            text, wanted = forms[form](World(f"failure {seed} {kind} {draw}", "held_out"))
            drawn.setdefault(text, FailurePrompt(kind, form, text, wanted))
        prompts += drawn.values()
    return prompts


def _greet(world: World):
    sample = writing.greet(world)
    return sample.prompt, sample.golds


def _report(world: World):
    sample = knowledge.report(world)
    subject = next(iter(world.facts.values())).subject
    return sample.prompt, (subject.removeprefix("the "),)


def _turn(world: World):
    sample = knowledge.turn(world)
    if not sample.golds[0][0].isupper():  # a pet or a thing
        return _turn(_other(world))
    return sample.prompt, sample.golds


def _answered(maker: Callable) -> Maker:
    """A maker whose right answer shows the format."""

    def make(world: World):
        sample = maker(world)
        return sample.prompt, (sample.answer,)

    return make


def _chain(world: World):
    sample = knowledge.chain(world)
    first, second, *_ = world.facts.values()  # in the order of their making: the chain, then others
    if second.value == first.subject:  # the question would name its answer
        return _chain(_other(world))
    return sample.prompt, (first.value, second.value)


def _other(world: World) -> World:
    """Another world, for a prompt that is drawn again."""
    return World(world.random.random(), world.split)


def _welcome(world: World):
    person, place = world.entity("person"), world.entity("place")
    return _TEXTS["welcome"].format(person=person, place=place), (person, place)


def _introduce(world: World):
    who = _person(world)
    return _TEXTS["introduction"].format(**who), (who["person"], who["place"])


def _company(world: World):
    """After Figure 7, where a company's name and its address have to be reproduced."""
    one, two = world.random.sample(names("last", world.split), 2)
    company = f"{one} & {two} Co., Ltd"
    address = f"{world.random.randint(2, 98)} {world.entity('place')} Way"
    return _TEXTS["company"].format(company=company, address=address), (company, address)


def _record(world: World):
    who = _person(world)
    record = dict(zip(("name", "job", "town"), who.values(), strict=True))
    return _TEXTS["record"].format(**who), (json.dumps(record),)


def _score(world: World):
    """The very format of Figure 8."""
    food = world.random.choice(values("food", world.split))
    was = world.random.choice(_TEXTS["judgements"])
    return _TEXTS["score"].format(food=food, was=was), (json.dumps({"score": 5}),)


def _numbered(world: World):
    many = world.random.choice([many for _, many in knowledge.CATEGORIES])
    count = world.random.randint(3, 6)
    lines = "\n".join(f"{i + 1}. {many}" for i in range(count))
    return _TEXTS["numbered list"].format(count=words.COUNT[count - 1], many=many), (lines,)


def _journey(world: World):
    person = world.entity("person")
    return _steps(world, "journey", "place", person=person)


def _gift(world: World):
    thing = world.random.choice(words.THINGS)
    return _steps(world, "gift", "person", thing=thing)


def _steps(world: World, form: str, kind: Kind, **slots: str):
    """A chain of three or four entities, to be named in order."""
    text = _TEXTS[form]
    chain = tuple(world.entity(kind) for _ in range(world.random.randint(3, 4)))
    way = " ".join(text["step"].format(a=a, b=b, **slots) for a, b in pairwise(chain))
    return sentence(text["text"].format(first=chain[0], way=way, **slots)), chain


def _person(world: World) -> dict[str, str]:
    return {"person": world.entity("person"), "trade": world.random.choice(list(words.TRADES)),
            "place": world.entity("place")}


FORMS: dict[str, dict[FailureKind, dict[str, Maker]]] = {
    "world": {
        "entity name": {"greeting": _greet, "report": _report, "turned sentence": _turn},
        "format constraint": {
            "reversed list": _answered(knowledge.reverse), "listing": _answered(knowledge.listing),
            "three sentences": _answered(knowledge.portrait)},
        "reasoning chain": {"two facts": _chain},
    },
    "book": {
        "entity name": {"welcome": _welcome, "introduction": _introduce, "company": _company},
        "format constraint": {"record": _record, "score": _score, "numbered list": _numbered},
        "reasoning chain": {"journey": _journey, "gift": _gift},
    },
}
"""For whom -> kind -> form -> maker."""


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
    """`copied` letter by letter; a `near miss`; `in part`, some of its words; or `missing`."""
    if _holds(name, response):
        return "copied"
    if similarity(name, response) >= NEAR:
        return "near miss"
    parts = [word for word in re.findall(r"\w+", name) if len(word) >= TELLING]
    return "in part" if any(_holds(part, response) for part in parts) else "missing"


@lru_cache(maxsize=4096)  # chapters and claims ask for the same answers
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
    """`kept`: a right one's shape. `another shape`: one that its reader knows, too."""
    found = shape(response)
    return "does not parse" if found is None else "kept" if found == shape(right) else \
        "another shape"


def _as_record(response: str) -> dict[str, str] | None:
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
    "record": _as_record, "score": _as_record, "numbered list": _numbers, "reversed list": _items,
    "listing": _listing, "three sentences": _sentences}
"""Form -> reader: what makes up the format in a response; None if it is not there."""


def chain_outcome(steps: Sequence[str], response: str) -> str:
    """`right`: all steps are named in order, and the last of them that is named is the answer."""
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
