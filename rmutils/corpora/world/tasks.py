"""Tasks over long texts about the invented world, with exact answers; and its shipped needles."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import Needle
from rmutils.corpora.world import lookups, samples
from rmutils.corpora.world.facts import World, sentence
from rmutils.corpora.world.lexicon import NEW_ASKED, NEW_TOLD, OF_KIND, RELATIONS, names, of_split
from rmutils.corpora.world.lookups import needle, needles, told

ASKED = ("cache", "keepsake", "food", "prize", "look")
"""Relations of the needles, in turn: those whose values are several words long."""
COUNT, MORE = 20, 200
"""Haystacks with their needles, and needles besides."""
SIZE = 19_500
"""Characters of a haystack: more than 4,096 tokens, also where each common word is one token."""


def labels(world: World, number: int) -> list[str]:
    """Numbers or made-up words that mean nothing by themselves."""
    choices = of_split([str(n) for n in range(10, 100)], world.split) \
        if world.random.random() < 0.5 else names("title", world.split)
    return world.random.sample(choices, number)


def classify(world: World, length: int, count: samples.Count) -> samples.Sample:
    """The label of a text, learned from examples classed by relation or by kind of subject."""
    number = world.random.randint(2, max(2, min(6, length // 60)))
    if world.random.random() < 0.5:
        classes = [[name] for name in world.random.sample(list(RELATIONS), number)]
    else:
        kinds = world.random.sample(list(OF_KIND), min(number, len(OF_KIND)))
        classes = [[relation.name for relation in OF_KIND[kind]] for kind in kinds]
    label_of = dict(zip(labels(world, len(classes)), classes, strict=True))

    def text(label: str) -> str:
        return world.tell(world.new_fact(world.random.choice(label_of[label])))

    def example(label: str) -> str:
        return f"Text: {text(label)} Label: {label}"

    def examples() -> Iterator[samples.Piece]:
        while True:
            try:
                line = example(world.random.choice(list(label_of)))
            except LookupError:  # all names are taken
                return
            yield [line]

    shown = world.random.sample([[example(label)] for label in label_of], len(label_of))
    right = world.random.choice(list(label_of))
    before, after = world.wording(lookups.FRAMES["classify"])
    asked = text(right)

    def build(pieces: list[samples.Piece]) -> samples.Sample:
        lines = [line for line, in samples.weave(world, shown, pieces)]
        return samples.Sample("classify", before, f"Label: {right}", "\n".join(lines),
                      after.format(q=asked), (right,),
                      tuple(line for line in lines if line.endswith(f" {right}")))

    return samples.fit(build, examples(), length, count, "\n")


def summary(world: World, length: int, count: samples.Count) -> samples.Sample:
    """A text's facts about one entity, in their order, among sentences about other things."""
    kind = world.random.choice(list(OF_KIND))
    subject = world.entity(kind)
    number = world.random.randint(3, max(3, min(6, length // 50)))
    relations = world.random.sample(OF_KIND[kind], min(number, len(OF_KIND[kind])))
    facts = [world.fact(subject, relation.name) for relation in relations]
    support = tuple(world.tell(fact) for fact in facts)
    before, after = world.wording(lookups.FRAMES["summary"])
    points = tuple(fact.answer for fact in facts)

    def build(pieces: list[samples.Piece]) -> samples.Sample:
        text = samples.weave(world, [[line] for line in support], pieces)
        return samples.Sample("summary", before, " ".join(points),
                      samples.paragraphs([line for piece in text for line in piece]),
                      after.format(s=subject), tuple(fact.value for fact in facts), support,
                      key_points=points)

    return samples.fit(build, told(world, about_not=subject), length, count)


TASKS: dict[str, Callable[[World, int, samples.Count], samples.Sample]] = {
    maker.__name__: maker for maker in (
        needle, needles, lookups.key_value, lookups.documents_qa, lookups.citations, lookups.rerank,
        classify, summary, lookups.hops)
}
"""Kind -> maker(world, length, count)."""

def task(kind: str, world: World, length: int, count: samples.Count) -> samples.Sample:
    """A task of a kind."""
    needed = []
    for _ in range(samples.DRAWS):
        try:
            return TASKS[kind](world, length, count)
        except samples.TooShort as error:
            needed.append(error.least)
    raise samples.TooShort(kind, length, min(needed)) from None


SETS = ("needles", "reworded", "plain", "literal", "paraphrased")
"""Needle sets of the invented world: folders of its corpus."""


def held_out_needles(index: int) -> tuple[str, dict[str, Needle]]:
    """Haystack and needle number `index`, in each of `SETS`."""
    world, relation = World(f"haystack-{index}", "held_out"), ASKED[index % len(ASKED)]
    haystack = samples.paragraphs(samples.padding(world, SIZE, len, avoid={relation}))
    fact, choose = world.new_fact(relation, reuse=0), world.random.choice
    spec, words = fact.spec, {"s": fact.subject, "v": fact.value}
    told = choose(NEW_TOLD).format(choose(spec.statements).format(**words))
    frame, plain = choose(NEW_ASKED), sentence(choose(spec.questions).format(**words))
    noun = sentence(spec.statements[2].format(**words))
    texts = [(told, frame.format(plain)),
             (spec.reworded.format(**words), spec.reasked.format(**words)),
             (told, plain),
             *((noun, spec.questions[i].format(**words)) for i in (1, 0))]
    return haystack, {name: Needle(sentence(one), sentence(asked), fact.value)
                      for name, (one, asked) in zip(SETS, texts, strict=True)}


def write_held_out(folder: Path = CORPORA["world"]) -> None:
    """Make haystacks and needles for each of `SETS`, and `MORE` other needles, in a folder."""
    haystacks, needles = zip(*map(held_out_needles, range(COUNT)), strict=True)
    for name in SETS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(vars(each[name])) + "\n" for each in needles]
        (folder / name / "needles.jsonl").write_text("".join(lines))
    (folder / "more").mkdir(exist_ok=True)
    more = (next(needle for number in itertools.count(COUNT + index, MORE)
                 if (needle := held_out_needles(number)[1]["needles"]).real_needle
                 not in haystacks[index % COUNT]) for index in range(MORE))
    (folder / "more" / "needles.jsonl").write_text(
        "".join(json.dumps(vars(needle)) + "\n" for needle in more))
    (folder / "haystack").mkdir(exist_ok=True)
    for index, text in enumerate(haystacks):
        (folder / "haystack" / f"{index:02d}.txt").write_text(text + "\n")
